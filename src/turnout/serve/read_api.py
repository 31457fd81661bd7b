"""The HTTP calls that read: tables, rows, status, history, topics, liveness, readiness; and the shape of every error.

All work on the store runs on threads (`reads.py`); the event loop only routes. The calls that change something are
`control_api.py`; starting and stopping is `app.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import IO, Any, Protocol, TypeVar

import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.config.settings import ServerSettings
from turnout.errors import TurnoutError
from turnout.plan.times import iso_text
from turnout.serve import metrics, routes
from turnout.serve.formats import Export, Format, to_json, window_file, window_json
from turnout.serve.held_bytes import Held, Hold
from turnout.serve.limits import Viewers, caller
from turnout.serve.reads import Reading, Reads, cancelled
from turnout.serve.routes import DEFAULT_ROWS, MAX_INT64, MAX_JSON_ROWS, Call, CallRoute
from turnout.serve.threads import Threads
from turnout.store.database import Database, Readable
from turnout.store.query.values import show
from turnout.store.query.where import MAX_SMALL_FILTER, parse_columns, parse_sort, parse_terms, weight
from turnout.store.query.windows import Window, list_tables, newest_record, read_window, store_faults
from turnout.swap.control_queue import Ticket
from turnout.swap.counters import Measures
from turnout.swap.health import Readiness

log = logging.getLogger(__name__)

_CHUNK_BYTES = 256 * 1024
_PROBES = 2
# Kafka may be slow to say that it is away; nobody else waits for that.
_TOPIC_READERS, _TOPICS_SECONDS = 2, 15.0

STOPPING = "turnout.stopping"
"""In the scope of a request: a function that says whether the server stops."""

TRUSTED = "turnout.trusted"
"""In the scope of a request for what everybody may see: whether who asks may see everything else, too."""


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
    limits: ServerSettings = field(default_factory=ServerSettings)
    sources: tuple[str, ...] = ()
    """Their names, for the fields that each source has."""
    views: tuple[str, ...] = ()
    """Those that have a join, for the same reason."""

    def status(self, store: Readable | None = None) -> dict[str, Any]:
        """The orchestrator's status, how fresh the tables are, and the time to hold that against."""
        with store_faults("read"):
            status = self.orchestrator.status()
            newest = newest_record(store or self.database)
            return {**status, "newestRecord": None if newest is None else iso_text(newest), "time": datetime.now(UTC)}


