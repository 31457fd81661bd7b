"""The OpenAPI document of the server, made from its routes.

The WebSocket is not in it, because OpenAPI has no words for one: its messages are `turnout.messages`. Nor are the parts
of the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pydantic.json_schema import models_json_schema

from turnout import __version__
from turnout.plan.control import topic_field
from turnout.plan.control_schema import message_schemas
from turnout.serve import schemas
from turnout.serve.routes import ERRORS, Call, CallRoute, Content, Parameter

_SCHEMAS = "#/components/schemas/"
_JSON = "application/json"
_MODELS = (
    *(schemas.Error, schemas.Tables, schemas.Rows, schemas.Status, schemas.Topics),
    *(schemas.Decided, schemas.Taken, schemas.Alive, schemas.Ready),
)


def document(
    routes: Iterable[CallRoute], sources: tuple[str, ...], views: tuple[str, ...], public: Iterable[str] | None
) -> dict[str, Any]:
    """The document; `public` are the paths that need no token, None where nothing does."""
    open_paths = None if public is None else frozenset(public)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        closed = open_paths is not None and route.path not in open_paths
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths[route.path][method.lower()] = _operation(route, closed)
    token = {"type": "http", "scheme": "bearer", "description": "a viewer's token to read, an operator's to change"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnout",
            "version": __version__,
            "description": "Live tables, joined from Kafka topics. Every error has one shape. "
            "Rows as they change come from the WebSocket /api/live, which is described in docs/reference/live.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(paths),
        "components": {"schemas": _schemas(sources, views)}
        | ({} if open_paths is None else {"securitySchemes": {"token": token}}),
    }


def _operation(route: CallRoute, closed: bool) -> dict[str, Any]:
    call = route.call
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.param_convertors
    ]
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.meaning,
        "parameters": path + [_parameter(parameter) for parameter in call.parameters],
        "responses": {str(status): _answer(content) for status, content in call.answers.items()}
        | _errors(call, closed),
    }
    if call.body is not None:
        required = call.body == "ControlMessage"
        operation["requestBody"] = {"required": required, "content": {_JSON: {"schema": _reference(call.body)}}}
    if closed:
        operation["security"] = [{"token": []}]
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.meaning,
        "schema": dict(parameter.schema),
    }


def _answer(content: Content) -> dict[str, Any]:
    shapes = {
        kind: {} if shape is None else {"schema": _reference(shape.__name__)} for kind, shape in content.shapes.items()
    }
    answer: dict[str, Any] = {"description": content.meaning, "content": shapes}
    if content.headers:
        answer["headers"] = {
            name: {"description": meaning, "schema": {"type": "integer"}} for name, meaning in content.headers.items()
        }
    return answer


def _errors(call: Call, closed: bool) -> dict[str, Any]:
    """The errors of a call by their status."""
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in (*call.codes, *(("unauthorized",) if closed else ())):
        by_status[ERRORS[code].status].append(code)
    return {str(status): _error(codes) for status, codes in sorted(by_status.items())}


def _error(codes: list[str]) -> dict[str, Any]:
    one_of_these = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    return {
        "description": "; ".join(f"`{code}`: {ERRORS[code].when}" for code in codes),
        "content": {_JSON: {"schema": {"allOf": [_reference("Error"), one_of_these]}}},
    }


def _schemas(sources: tuple[str, ...], views: tuple[str, ...]) -> dict[str, Any]:
    _, made = models_json_schema([(model, "serialization") for model in _MODELS], ref_template=f"{_SCHEMAS}{{model}}")
    schemas: dict[str, Any] = made["$defs"]
    schemas["Status"]["properties"] |= {topic_field(source): {"type": ["string", "null"]} for source in sources}
    return schemas | message_schemas(sources, views, _SCHEMAS)


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"{_SCHEMAS}{name}"}
