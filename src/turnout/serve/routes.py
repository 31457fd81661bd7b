"""The HTTP calls: a function is declared a call by what it takes, what it answers, and which errors it can give.

The OpenAPI document of the server is made of these declarations; its names and summaries are the names and docstrings
of the functions. The WebSocket is not in it, because OpenAPI has no words for one: its messages are
`turnout_client.messages`. Nor are the parts of the page.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeVar

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import __version__
from turnout.errors import ERRORS
from turnout.plan.control import Action
from turnout.plan.control_parsing import body_of, message_schemas
from turnout.serve.requests import Parameter, check_parameters
from turnout.serve.responses import MEDIA_TYPES, AnswerFormat
from turnout.serve.schemas import Error
from turnout_client.control_fields import topic_field

Endpoint = Callable[[Request], Awaitable[Response]]
F = TypeVar("F", bound=Callable[..., Awaitable[Response]])

READING = ("store_unavailable", "query_timeout")
"""The errors of a call that reads the store."""

FILE = ("answer_too_large", "too_much_unread")
"""The errors of a call whose answer may be large."""

_EVERY_CALL = (
    *("bad_request", "foreign_host", "url_too_long", "headers_too_large", "internal_error"),
    *("too_many_requests", "too_many_connections"),
)
SCHEMAS = "#/components/schemas/"
_CONFIG_FILE = {"type": "object", "description": "turnout.yaml; its settings are in docs/reference/configuration.md"}
# What a call can answer that is not for everybody.
_CLOSED = ("unauthorized", "forbidden", "issuer_unreachable")
_WITH_BODY = ("request_timeout", "message_too_large", "unsupported_media_type")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as a decorator of its function.

    `answer` is a model, or a media type other than JSON; `accepted` is the model of a 202. `body` is a model, or the
    name of a schema of messages and files.
    """

    path: str
    answer: type[BaseModel] | str
    accepted: type[BaseModel] | None = None
    errors: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | str | None = None
    body_kind: str = "application/json"
    refused: type[BaseModel] | None = None
    """What errors about the body can have besides the error itself."""
    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    file_headers: tuple[str, ...] = ()
    """For a call that answers files, too: the numbers that these have as headers."""

    def __call__(self, function: F) -> F:
        setattr(function, "call", self)  # noqa: B010 - functions have no such attribute
        return function

    @property
    def answers(self) -> dict[int, type[BaseModel] | str]:
        """The answers by their status."""
        return {200: self.answer} | ({202: self.accepted} if self.accepted else {})

    @property
    def checked(self) -> bool:
        """Whether parameters are checked; the page and the probes take any, and ignore them."""
        return self.path.startswith("/api/") or self.path == "/metrics"

    @property
    def codes(self) -> tuple[str, ...]:
        """The errors of this call, and those that any call of its kind can give."""
        return (
            *(("unknown_parameter", "bad_parameter", "foreign_origin") if self.checked else ()),
            *(("forbidden",) if self.method != "GET" else ()),
            *(_WITH_BODY if self.body else ()),
            *self.errors,
            *_EVERY_CALL,
        )


class CallRoute(Route):
    """The route of a call; it refuses parameters that the call does not have."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.call: Call = getattr(endpoint, "call")  # noqa: B009
        first, *others = endpoint.__name__.split("_")
        self.operation = first + "".join(map(str.title, others))
        self.summary = inspect.getdoc(endpoint) or ""

        async def checked(request: Request) -> Response:
            if self.call.checked:
                check_parameters(request.query_params, self.call.parameters)
            return await endpoint(request)

        # A name at the end of a path may have a slash in it.
        super().__init__(re.sub(r"\{(\w+)\}$", r"{\1:path}", self.call.path), checked, methods=[self.call.method])


def routes_of(api: object) -> list[CallRoute]:
    """A route for each method that is declared as a call."""
    methods = [getattr(api, name) for name, value in vars(type(api)).items() if hasattr(value, "call")]
    return [CallRoute(method) for method in methods]


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
        {answer: {}} if isinstance(answer, str) else {MEDIA_TYPES[AnswerFormat.JSON]: _reference(answer)}
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
