"""The reference of the HTTP calls: answers, parameters and errors, from their declarations (`@Call`) and models."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel
from starlette.applications import Starlette

from reference.text import attribute_texts, shown, split_default, table
from turnout.config import Settings
from turnout.config.config_errors import is_model, plain
from turnout.config.configuration import Configuration
from turnout.serve.access import Gate
from turnout.serve.app import Services, create_app
from turnout.serve.routes import Call, CallRoute
from turnout.store.database import Database

_SMALL = 2
"""The maximum number of fields that the table shows; a larger answer has its own example or table on the page."""


@functools.cache
def _routes() -> list[CallRoute]:
    """Return the calls of a real server, with the page first."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder))
        try:
            orchestrator: Any = SimpleNamespace(configuration=Configuration(Settings()))
            gate = cast(Gate, create_app(Services(database, orchestrator)))
            routes = [route for route in cast(Starlette, gate._app).routes if isinstance(route, CallRoute)]
        finally:
            database.close()
    return sorted(routes, key=lambda route: route.call.path != "/")


def calls() -> str:
    rows = [[f"`{route.call.method} {route.call.path}`", _answer(route)] for route in _routes()]
    return table(["call", "answer"], [*rows, ["`WS /api/live`", "Live subscriptions; see docs/reference/live.md."]])


def errors() -> str:
    """Return a table of the errors that every call can have, then of the errors of each call."""
    page, read = Call("/", "text/html"), Call("/api/tables", "application/json")
    change = Call("/api/sql", "application/json", method="POST", body="ControlMessage")
    kinds = {
        "any call": page.codes,
        "any call below `/api`, and `/metrics`": tuple(code for code in read.codes if code not in page.codes),
        "any `POST`, `PUT` and `DELETE`": tuple(code for code in change.codes if code not in read.codes),
    }
    own = {f"`{route.call.method} {route.call.path}`": route.call.errors for route in _routes() if route.call.errors}
    rows = [[name, ", ".join(f"`{code}`" for code in dict.fromkeys(codes))] for name, codes in (kinds | own).items()]
    return table(["call", "errors"], rows)


def taken() -> dict[str, Callable[[], str]]:
    """Return the regions for the parameters and body fields of each call; control messages have their own page."""
    made: dict[str, Callable[[], str]] = {}
    for route in _routes():
        call, name = route.call, f"{route.call.method} {route.call.path}"
        if call.parameters:
            made[f"parameters of {name}"] = functools.partial(_parameters, call)
        if isinstance(call.body, type):
            made[f"body of {name}"] = functools.partial(_body, call.body)
    return made


def _parameters(call: Call) -> str:
    rows = []
    for parameter in call.parameters:
        meaning, default = split_default(parameter.meaning, "none")
        rows.append([f"`{parameter.name}`", default, meaning])
    return table(["parameter", "default", "meaning"], rows)


def _body(model: type[BaseModel]) -> str:
    rows = []
    for name, text in _described(model).items():
        field = model.model_fields[name]
        rows.append([f"`{name}`", "required" if field.is_required() else shown(field.default), text])
    return table(["field", "default", "meaning"], rows)


def answer(model: type[BaseModel]) -> str:
    return table(["field", "meaning"], [[f"`{name}`", text] for name, text in _described(model).items()])


def _described(model: type[BaseModel]) -> dict[str, str]:
    texts = attribute_texts(model)
    if missing := [name for name in model.model_fields if name not in texts]:
        raise SystemExit(f"error: {model.__name__}.{missing[0]} has no text below it that says what it means")
    return {name: texts[name] for name in model.model_fields}


def _answer(route: CallRoute) -> str:
    model = route.call.answer
    small = not isinstance(model, str) and len(model.model_fields) <= _SMALL
    return f"{route.summary} `{_shape(model)}`" if small else route.summary


def _shape(kind: Any) -> str:
    """Describe a model by the names of its fields: `{"tables": [{"name", "rows"}]}`."""
    kind = plain(kind)
    if is_model(kind):
        sent = {name: field for name, field in kind.model_fields.items() if not field.exclude}
        named = {field.serialization_alias or name: _shape(field.annotation) for name, field in sent.items()}
        fields = ", ".join(f'"{name}": {inner}' if inner else f'"{name}"' for name, inner in named.items())
        return f"{{{fields}}}"
    if get_origin(kind) is list and (inner := _shape(get_args(kind)[0])):
        return f"[{inner}]"
    return ""
