"""The OpenAPI document of the server, made from its routes.

The WebSocket is not in it, because OpenAPI has no words for one: its messages are `turnout_client.messages`. Nor are
the parts of the page.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from turnout import __version__
from turnout.errors import ERRORS
from turnout.plan.control import Action, topic_field
from turnout.plan.control_parsing import body_of, message_schemas
from turnout.serve.formats import MEDIA_TYPES, Format
from turnout.serve.routes import Call, CallRoute
from turnout.serve.schemas import Error

SCHEMAS = "#/components/schemas/"
_CONFIG_FILE = {"type": "object", "description": "turnout.yaml; its settings are in docs/reference/configuration.md"}
# What a call can answer that is not for everybody.
_CLOSED = ("unauthorized", "forbidden", "issuer_unreachable")


def document(
    routes: Sequence[CallRoute], sources: tuple[str, ...], views: tuple[str, ...], public: Iterable[str] | None
) -> dict[str, Any]:
    """The document; `public` are the paths that need no token, None where nothing does."""
    token = {"type": "http", "scheme": "bearer", "description": "a viewer's token to read, an operator's to change"}
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        closed = public is not None and route.call.path not in public
        paths[route.call.path][route.call.method.lower()] = _operation(route, closed)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnout",
            "version": __version__,
            "description": "Live tables, joined from Kafka topics. "
            "Every error has one shape; docs/reference/errors.md lists the codes. "
            "Rows as they change come from the WebSocket /api/live, which is described in docs/reference/live.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": _schemas(routes, sources, views)}
        | ({} if public is None else {"securitySchemes": {"token": token}}),
    }


def _operation(route: CallRoute, closed: bool) -> dict[str, Any]:
    call = route.call
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.param_convertors
    ]
    query = [
        {"name": name, "in": "query", "description": meaning, "schema": schema}
        for name, schema, meaning in call.parameters
    ]
    codes = dict.fromkeys([*call.codes, *(_CLOSED if closed else ())])
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": [*path, *query],
        "responses": {str(status): _answer(call, status) for status in call.answers} | _errors(codes, call.refused),
    }
    if call.body is not None:
        required = call.body not in [body_of(action) for action in Action]
        operation["requestBody"] = {"required": required, "content": {call.body_kind: _reference(call.body)}}
    if closed:
        operation["security"] = [{"token": []}]
    return operation


def _answer(call: Call, status: int) -> dict[str, Any]:
    answer = call.answers[status]
    content: dict[str, Any] = (
        {answer: {}} if isinstance(answer, str) else {MEDIA_TYPES[Format.JSON]: _reference(answer)}
    )
    if call.file_headers:
        content = {kind: {} for kind in MEDIA_TYPES.values()} | content
    headers = {
        f"X-Turnout-{name.title()}": {"description": f"{name} of a file", "schema": {"type": "integer"}}
        for name in call.file_headers
    }
    return {"description": HTTPStatus(status).phrase, "content": content, "headers": headers}


def _reference(shape: str | type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": SCHEMAS + (shape if isinstance(shape, str) else shape.__name__)}}


def _errors(codes: Iterable[str], refused: type[BaseModel] | None) -> dict[str, Any]:
    """Errors by their status."""
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        by_status[ERRORS[code].status].append(code)
    return {str(status): _error(by_status[status], refused) for status in sorted(by_status)}


def _error(codes: list[str], refused: type[BaseModel] | None) -> dict[str, Any]:
    shape = _reference("Error")["schema"]
    if refused is not None:
        shape = {"anyOf": [shape, _reference(refused)["schema"]]}
    one_of_these = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    return {
        "description": "; ".join(f"`{code}`: {ERRORS[code].when}" for code in codes),
        "content": {"application/json": {"schema": {"allOf": [shape, one_of_these]}}},
    }


def _schemas(routes: Sequence[CallRoute], sources: tuple[str, ...], views: tuple[str, ...]) -> dict[str, Any]:
    answers: set[type[BaseModel]] = {Error}
    answers |= {model for route in routes for model in route.call.answers.values() if not isinstance(model, str)}
    answers |= {route.call.refused for route in routes if route.call.refused is not None}
    bodies = {route.call.body for route in routes if isinstance(route.call.body, type)}
    _, made = models_json_schema(
        [*((model, "serialization") for model in answers), *((model, "validation") for model in bodies)],
        ref_template=f"{SCHEMAS}{{model}}",
    )
    schemas: dict[str, Any] = made["$defs"]
    schemas["Status"]["properties"] |= {topic_field(source): {"type": ["string", "null"]} for source in sources}
    schemas["ConfigFile"] = _CONFIG_FILE
    return schemas | message_schemas(sources, views, SCHEMAS)
