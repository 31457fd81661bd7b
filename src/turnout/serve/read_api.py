"""The HTTP calls that read: tables, rows, status, history, topics, liveness, readiness.

All work on the store runs on threads (`reads.py`); the event loop only routes. The calls that change something are
`control_api.py`; starting and stopping is `app.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, Protocol, TypeVar

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from turnout.config.settings import ServerSettings
from turnout.errors import TurnoutError
from turnout.plan.times import iso_text
from turnout.serve import metrics, routes
from turnout.serve.formats import Format, window_file, window_json
from turnout.serve.limits import HeldBytes, Viewers, caller
from turnout.serve.parameters import MAX_JSON_ROWS, window_of
from turnout.serve.reads import Reading, Reads, cancelled
from turnout.serve.responses import HeldResponse, json_response
from turnout.serve.routes import CallRoute
from turnout.serve.threads import Threads
from turnout.store.database import Database, Readable
from turnout.store.query.where import MAX_SMALL_FILTER, weight
from turnout.store.query.windows import Window, list_tables, newest_record, read_window, store_faults
from turnout.swap.control_queue import QueuedMessage
from turnout.swap.health import Readiness
from turnout.swap.metrics import Metrics

_PROBES = 2
# Kafka may be slow to say that it is away; nobody else waits for that.
_TOPIC_READERS, _TOPICS_SECONDS = 2, 15.0

STOPPING = "turnout.stopping"
"""In the scope of a request: a function that says whether the server stops."""

TRUSTED = "turnout.trusted"
"""In the scope of a request for a public path: whether its sender may see everything else, too."""


T = TypeVar("T")


class MessageQueue(Protocol):
    """Where control messages go in."""

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        """Take a message, whose answer can be waited for. May block for a write to the store."""


class Orchestrator(Protocol):
    """What the server asks of the orchestrator; all calls may block."""

    @property
    def queue(self) -> MessageQueue: ...

    def status(self) -> dict[str, Any]:
        """The status row, with progress and lag."""

    def readiness(self) -> Readiness:
        """Whether viewers can be sent here, and why or why not."""

    def metrics(self) -> Metrics:
        """The counters, and the state as it is known."""

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

    def __init__(self, services: Services, viewers: Viewers, reads: Reads, held: HeldBytes) -> None:
        self._services = services
        self._viewers = viewers
        self._reads = reads
        self._held = held
        limit = services.limits.max_download_megabytes_per_client
        self._downloads = HeldBytes(limit * 1_000_000, "server.max_download_megabytes_per_client")
        # Probes never wait for reads, nor for a Kafka that does not answer.
        self._probes, self._topic_readers = Threads(_PROBES, "probe"), Threads(_TOPIC_READERS, "topics")

    def routes(self) -> list[CallRoute]:
        return [
            CallRoute(routes.TABLES, self.tables),
            CallRoute(routes.ROWS, self.rows),
            CallRoute(routes.STATUS, self.status),
            CallRoute(routes.SWAPS, self.swaps),
            CallRoute(routes.TOPICS, self.topics),
            CallRoute(routes.HEALTHZ, self.healthz),
            CallRoute(routes.READYZ, self.readyz),
            CallRoute(routes.METRICS, self.metrics),
        ]

    async def tables(self, request: Request) -> Response:
        found = await self._read(request, list_tables)
        return json_response({"tables": found})

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
        return await self._json(request, Window("swaps", limit=MAX_JSON_ROWS))

    async def status(self, request: Request) -> Response:
        return json_response(await self._read(request, self._services.status))

    async def topics(self, request: Request) -> Response:
        """Names for a form to complete; Kafka's own topics are left out."""
        with anyio.move_on_after(_TOPICS_SECONDS):
            names = await self._topic_readers.run(self._services.orchestrator.topics)
            return json_response({"topics": sorted(name for name in names if not name.startswith("__"))})
        raise TurnoutError(
            code="kafka_unreachable",
            message=f"Kafka did not list its topics within {_TOPICS_SECONDS:g} s",
            hint="check that the brokers run; `turnout check` says what is wrong",
            status=503,
        )

    async def healthz(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        found = await self._probes.run(self._services.orchestrator.readiness)
        # A sender without a token gets no addresses, topics or errors.
        trusted = request.scope.get(TRUSTED, False)
        if not found.ready:
            short = routes.ERRORS[found.code].when
            message, hint = (found.reason, found.hint) if trusted else (short, "with a token, this call tells more")
            raise TurnoutError(code=found.code, message=message, hint=hint, status=503)
        return json_response({"status": "ready"} | ({"reason": found.reason} if trusted else {}))

    async def metrics(self, request: Request) -> Response:
        viewers, subscriptions = self._viewers.count, dict(self._viewers.subscriptions)
        body = await self._probes.run(
            lambda: metrics.scrape(
                self._services.database, self._services.orchestrator.metrics(), viewers, subscriptions
            )
        )
        return Response(body, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})

    async def _json(self, request: Request, window: Window) -> Response:
        large = weight(window.where) > MAX_SMALL_FILTER

        def read(store: Reading) -> bytes:
            found = self._reads.kept.find(store, window)
            return window_json(found.result if found else read_window(store, window))

        body = await self._read(request, read, large=large)
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
