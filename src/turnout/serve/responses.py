"""Answers as they leave the server: rows as JSON, CSV, Arrow and Parquet, errors in their one shape, headers of all.

Arrow converts rows by columns.
"""

import asyncio
import logging
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from functools import partial
from io import BytesIO
from typing import IO, Any, TypeVar
from urllib.parse import quote

import anyio.to_thread
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.position import Position
from turnout.serve.limits import HeldBytes, Hold, TooOften, caller
from turnout.serve.reads import Reads, StoreRead, cancelled
from turnout.store.query.difference import DifferenceResult
from turnout.store.query.sql import SqlResult
from turnout.store.query.summary_read import SummaryResult
from turnout.store.query.windows import WindowResult
from turnout_client.arrow_columns import for_json, is_plain, is_time, iso_texts

log = logging.getLogger(__name__)
T = TypeVar("T")

_CHUNK_BYTES = 256 * 1024
_IN_MEMORY_BYTES = 4 * 1024 * 1024
_ENCODED_ROWS = 1_000
_CSV_TIMESTAMP = "%Y-%m-%d %H:%M:%SZ"
# Spreadsheets skip a tab or an end of line in front, and some take the wide forms of the signs too.
_FORMULA = "^[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n]"


def content_security_policy(styles: str, ancestors: str = "'none'") -> str:
    """The page may load only files of its own server. The grid has its small images in its styles, as data.

    `ancestors`: whose pages may show it in a frame.
    """
    return (
        f"default-src 'self'; style-src {styles}; img-src 'self' data:; font-src 'self' data:; object-src 'none'; "
        f"base-uri 'none'; form-action 'self'; frame-ancestors {ancestors}"
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


class HeldResponse(Response):
    """An answer that is sent in pieces; it counts for its client until it was sent or has failed."""

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


class AnswerFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


MEDIA_TYPES = {
    AnswerFormat.JSON: "application/json",
    AnswerFormat.CSV: "text/csv; charset=utf-8",
    AnswerFormat.ARROW: "application/vnd.apache.arrow.stream",
    AnswerFormat.PARQUET: "application/vnd.apache.parquet",
}


_WRITERS: dict[AnswerFormat, Callable[[pa.NativeFile, pa.Schema], Any]] = {
    AnswerFormat.CSV: pa_csv.CSVWriter,
    AnswerFormat.ARROW: pa.ipc.new_stream,
    AnswerFormat.PARQUET: partial(pa_parquet.ParquetWriter, compression="zstd"),
}


@dataclass(frozen=True, slots=True)
class Export:
    """The file to make; `guarded`: no spreadsheet takes a cell of a CSV file for a formula."""

    format: AnswerFormat
    guarded: bool = False


def to_json(value: object) -> bytes:
    """JSON bytes: NaN and infinities are null, times are UTC with Z, decimals are texts."""
    options = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS
    return orjson.dumps(value, default=_plain, option=options)


def result_json(result: WindowResult | SummaryResult) -> bytes:
    """A result as it is: each of its fields, its position as two, and its Arrow table as a list of objects."""
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(result)):
        values |= result.position.as_json() if name == "position" else {name: getattr(result, name)}
    tables = {name: json_rows(value) for name, value in values.items() if isinstance(value, pa.Table)}
    return json_object({name: value for name, value in values.items() if name not in tables}, **tables)


def difference_json(table: str, positions: Iterable[Position], lags: Iterable[int | None], body: bytes) -> bytes:
    """A difference as it is answered and sent; `body` is the rest of it."""
    before, after = ({**at.as_json(), "lag": lag} for at, lag in zip(positions, lags, strict=True))
    return json_object({"table": table, "from": before, "to": after})[:-1] + b"," + body[1:]


def difference_body(result: DifferenceResult) -> bytes:
    """What is the same for as long as nobody would see a change: all but the positions and lags."""
    fields = {
        "counts": result.counts,
        "total": result.total,
        "key": result.key,
        "columns": result.columns,
        "columnsOnlyIn": {"from": result.only_from, "to": result.only_to},
        "missing": result.missing,
        "sinks": [{"sink": sink, "records": records} for sink, records in result.sinks.items()],
    }
    names = [column.name for column in result.columns]

    def items(columns: list[list[Any]]) -> list[Any]:
        changes, *values = columns
        sides = values[: len(names)], values[len(names) :]
        olds, news = ([dict(zip(names, row, strict=True)) for row in zip(*side, strict=True)] for side in sides)
        return [
            {"change": change, "from": None if change == "added" else old, "to": None if change == "removed" else new}
            for change, old, new in zip(changes, olds, news, strict=True)
        ]

    return json_object(fields, rows=json_list(result.rows, items))


