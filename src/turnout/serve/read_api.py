"""The HTTP calls that ask the store: tables, rows, summaries, differences, SELECTs, status, history, saved views.

And those of liveness and readiness. Threads do all work on the store (`reads.py`), which ends when the client goes; the
event loop only routes. What a SELECT may name is `store/query/sql.py`, who may send one is `access.py`. Saved views are
read by everybody who may look, kept and removed by operators.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
import pyarrow as pa
from anyio import CapacityLimiter
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from turnout.config import Settings
from turnout.errors import ERRORS, TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.where import MAX_SMALL_FILTER, weight
from turnout.serve import metrics, responses, schemas
from turnout.serve.access import IDENTITY
from turnout.serve.limits import Hold, Viewers
from turnout.serve.reads import Reads, StoreRead
from turnout.serve.requests import (
    MAX_JSON_ROWS,
    OF_DIFFERENCES,
    OF_SUMMARIES,
    OF_WINDOWS,
    checked_body,
    difference_of,
    read_body,
    summary_of,
    window_of,
)
from turnout.serve.responses import (
    AnswerFormat,
    Answers,
    Export,
    HeldResponse,
    encoded_json,
    json_response,
    result_json,
    table_file,
)
from turnout.serve.rounds import Threads
from turnout.serve.routes import FILE, READING, Call
from turnout.store.database import Database, Readable
from turnout.store.query.difference import DifferenceQuestion, open_difference, read_difference
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import SummaryResult, read_summary
from turnout.store.query.windows import (
    Window,
    WindowResult,
    list_tables,
    open_snapshot,
    open_window,
    read_window,
    store_faults,
)
from turnout.store.saved_views import list_saved, read_view, remove_view, save_view
from turnout.swap.health import Subject
from turnout.swap.orchestrator import Orchestrator
from turnout_client.iso_times import iso_text
from turnout_client.messages import TableDifference

_PROBES = 2

STOPPING = "turnout.stopping"
"""In the scope of a request: a function that says whether the server stops."""

MAX_BODY_BYTES = 512 * 1024
_OF_A_TABLE = (*READING, *FILE, "bad_where", "bad_sort", "unknown_table", "not_found")
_EXAMPLE = '{"sql": "select accountType, count(*) from final_ui group by all"}'
_SMALLER = "write a shorter SELECT"
MAX_VIEW_BYTES = 16 * 1024
MAX_NAME = 64
_SAVED_EXAMPLE = '{"table": "final_ui", "where": "age>=30", "sort": "-balance"}'
_SAVE_LESS = "save fewer terms, or a simpler chart"


@dataclass(frozen=True, slots=True)
class Services:
    """What the server is given."""

    database: Database
    orchestrator: Orchestrator
    """All calls to it may block."""

    @property
    def settings(self) -> Settings:
        """The settings in force. A request under way may see others after an apply."""
        return self.orchestrator.configuration.settings

    def status(self, store: Readable | None = None) -> dict[str, Any]:
        """The orchestrator's status, the time of the newest record, and the time now."""
        with store_faults("read"):
            status = self.orchestrator.status()
            with open_snapshot(store or self.database) as snapshot:
                newest = snapshot.newest_record()
            return {**status, "newestRecord": None if newest is None else iso_text(newest), "time": datetime.now(UTC)}


