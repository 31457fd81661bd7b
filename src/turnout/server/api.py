"""The HTTP calls that read: tables, rows, status, history, topics, liveness, readiness; and the shape of every error.

All work on the store runs on worker threads; the event loop only routes. The calls that change something are
`control_api.py`; starting and stopping is `app.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.desk import Ticket
from turnout.errors import TurnoutError
from turnout.health import Readiness
from turnout.measures import Measures
from turnout.server import calls, metrics
from turnout.server.calls import DEFAULT_ROWS, MAX_INT64, MAX_JSON_ROWS, Call, CallRoute
from turnout.server.formats import Format, WindowFile, to_json, window_file, window_json
from turnout.server.limits import Viewers
from turnout.store.database import Database
from turnout.store.values import show
from turnout.store.where import parse_columns, parse_sort, parse_terms
from turnout.store.windows import Window, list_tables, newest_record, read_window, store_faults
from turnout.times import iso_text

log = logging.getLogger(__name__)

_CHUNK_BYTES = 256 * 1024
# Whole-table files take long: they have threads of their own, so that small reads never wait for them.
_READERS, _FILE_WRITERS = 16, 2
# Kafka may be slow to say that it is away; nobody else waits for that.
_TOPIC_READERS, _TOPICS_SECONDS = 2, 15.0

STOPPING = "turnout.stopping"
"""In the scope of a request: a function that says whether the server stops."""


def content_security_policy(styles: str) -> str:
    """What the page may load: only what is its own server's. The grid has its small images in its styles, as data."""
    return (
        f"default-src 'self'; style-src {styles}; img-src 'self' data:; font-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": content_security_policy("'self'"),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Pages of server.allowed_origins read by CORS, which this does not concern.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

T = TypeVar("T")


class ControlDesk(Protocol):
    """Where control messages go in."""

    def submit(self, raw: bytes | str, requester: str) -> Ticket:
        """Take a message; its answer comes on the ticket. May block for a write to the store."""


class Orchestrator(Protocol):
    """What the server asks of the orchestrator; all calls may block."""

    @property
    def desk(self) -> ControlDesk: ...

    def status(self) -> dict[str, Any]:
        """The status row, with progress and lag."""

    def readiness(self) -> Readiness:
        """Whether viewers can be sent here, and why or why not."""

    def measures(self) -> Measures:
        """What is counted, and the state as it is known."""

    def topics(self) -> list[str]:
        """The names of all topics; TurnoutError when Kafka is away."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the calls work on."""

    database: Database
    orchestrator: Orchestrator
    control_wait_seconds: float = 660.0
    """How long a request waits for its outcome: as long as a build may take, and some more."""
    max_viewers: int = 500
    sources: tuple[str, ...] = ()
    """Their names, for the fields that each source has."""
    views: tuple[str, ...] = ()
    """Those that have a join, for the same reason."""

    def status(self) -> dict[str, Any]:
        """The orchestrator's status, how fresh the tables are, and the time to hold that against."""
        with store_faults("read"):
            status = self.orchestrator.status()
            newest = newest_record(self.database)
            return {**status, "newestRecord": None if newest is None else iso_text(newest), "time": datetime.now(UTC)}


class Api:
    """The calls, bound to their services."""

    def __init__(self, services: Services, viewers: Viewers) -> None:
        self._services = services
        self._viewers = viewers
        self._database = services.database
        self._orchestrator = services.orchestrator
        self._readers = CapacityLimiter(_READERS)
        self._file_writers = CapacityLimiter(_FILE_WRITERS)
        self._topic_readers = CapacityLimiter(_TOPIC_READERS)

    def routes(self) -> list[CallRoute]:
        return [
            CallRoute("/api/tables", self.tables, calls.TABLES),
            CallRoute("/api/tables/{name}/rows", self.rows, calls.ROWS),
            CallRoute("/api/status", self.status, calls.STATUS),
            CallRoute("/api/swaps", self.swaps, calls.SWAPS),
            CallRoute("/api/topics", self.topics, calls.TOPICS),
            CallRoute("/healthz", self.healthz, calls.HEALTHZ),
            CallRoute("/readyz", self.readyz, calls.READYZ),
            CallRoute("/metrics", self.metrics, calls.METRICS),
        ]

    async def tables(self, request: Request) -> Response:
        known_parameters(request.query_params)
        found = await self._read(lambda: list_tables(self._database))
        return json_response({"tables": [asdict(table) for table in found]})

    async def rows(self, request: Request) -> Response:
        kind, window = window_of(request.path_params["name"], request.query_params)
        if kind is Format.JSON:
            return await self._json(window)
        file = await self._in_thread(lambda: window_file(self._database, window, kind), self._file_writers)
        return FileStream(file)

    async def swaps(self, request: Request) -> Response:
        known_parameters(request.query_params)
        return await self._json(Window("swaps", limit=MAX_JSON_ROWS))

    async def status(self, request: Request) -> Response:
        known_parameters(request.query_params)
        return json_response(await self._read(self._services.status))

    async def topics(self, request: Request) -> Response:
        """Names for a form to complete; Kafka's own topics are left out."""
        known_parameters(request.query_params)
        with anyio.move_on_after(_TOPICS_SECONDS):
            names = await self._in_thread(self._orchestrator.topics, self._topic_readers)
            return json_response({"topics": sorted(name for name in names if not name.startswith("__"))})
        raise TurnoutError(
            code="kafka_unreachable",
            message=f"Kafka did not tell its topics within {_TOPICS_SECONDS:g} s",
            hint="check that the brokers run; `turnout check` says what is wrong",
            status=503,
        )

    async def healthz(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        found = await self._read(self._orchestrator.readiness)
        if not found.ready:
            raise TurnoutError(code=found.code, message=found.reason, hint=found.hint, status=503)
        return json_response({"status": "ready", "reason": found.reason})

    async def metrics(self, request: Request) -> Response:
        known_parameters(request.query_params)
        viewers, subscriptions = self._viewers.count, dict(self._viewers.subscriptions)
        body = await self._read(
            lambda: metrics.scrape(self._database, self._orchestrator.measures(), viewers, subscriptions)
        )
        return Response(body, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})

    async def _json(self, window: Window) -> Response:
        body = await self._read(lambda: window_json(read_window(self._database, window)))
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _read(self, work: Callable[[], T]) -> T:
        return await self._in_thread(work, self._readers)

    async def _in_thread(self, work: Callable[[], T], limiter: CapacityLimiter) -> T:
        # Abandoned on cancel: a stopping server does not wait for a query that nobody waits for.
        return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)