def sql_fields(result: SqlResult) -> dict[str, Any]:
    """The fields of a SELECT's answer beside its rows, as those of a window of the table `sql`."""
    return {
        "table": "sql",
        "generation": result.generation,
        "version": 0,
        "total": result.rows.num_rows,
        "complete": result.complete,
        "columns": result.columns,
    }


def to_form(form: str, rows: pa.Table, make: Callable[[pa.Table], T]) -> T:
    """Make a form of rows; a type that it does not have, such as an interval in JSON, is the fault of the SELECT."""
    try:
        return make(rows)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        if rows.num_columns > 1:
            for name in rows.column_names:
                to_form(form, rows.select([name]), make)
        [column] = rows.schema if rows.num_columns == 1 else [None]
        named = "a column" if column is None else f"the column {show(column.name)} ({column.type})"
        raise TurnoutError(
            "sql_refused", f"sql: {named} has a type that {form} has no form for", "cast it: select column::varchar"
        ) from error


def json_rows(rows: pa.Table) -> bytes:
    names = rows.column_names
    return json_list(rows, lambda columns: [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])


def rows_json(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Rows as lists in the order of the columns."""
    return json_list(rows, lambda columns: list(zip(*columns, strict=True)))


def json_object(fields: dict[str, Any], **encoded: bytes) -> bytes:
    """A JSON object of values, and of others that are encoded already."""
    parts = [b'"%s":%s' % (name.encode(), value) for name, value in encoded.items()]
    return b"{%s}" % b",".join([to_json(fields)[1:-1], *parts] if fields else parts)


def json_list(rows: pa.Table | pa.RecordBatch, items: Callable[[list[list[Any]]], list[Any]]) -> bytes:
    """The JSON list of what `items` makes of columns of values.

    In pieces: while orjson encodes one, no other thread runs, nor the event loop.
    """
    pieces = []
    for start in range(0, rows.num_rows, _ENCODED_ROWS):
        piece = rows.slice(start, _ENCODED_ROWS)
        pieces.append(to_json(items([for_json(column).to_pylist() for column in piece.columns]))[1:-1])
    return b"[%s]" % b",".join(pieces)


def table_file(
    reading: StoreRead, rows: pa.RecordBatchReader, name: str, numbers: dict[str, int], export: Export, hold: Hold
) -> HeldResponse:
    """Rows as a file of that name, small ones in memory, with `numbers` as headers.

    It is written whole before the first byte is sent: the snapshot lasts as long as the read, never as long as a slow
    client, and an error on the way still becomes an error answer.
    """
    # Closed by the caller: the file outlives this function.
    content = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
    try:
        _write(reading, rows, export, content, hold)
        size = content.tell()
        hold.grow_to(size)
        content.seek(0)
    except OSError as error:
        content.close()
        reading.check()
        log.error("a file for a client cannot be written: %s", error)
        raise TurnoutError(
            "store_unavailable",
            "the file cannot be written now: the server's disk fails or is full",
            "try again soon, or ask for less with limit, columns and where",
        ) from error
    except BaseException:
        content.close()
        raise
    headers = {
        "Content-Type": MEDIA_TYPES[export.format],
        "Content-Length": str(size),
        "Content-Disposition": _disposition(f"{name}.{export.format}"),
        **{f"X-Turnout-{number}": str(value) for number, value in numbers.items()},
    }
    return HeldResponse(content, hold, headers)


def _write(reading: StoreRead, rows: pa.RecordBatchReader, export: Export, content: IO[bytes], hold: Hold) -> None:
    sink = pa.PythonFile(content, mode="w")
    schema = _guarded_names(rows.schema) if export.guarded else rows.schema
    # Leaving a writer's block ends its file but leaves `content` open.
    with _WRITERS[export.format](sink, schema) as writer:
        for batch in rows:
            reading.check()
            csv = export.format is AnswerFormat.CSV
            # Times that Arrow would write wrongly, as texts in the form that Arrow gives to the others.
            odd = [i for i, c in enumerate(batch.columns) if csv and is_time(c.type) and not is_plain(c)]
            for index in odd:
                texts = iso_texts(batch.column(index), _CSV_TIMESTAMP)
                batch = batch.set_column(index, batch.schema.names[index], texts)
            batch = guarded(batch) if export.guarded else batch
            if odd:  # its texts are of another type than the writer's column, but the same in a CSV file
                pa_csv.write_csv(batch, sink, pa_csv.WriteOptions(include_header=False))
            else:
                writer.write_batch(batch)
            hold.grow_to(content.tell())


def guarded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Texts that a spreadsheet would take for a formula, with an apostrophe in front."""
    columns = batch.columns
    for index, texts in enumerate(columns):
        if pa.types.is_string(texts.type):
            safe = pc.binary_join_element_wise(pa.scalar("'", pa.string()), texts, "")
            columns[index] = pc.if_else(pc.match_substring_regex(texts, _FORMULA), safe, texts)
    return pa.RecordBatch.from_arrays(columns, schema=_guarded_names(batch.schema))


def _guarded_names(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_name(f"'{f.name}") if re.match(_FORMULA, f.name) else f for f in schema])


