"""The OpenAPI document of the server, made from its routes.

The WebSocket is not in it, because OpenAPI has no words for one: its messages are `turnout.messages`. Nor are the parts
of the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from turnout import __version__
from turnout.plan.control import topic_field
from turnout.plan.control_schema import message_schemas
from turnout.serve.routes import ERRORS, SCHEMAS, CallRoute, reference
from turnout.serve.schemas import Answer, Body


def document(
    routes: Iterable[CallRoute], sources: tuple[str, ...], views: tuple[str, ...], public: Iterable[str] | None
) -> dict[str, Any]:
    """The document; `public` are the paths that need no token, None where nothing does."""
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
        "paths": _paths(routes, public),
        "components": {"schemas": _schemas(sources, views)}
        | ({} if public is None else {"securitySchemes": {"token": token}}),
    }


def _paths(routes: Iterable[CallRoute], public: Iterable[str] | None) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        closed = public is not None and route.path not in public
        paths[route.path][route.call.method.lower()] = _operation(route, closed)
    return paths


def _operation(route: CallRoute, closed: bool) -> dict[str, Any]:
    call = route.call
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.param_convertors
    ]
    codes = (*call.codes, "unauthorized") if closed else call.codes
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.meaning,
        "parameters": [*path, *call.parameters],
        "responses": {str(status): answer for status, answer in call.answers.items()} | _errors(codes),
    }
    if call.body is not None:
        required = call.body != "RollbackMessage"
        operation["requestBody"] = {"required": required, "content": {"application/json": reference(call.body)}}
    if closed:
        operation["security"] = [{"token": []}]
    return operation


def _errors(codes: Iterable[str]) -> dict[str, Any]:
    """Errors by their status."""
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        by_status[ERRORS[code].status].append(code)
    return {str(status): _error(by_status[status]) for status in sorted(by_status)}


def _error(codes: list[str]) -> dict[str, Any]:
    one_of_these = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    return {
        "description": "; ".join(f"`{code}`: {ERRORS[code].when}" for code in codes),
        "content": {"application/json": {"schema": {"allOf": [reference("Error")["schema"], one_of_these]}}},
    }


@cache
def _schemas(sources: tuple[str, ...], views: tuple[str, ...]) -> dict[str, Any]:
    answers, bodies = Answer.__subclasses__(), Body.__subclasses__()
    _, made = models_json_schema(
        [*((model, "serialization") for model in answers), *((model, "validation") for model in bodies)],
        ref_template=f"{SCHEMAS}{{model}}",
    )
    schemas: dict[str, Any] = made["$defs"]
    schemas["Status"]["properties"] |= {topic_field(source): {"type": ["string", "null"]} for source in sources}
    return schemas | message_schemas(sources, views, SCHEMAS)