class FileStream(StreamingResponse):
    """A finished file on its way, closed whatever becomes of the client."""

    def __init__(self, file: WindowFile) -> None:
        super().__init__(self._chunks(), headers=file.headers | {"Cache-Control": "no-store"})
        self._content = file.content

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await anyio.to_thread.run_sync(self._content.read, _CHUNK_BYTES):
            yield chunk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._content.close()


def window_of(table: str, query: QueryParams) -> tuple[Format, Window]:
    """The window and the format that a query string asks for."""
    known_parameters(query, calls.ROWS)
    kind = _format(query.get("format", Format.JSON.value))
    limit = _whole(query, "limit", DEFAULT_ROWS if kind is Format.JSON else None)
    if kind is Format.JSON and limit is not None and limit > MAX_JSON_ROWS:
        raise TurnoutError(
            code="bad_parameter",
            message=f"limit: {limit} rows are too many for JSON",
            hint=f"at most {MAX_JSON_ROWS}; take more by format=csv, arrow or parquet, or by offset",
        )
    columns = parse_columns(query.getlist("columns")) if "columns" in query else ()
    return kind, Window(
        table,
        columns=columns or None,
        where=parse_terms(query.getlist("where")),
        sort=parse_sort(query.getlist("sort")),
        offset=_whole(query, "offset", 0) or 0,
        limit=limit,
    )


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    all_headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(to_json(value), status, media_type="application/json", headers=all_headers)


def on_turnout_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnoutError)
    return json_response(error.as_json(), error.status)


def on_http_error(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    # A WebSocket has no method.
    path, method = show(request.url.path), request.scope.get("method", "a WebSocket")
    known = {
        404: ("not_found", f"nothing is at {path}", "GET /api/tables lists the tables; the page is at /"),
        405: ("method_not_allowed", f"{method} does not work on {path}", "the Allow header has what does"),
    }
    code, message, hint = known.get(error.status_code, ("bad_request", error.detail, ""))
    shaped = TurnoutError(code=code, message=message, hint=hint, status=error.status_code)
    return json_response(shaped.as_json(), error.status_code, dict(error.headers or {}))


def on_any_error(request: Request, error: Exception) -> Response:
    """A fault of ours: logged in full, told without internals."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    shaped = TurnoutError(
        code="internal_error",
        message="the server failed on this request",
        hint="its log has the details",
        status=500,
    )
    return json_response(shaped.as_json(), 500)


def known_parameters(query: QueryParams, call: Call | None = None) -> None:
    """Refuse what the call does not know, or was given twice; without a call, any parameter."""
    known = {parameter.name: parameter for parameter in call.parameters} if call else {}
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            hint = f"parameters: {', '.join(known)}" if known else "this call takes no parameters"
            raise TurnoutError(code="unknown_parameter", message=f"unknown parameter {show(name)}", hint=hint)
        if names.count(name) > 1 and not known[name].repeatable:
            raise TurnoutError(
                code="bad_parameter", message=f"{name}: given {names.count(name)} times", hint="give it once"
            )


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError as error:
        hint = f"formats: {', '.join(Format)}"
        raise TurnoutError(code="bad_parameter", message=f"format: unknown {show(text)}", hint=hint) from error


def _whole(query: QueryParams, name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise TurnoutError(
            code="bad_parameter",
            message=f"{name}: not a whole number from 0: {show(text)}",
            hint=f"such as {name}=100",
        )
    return int(text)
