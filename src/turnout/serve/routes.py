"""The HTTP calls: what each takes, what it answers, and which errors it can give, in the words of OpenAPI.

A call refuses the parameters that are not in its description. `openapi.py` makes the document of these; what the calls
do is in `read_api.py` and `control_api.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.serve import metrics, schemas
from turnout.serve.formats import MEDIA_TYPES, Format
from turnout.serve.parameters import DEFAULT_ROWS, FLAGS, MAX_INT64, MAX_JSON_ROWS, check_parameters

SCHEMAS = "#/components/schemas/"

Described = Mapping[str, Any]
"""A part of the OpenAPI document."""


class ErrorCode(NamedTuple):
    status: int
    when: str


ERRORS: Mapping[str, ErrorCode] = {
    "bad_where": ErrorCode(400, "a term, column or value of `where` is wrong"),
    "bad_sort": ErrorCode(400, "a column of `sort` is wrong"),
    "bad_columns": ErrorCode(400, "a column of `columns` is wrong"),
    "bad_parameter": ErrorCode(400, "a value of a parameter is wrong"),
    "unknown_parameter": ErrorCode(400, "a parameter is not known"),
    "answer_too_large": ErrorCode(400, "the rows have more bytes than an answer may"),
    "bad_request": ErrorCode(400, "this is no HTTP request"),
    "bad_view": ErrorCode(400, "the SQL of a view cannot be used"),
    "unauthorized": ErrorCode(401, "no token, or one that is not known"),
    "forbidden": ErrorCode(403, "a viewer's token where an operator's is needed"),
    "foreign_origin": ErrorCode(403, "a page of another site sent the request"),
    "foreign_host": ErrorCode(403, "the request came over loopback under a name that is not this machine's"),
    "unknown_table": ErrorCode(404, "no table of that name, or its generation is gone"),
    "not_found": ErrorCode(404, "the path is wrong"),
    "request_timeout": ErrorCode(408, "the body took too long"),
    "generation_conflict": ErrorCode(409, "`expectedGeneration` is not the published generation"),
    "message_too_large": ErrorCode(413, "a control message that is too large"),
    "url_too_long": ErrorCode(414, "an address that is too long"),
    "unsupported_media_type": ErrorCode(415, "a control message that is not sent as JSON"),
    "bad_control": ErrorCode(422, "a control message that is wrong"),
    "unknown_topic": ErrorCode(422, "a topic that does not exist"),
    "not_authorized": ErrorCode(422, "a topic that may not be read"),
    "bad_sample": ErrorCode(422, "the newest records of a topic do not fit its source"),
    "nothing_to_roll_back": ErrorCode(422, "there is no previous plan"),
    "too_many_requests": ErrorCode(429, "this client asks too often; `Retry-After` has the seconds to wait"),
    "too_much_unread": ErrorCode(429, "this client has not read what it asked for before"),
    "headers_too_large": ErrorCode(431, "headers that are too large"),
    "internal_error": ErrorCode(500, "a fault of the server; its log has the details"),
    "bad_config": ErrorCode(500, "the Kafka client does not take its settings"),
    "build_failed": ErrorCode(502, "the swap failed; the published generation goes on"),
    "kafka_unreachable": ErrorCode(503, "Kafka is away"),
    "registry_unreachable": ErrorCode(503, "the schema registry is away"),
    "registry_refused": ErrorCode(503, "the schema registry refuses what was asked"),
    "closed": ErrorCode(503, "Turnout is stopping"),
    "starting": ErrorCode(503, "the server has just started"),
    "building": ErrorCode(503, "no generation is published yet"),
    "spark_gone": ErrorCode(503, "Spark ended and is started again"),
    "not_reading": ErrorCode(503, "the topics cannot be read"),
    "control_not_read": ErrorCode(503, "control messages do not come or cannot be kept"),
    "failing": ErrorCode(503, "a step of the orchestrator fails"),
    "page_not_built": ErrorCode(503, "a source tree without `make setup`"),
    "too_many_connections": ErrorCode(503, "all connections are taken"),
    "store_unavailable": ErrorCode(503, "the store's disk is full or failing, or the store is closing"),
    "query_timeout": ErrorCode(503, "the read took longer than `server.query_timeout_seconds` and was ended"),
    "build_timeout": ErrorCode(504, "the swap did not catch up in time; the published generation goes on"),
}

_EVERY_CALL = ("bad_request", "foreign_host", "url_too_long", "headers_too_large", "internal_error")
_READING = ("unknown_parameter", "bad_parameter", "store_unavailable", "query_timeout", "foreign_origin")
_STEERING = (
    *("unknown_parameter", "bad_parameter", "forbidden", "foreign_origin", "request_timeout", "generation_conflict"),
    *("message_too_large", "unsupported_media_type", "bad_control", "unknown_topic", "not_authorized", "bad_sample"),
    *("nothing_to_roll_back", "build_failed", "build_timeout", "kafka_unreachable", "spark_gone", "store_unavailable"),
    *("bad_view", "registry_unreachable", "registry_refused", "bad_config", "closed"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `name` is its name in programs that are made from the document."""

    path: str
    name: str
    meaning: str
    answers: Mapping[int, Described]
    errors: tuple[str, ...] = ()
    parameters: tuple[Described, ...] = ()
    body: Literal["ControlMessage", "RollbackMessage"] | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        """The errors of this call, and those that any call can give."""
        return (*self.errors, *_EVERY_CALL, "too_many_requests", "too_many_connections")

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