@dataclass(frozen=True, slots=True)
class Api:
    """The calls, bound to their services."""

    _services: Services
    _viewers: Viewers
    _reads: Reads
    _answers: Answers
    _check_sql: Callable[[Scope], None]
    """Refuses who may not send SQL."""
    _writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    # Probes never wait for reads.
    _probes: Threads = field(default_factory=lambda: Threads(_PROBES, "probe"))

    @Call("/api/tables", schemas.Tables, errors=READING)
    async def list_tables(self, request: Request) -> Response:
        """All tables, with their columns."""
        found = await self._answers.read(request, list_tables)
        return json_response({"tables": found})

    @Call(
        "/api/tables/{name}/rows",
        schemas.RowsAnswer,
        errors=(*_OF_A_TABLE, "bad_columns"),
        parameters=OF_WINDOWS,
        file_headers=("generation", "version", "total"),
    )
    async def read_rows(self, request: Request) -> Response:
        """A window of one table, of one moment. `name` is a table, or `NAME@7` for generation 7 while it lives."""
        export, window = window_of(request.path_params["name"], request.query_params)
        if export.format is AnswerFormat.JSON:
            return await self._json(request, window)
        return await self._answers.file(request, lambda store, hold: _window_file(store, window, export, hold))

    @Call("/api/swaps", schemas.RowsAnswer, errors=READING)
    async def list_swaps(self, request: Request) -> Response:
        """The history of swaps, oldest first, in the same shape as rows."""
        return await self._json(request, Window("swaps", limit=MAX_JSON_ROWS))

    @Call("/api/status", schemas.Status, errors=READING)
    async def read_status(self, request: Request) -> Response:
        """The status row, with progress, lag and other details of now."""
        return json_response(await self._answers.read(request, self._services.status))

    @Call("/healthz", schemas.Alive)
    async def is_alive(self, _: Request) -> Response:
        """200 while the process answers."""
        return json_response({"status": "ok"})

    @Call("/readyz", schemas.Ready, errors=("building", *(subject.value[0] for subject in Subject)))
    async def is_ready(self, request: Request) -> Response:
        """200 when the server is ready for viewers, else 503; with the reason where the sender may read."""
        found = await self._probes.run(self._services.orchestrator.readiness)
        # A sender without a token gets no addresses, topics or errors.
        trusted = IDENTITY in request.scope
        if not found.ready:
            short = ERRORS[found.code].when
            message, hint = (found.reason, found.hint) if trusted else (short, "with a token, this call says more")
            raise TurnoutError(found.code, message, hint, status=503)
        return json_response({"status": "ready"} | ({"reason": found.reason} if trusted else {}))

    @Call("/metrics", metrics.CONTENT_TYPE, errors=READING)
    async def metrics(self, _: Request) -> Response:
        """All metrics, for Prometheus; see docs/reference/metrics.md."""
        viewers, subscriptions = self._viewers.count, self._viewers.subscriptions
        database, orchestrator = self._services.database, self._services.orchestrator
        body = await self._probes.run(
            lambda: generate_latest(metrics.Scrape(database, orchestrator.metrics(), viewers, subscriptions))
        )
        return Response(body, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})

    @Call(
        "/api/tables/{name}/summary",
        schemas.Groups,
        errors=(*_OF_A_TABLE, "bad_by", "bad_values", "too_many_groups"),
        parameters=OF_SUMMARIES,
        file_headers=("generation", "version", "total"),
    )
    async def read_summary(self, request: Request) -> Response:
        """Groups of a table's rows, and counts, sums, averages and percentiles of each, of one moment."""
        export, summary = summary_of(request.path_params["name"], request.query_params)
        if export.format is not AnswerFormat.JSON:
            return await self._answers.file(request, lambda store, hold: _summary_file(store, summary, export, hold))
        return await self._answers.json(
            request, lambda store: result_json(read_summary(store, summary)), large=summary.costly
        )

    @Call(
        "/api/tables/{name}/difference",
        TableDifference,
        errors=(*_OF_A_TABLE, "no_candidate", "unknown_generation"),
        parameters=OF_DIFFERENCES,
        file_headers=("from-generation", "from-version", "to-generation", "to-version", "total"),
    )
    async def read_difference(self, request: Request) -> Response:
        """What differs in a table between two living generations, of one moment."""
        export, asked = difference_of(request.path_params["name"], request.query_params)
        if export.format is not AnswerFormat.JSON:
            return await self._answers.file(request, lambda store, hold: _difference_file(store, asked, export, hold))

        def read(store: StoreRead) -> bytes:
            found = read_difference(store, asked)
            return responses.difference_json(found.table, found.positions, found.lags, responses.difference_body(found))

        return await self._answers.json(request, read, large=True)

    @Call(
        "/api/sql",
        schemas.SqlAnswer,
        errors=(*READING, *FILE, "bad_body", "sql_refused"),
        body=schemas.SqlQuestion,
        method="POST",
        file_headers=("generation", "total", "complete"),
    )
    async def sql(self, request: Request) -> Response:
        """The rows of one SELECT of your own over published tables, of one moment."""
        self._check_sql(request.scope)
        body = await read_body(request, MAX_BODY_BYTES, _SMALLER)
        asked = checked_body(body, schemas.SqlQuestion, _EXAMPLE)
        memory = self._services.settings.server.sql_memory_limit

        def read(store: StoreRead) -> SqlResult:
            return read_sql(store, asked.sql, asked.limit, memory)

        if asked.format is AnswerFormat.JSON:
            return await self._answers.json(request, lambda store: _sql_json(read(store)), large=True, sliced=True)
        export = Export(asked.format, asked.guard and asked.format is AnswerFormat.CSV)
        return await self._answers.file(request, lambda store, hold: _sql_file(store, read(store), export, hold))

    @Call("/api/saved", schemas.SavedViews, errors=READING)
    async def list_saved(self, request: Request) -> Response:
        """The views that operators have saved."""
        found = await self._answers.read(request, list_saved)
        body = responses.json_object({}, saved=b"[%s]" % b",".join(_named(name, view) for name, view in found.items()))
        return encoded_json(body)

    @Call("/api/saved/{name}", schemas.SavedView, errors=(*READING, "not_found", "unknown_saved"))
    async def read_saved(self, request: Request) -> Response:
        """One of the views that operators have saved."""
        name = _name(request)
        view = await self._answers.read(request, lambda store: read_view(store, name))
        return encoded_json(_named(name, view))

    @Call(
        "/api/saved/{name}",
        schemas.SavedView,
        errors=("store_unavailable", "not_found", "bad_body", "too_many_saved"),
        body=schemas.SavedBody,
        method="PUT",
    )
    async def save(self, request: Request) -> Response:
        """Save a view under a name, in place of one that has it; answers it as it is listed."""
        name = _name(request)
        body = await read_body(request, MAX_VIEW_BYTES, _SAVE_LESS)
        # Written by the type itself: a value to compare with may be a number of any size.
        given = checked_body(body, schemas.SavedBody, _SAVED_EXAMPLE)
        view = given.model_dump_json(exclude=None if given.sql else {"sql"})
        await anyio.to_thread.run_sync(save_view, self._services.database, name, view, limiter=self._writers)
        return encoded_json(_named(name, view))

    @Call(
        "/api/saved/{name}",
        schemas.Removed,
        errors=("store_unavailable", "not_found", "unknown_saved"),
        method="DELETE",
    )
    async def unsave(self, request: Request) -> Response:
        """Remove a view."""
        name = _name(request)
        await anyio.to_thread.run_sync(remove_view, self._services.database, name, limiter=self._writers)
        return json_response({"name": name})

    async def _json(self, request: Request, window: Window) -> Response:
        large = weight(window.where) > MAX_SMALL_FILTER

        def read(store: StoreRead) -> bytes:
            found = self._reads.kept.find(store, window)
            return result_json(found.result if found else read_window(store, window))

        return await self._answers.json(request, read, large=large)