class Api:
    """The calls, bound to their services."""

    def __init__(self, services: Services, viewers: Viewers, reads: Reads, held: Held) -> None:
        self._services = services
        self._viewers = viewers
        self._database = services.database
        self._orchestrator = services.orchestrator
        self._reads = reads
        self._held = held
        limit = services.limits.max_download_megabytes_per_client
        self._downloads = Held(limit * 1_000_000, "server.max_download_megabytes_per_client")
        # Probes never wait for reads, nor for a Kafka that does not answer.
        self._probes, self._topic_readers = Threads(_PROBES, "probe"), Threads(_TOPIC_READERS, "topics")

    def routes(self) -> list[CallRoute]:
        return [
            CallRoute("/api/tables", self.tables, routes.TABLES),
            CallRoute("/api/tables/{name}/rows", self.rows, routes.ROWS),
            CallRoute("/api/status", self.status, routes.STATUS),
            CallRoute("/api/swaps", self.swaps, routes.SWAPS),
            CallRoute("/api/topics", self.topics, routes.TOPICS),
            CallRoute("/healthz", self.healthz, routes.HEALTHZ),
            CallRoute("/readyz", self.readyz, routes.READYZ),
            CallRoute("/metrics", self.metrics, routes.METRICS),
        ]

    async def tables(self, request: Request) -> Response:
        known_parameters(request.query_params)
        found = await self._read(request, list_tables)
        return json_response({"tables": [asdict(table) for table in found]})

    async def rows(self, request: Request) -> Response:
        export, window = window_of(request.path_params["name"], request.query_params)
        if export.kind is Format.JSON:
            return await self._json(request, window)
        hold = self._downloads.begin(caller(request.scope))
        try:
            file = await self._read(request, lambda store: window_file(store, window, export, hold), large=True)
        except BaseException:
            hold.release()
            raise
        return HeldResponse(file.content, hold, file.headers)

    async def swaps(self, request: Request) -> Response:
        known_parameters(request.query_params)
        return await self._json(request, Window("swaps", limit=MAX_JSON_ROWS))

    async def status(self, request: Request) -> Response:
        known_parameters(request.query_params)
        return json_response(await self._read(request, self._services.status))

    async def topics(self, request: Request) -> Response:
        """Names for a form to complete; Kafka's own topics are left out."""
        known_parameters(request.query_params)
        with anyio.move_on_after(_TOPICS_SECONDS):
            names = await self._topic_readers.run(self._orchestrator.topics)
            return json_response({"topics": sorted(name for name in names if not name.startswith("__"))})
        raise TurnoutError(
            code="kafka_unreachable",
            message=f"Kafka did not tell its topics within {_TOPICS_SECONDS:g} s",
            hint="check that the brokers run; `turnout check` says what is wrong",
            status=503,
        )

    async def healthz(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        found = await self._probes.run(self._orchestrator.readiness)
        # Whoever needs no token to ask is told no addresses, topics or errors.
        told = request.scope.get(TRUSTED, False)
        if not found.ready:
            short = routes.ERRORS[found.code].when
            message, hint = (found.reason, found.hint) if told else (short, "with a token, this call tells more")
            raise TurnoutError(code=found.code, message=message, hint=hint, status=503)
        return json_response({"status": "ready"} | ({"reason": found.reason} if told else {}))

    async def metrics(self, request: Request) -> Response:
        known_parameters(request.query_params)
        viewers, subscriptions = self._viewers.count, dict(self._viewers.subscriptions)
        body = await self._probes.run(
            lambda: metrics.scrape(self._database, self._orchestrator.measures(), viewers, subscriptions)
        )
        return Response(body, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})

    async def _json(self, request: Request, window: Window) -> Response:
        large = weight(window.where) > MAX_SMALL_FILTER
        body = await self._read(request, lambda store: window_json(read_window(store, window)), large=large)
        hold = self._held.begin(caller(request.scope))
        hold.grow_to(len(body))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return HeldResponse(BytesIO(body), hold, headers)

    async def _read(self, request: Request, work: Callable[[Reading], T], *, large: bool = False) -> T:
        """What `work` reads, for as long as the client waits for it."""
        reading = asyncio.ensure_future(self._reads.run([caller(request.scope)], work, large=large))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise cancelled()  # to nobody
            return reading.result()
        finally:
            reading.cancel()
            gone.cancel()


async def _gone(request: Request) -> None:
    """Until the client has gone: a read has no body that could come first."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class HeldResponse(Response):
    """An answer on its way in pieces, counted for its client until the last is taken, whatever becomes of it."""

    def __init__(self, content: IO[bytes], hold: Hold, headers: dict[str, str]) -> None:
        super().__init__(headers=headers | {"Cache-Control": "no-store"})
        self._content = content
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            more = True
            while more:
                chunk = await self._chunk()
                more = len(chunk) == _CHUNK_BYTES
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
        finally:
            self._content.close()
            self._hold.release()

    async def _chunk(self) -> bytes:
        if isinstance(self._content, BytesIO):
            return self._content.read(_CHUNK_BYTES)
        return await anyio.to_thread.run_sync(self._content.read, _CHUNK_BYTES)


def window_of(table: str, query: QueryParams) -> tuple[Export, Window]:
    """The window and the format that a query string asks for."""
    known_parameters(query, routes.ROWS)
    kind = _format(query.get("format", Format.JSON.value))
    limit = _whole(query, "limit", DEFAULT_ROWS if kind is Format.JSON else None)
    if kind is Format.JSON and limit is not None and limit > MAX_JSON_ROWS:
        raise TurnoutError(
            code="bad_parameter",
            message=f"limit: {limit} rows are too many for JSON",
            hint=f"at most {MAX_JSON_ROWS}; take more by format=csv, arrow or parquet, or by offset",
        )
    columns = parse_columns(query.getlist("columns")) if "columns" in query else ()
    guarded = _flag(query, "guard") and kind is Format.CSV
    return Export(kind, guarded), Window(
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


def _flag(query: QueryParams, name: str) -> bool:
    text = query.get(name, "false").lower()
    if text not in routes.FLAG:
        raise TurnoutError(
            code="bad_parameter", message=f"{name}: neither true nor false: {show(text)}", hint=f"such as {name}=true"
        )
    return routes.FLAG[text]


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