def _disposition(name: str) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-@") else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Answers:
    """Reads the store for requests; `held` counts answers in memory, `downloads` files."""

    _reads: Reads
    _held: HeldBytes
    _downloads: HeldBytes

    async def json(
        self, request: Request, work: Callable[[StoreRead], bytes], *, large: bool = False, sliced: bool = False
    ) -> Response:
        body = await self.read(request, work, large=large, sliced=sliced)
        hold = Hold(self._held, caller(request.scope))
        hold.grow_to(len(body))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return HeldResponse(BytesIO(body), hold, headers)

    async def file(self, request: Request, work: Callable[[StoreRead, Hold], HeldResponse]) -> Response:
        hold = Hold(self._downloads, caller(request.scope))
        try:
            return await self.read(request, lambda store: work(store, hold), large=True)
        except BaseException:
            hold.release()
            raise

    async def read(
        self, request: Request, work: Callable[[StoreRead], T], *, large: bool = False, sliced: bool = False
    ) -> T:
        """Do `work` for as long as the client waits. The body of the request must have been read before."""
        reads = self._reads.run([caller(request.scope)], work, large=large, sliced=sliced)
        reading = asyncio.ensure_future(reads)
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
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return encoded_json(to_json(value), status, headers)


def encoded_json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    all_headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(body, status, media_type="application/json", headers=all_headers)


def error_response(error: TurnoutError, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request, or to a WebSocket handshake that is not accepted yet."""
    headers = dict(headers or {})
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooOften):
        headers["Retry-After"] = str(error.retry_after)
        # What was sent along is not looked at: to refuse each of many requests costs as much as to answer it.
        headers["Connection"] = "close"
    return json_response(error.as_json(), error.status, headers)


def on_turnout_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnoutError)
    return error_response(error)


def on_http_error(request: Request, error: Exception) -> Response:
    """The errors of Starlette: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    # A WebSocket has no method.
    path, method = show(request.url.path), request.scope.get("method", "a WebSocket")
    known = {
        404: ("not_found", f"nothing is at {path}", "GET /api/tables lists the tables; the page is at /"),
        405: ("method_not_allowed", f"{method} does not work on {path}", "the Allow header has what does"),
    }
    code, message, hint = known.get(error.status_code, ("bad_request", error.detail, ""))
    headers = dict(error.headers or {})
    if "Allow" in headers:  # of one route: others of the same path take other methods
        same = [r for r in request.app.routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
        headers["Allow"] = ", ".join(sorted({method for route in same for method in route.methods or ()}))
    return error_response(TurnoutError(code, message, hint, status=error.status_code), headers)


def on_any_error(request: Request, error: Exception) -> Response:
    """A fault of the server: logged in full, answered without internals."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    shaped = TurnoutError("internal_error", "the server failed on this request", "its log has the details")
    return error_response(shaped)