def _sql_json(result: SqlResult) -> bytes:
    fields = {**responses.sql_fields(result), "tables": list(result.positions)}
    return responses.json_object(fields, rows=responses.to_form("JSON", result.rows, responses.json_rows))


def _window_file(store: StoreRead, window: Window, export: Export, hold: Hold) -> HeldResponse:
    with open_window(store, window) as found:
        return table_file(store, found.rows, window.table, _numbers(found), export, hold)


def _summary_file(store: StoreRead, summary: Summary, export: Export, hold: Hold) -> HeldResponse:
    found = read_summary(store, summary)
    return table_file(store, found.groups.to_reader(), f"{summary.table}-summary", _numbers(found), export, hold)


def _numbers(found: WindowResult | SummaryResult) -> dict[str, int]:
    return {"Generation": found.position.generation, "Version": found.position.version, "Total": found.total}


def _difference_file(store: StoreRead, asked: DifferenceQuestion, export: Export, hold: Hold) -> HeldResponse:
    with open_difference(store, asked) as found:
        sides = zip(("From", "To"), found.positions, strict=True)
        numbers = {f"{side}-{name.title()}": number for side, at in sides for name, number in at.as_json().items()}
        rows, name = found.rows, f"{asked.window.table}-difference"
        assert isinstance(rows, pa.RecordBatchReader)
        return table_file(store, rows, name, {**numbers, "Total": found.total}, export, hold)


def _sql_file(store: StoreRead, found: SqlResult, export: Export, hold: Hold) -> HeldResponse:
    numbers = {"Generation": found.generation, "Total": found.rows.num_rows, "Complete": int(found.complete)}
    return responses.to_form(
        export.format.value,
        found.rows,
        lambda rows: table_file(store, rows.to_reader(), "sql", numbers, export, hold),
    )


def _named(name: str, view: str) -> bytes:
    """The JSON of a view with its name in it."""
    return responses.json_object({"name": name})[:-1] + b"," + view.encode()[1:]


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if name.strip() == name and name.isprintable() and 0 < len(name) <= MAX_NAME:
        return name
    raise TurnoutError(
        "bad_parameter",
        f"name: {show(name)} cannot be the name of a view",
        f"at most {MAX_NAME} characters that show, without a blank at the ends",
    )
