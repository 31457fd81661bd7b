"""Rows as they leave the server: JSON answers, and CSV, Arrow and Parquet files. Arrow converts them by columns."""

import logging
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from typing import IO, Any, TypeVar
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.position import Position
from turnout.serve.limits import Hold
from turnout.serve.reads import StoreRead
from turnout.store.query.difference import DifferenceResult
from turnout.store.query.sql import SqlResult
from turnout.store.query.summary_read import SummaryResult
from turnout.store.query.windows import WindowResult
from turnout_client.arrow_columns import for_json, is_plain, is_time, iso_texts

log = logging.getLogger(__name__)
T = TypeVar("T")

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_ENCODED_ROWS = 1_000
_CSV_TIMESTAMP = "%Y-%m-%d %H:%M:%SZ"
# Spreadsheets skip a tab or an end of line in front.
_FORMULA = r"^[=+\-@\t\r\n]"


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


@dataclass(frozen=True, slots=True)
class TableFile:
    """A finished file, small ones in memory, and its headers; the caller closes `content`."""

    content: IO[bytes]
    headers: dict[str, str]


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
) -> TableFile:
    """Rows as a file of that name, with `numbers` as headers.

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
        raise _unwritten(error) from error
    except BaseException:
        content.close()
        raise
    headers = {
        "Content-Type": MEDIA_TYPES[export.format],
        "Content-Length": str(size),
        "Content-Disposition": _disposition(f"{name}.{export.format}"),
        **{f"X-Turnout-{number}": str(value) for number, value in numbers.items()},
    }
    return TableFile(content, headers)


def _write(reading: StoreRead, rows: pa.RecordBatchReader, export: Export, content: IO[bytes], hold: Hold) -> None:
    sink = pa.PythonFile(content, mode="w")
    # Leaving a writer's block ends its file but leaves `content` open.
    with _writer(export.format, sink, rows.schema) as writer:
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
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _writer(wanted: AnswerFormat, sink: pa.NativeFile, schema: pa.Schema) -> Any:
    if wanted is AnswerFormat.CSV:
        return pa_csv.CSVWriter(sink, schema)
    if wanted is AnswerFormat.ARROW:
        return pa.ipc.new_stream(sink, schema)
    return pa_parquet.ParquetWriter(sink, schema, compression="zstd")


def _unwritten(error: OSError) -> TurnoutError:
    log.error("a file for a client cannot be written: %s", error)
    return TurnoutError(
        "store_unavailable",
        "the file cannot be written now: the server's disk fails or is full",
        "try again soon, or ask for less with limit, columns and where",
    )


def _disposition(name: str) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-@") else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