class CallRoute(Route):
    """A route with the description of its call; parameters that the call does not have are refused."""

    def __init__(self, call: Call, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        async def checked(request: Request) -> Response:
            if "unknown_parameter" in call.errors:
                check_parameters(request.query_params, call.parameters)
            return await endpoint(request)

        super().__init__(call.path, checked, methods=[call.method])
        self.call = call


def reference(shape: str) -> dict[str, Any]:
    return {"schema": {"$ref": SCHEMAS + shape}}


def _json(meaning: str, shape: type[BaseModel]) -> Described:
    return {"description": meaning, "content": {"application/json": reference(shape.__name__)}}


def _parameter(name: str, schema: Described, meaning: str) -> Described:
    return {"name": name, "in": "query", "description": meaning, "schema": schema}


def _file_header(name: str) -> Described:
    return {"description": f"{name} of a file", "schema": {"type": "integer"}}


_WHOLE = {"type": "integer", "minimum": 0, "maximum": MAX_INT64}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_FLAG = {"type": "string", "enum": list(FLAGS)}
_FORMAT = {"type": "string", "enum": list(Format), "default": Format.JSON}
_STEERED = {
    200: _json("the outcome", schemas.Decided),
    202: _json("the message is taken, and has no outcome yet: do not send it again", schemas.Taken),
}
_WAITING = (_parameter("wait", _FLAG, "false: answer as soon as the message is kept"),)

PAGE = Call(
    "/", "page", "The page.", {200: {"description": "the page", "content": {"text/html": {}}}}, ("page_not_built",)
)
TABLES = Call("/api/tables", "listTables", "Every table.", {200: _json("the tables", schemas.Tables)}, _READING)
ROWS = Call(
    "/api/tables/{name}/rows",
    "readRows",
    "A window of one table, of one moment. `name` is a table, or NAME@7 for generation 7 while it lives.",
    {
        200: {
            "description": "the rows, or the file",
            "content": {kind: reference("Rows") if name is Format.JSON else {} for name, kind in MEDIA_TYPES.items()},
            "headers": {f"X-Turnout-{name.title()}": _file_header(name) for name in ("generation", "version", "total")},
        }
    },
    (
        *(*_READING, "bad_where", "bad_sort", "bad_columns", "unknown_table", "not_found"),
        *("answer_too_large", "too_much_unread"),
    ),
    (
        _parameter("offset", _WHOLE, "rows to skip"),
        _parameter(
            "limit", _WHOLE, f"rows to answer; for JSON {DEFAULT_ROWS} unless given, and at most {MAX_JSON_ROWS}"
        ),
        _parameter("sort", _TEXTS, "columns, with `-` in front for descending, separated by commas"),
        _parameter("where", _TEXTS, "terms `column operator value` that must all hold, separated by commas"),
        _parameter("columns", _TEXTS, "columns to answer, in this order, separated by commas"),
        _parameter("format", _FORMAT, "what to answer"),
        _parameter("guard", _FLAG, "CSV: true puts ' before texts like formulas"),
    ),
)
STATUS = Call(
    "/api/status", "readStatus", "The status row, and more.", {200: _json("the status", schemas.Status)}, _READING
)
SWAPS = Call("/api/swaps", "listSwaps", "The history, oldest first.", {200: _json("the swaps", schemas.Rows)}, _READING)
TOPICS = Call(
    "/api/topics",
    "listTopics",
    "The names of topics, without Kafka's own.",
    {200: _json("the names", schemas.Topics)},
    (*_READING, "kafka_unreachable", "bad_config", "closed"),
)
CONTROL = Call(
    "/api/control", "control", "Send a control message.", _STEERED, _STEERING, _WAITING, body="ControlMessage"
)
ROLLBACK = Call(
    "/api/rollback", "rollback", "Go back to the previous plan.", _STEERED, _STEERING, _WAITING, body="RollbackMessage"
)
HEALTHZ = Call("/healthz", "isAlive", "Whether the process answers.", {200: _json("it does", schemas.Alive)})
READYZ = Call(
    "/readyz",
    "isReady",
    "Whether viewers can be sent here.",
    {200: _json("they can", schemas.Ready)},
    (
        *("starting", "building", "spark_gone", "not_reading", "control_not_read", "failing"),
        *("kafka_unreachable", "store_unavailable"),
    ),
)
METRICS = Call(
    "/metrics",
    "metrics",
    "What is measured, for Prometheus.",
    {200: {"description": "the metrics", "content": {metrics.CONTENT_TYPE: {}}}},
    _READING,
)
OPENAPI = Call(
    "/api/openapi.json",
    "describe",
    "This document.",
    {200: {"description": "the document", "content": {"application/json": {}}}},
    ("unknown_parameter", "bad_parameter"),
)
