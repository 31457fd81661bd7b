"""`rows`: all rows of a table that a filter keeps, of one moment, to the terminal or to a file."""

from __future__ import annotations

import io
import itertools
import json as json_text
import math
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app, examples

if TYPE_CHECKING:
    import pyarrow as pa

    from turnout_client import WindowOptions

_BLOCK_ROWS = 500
_BINARY = ("arrow", "parquet")


@app.command(
    epilog=examples(
        "turnout rows final_ui --where 'age >= 30' --sort=-balance --limit 20",
        "turnout rows final_ui --columns userId,balance --format csv > balances.csv",
        "turnout rows bad_records --format json > bad.jsonl",
    )
)
def rows(
    table: options.Table,
    where: options.Where = None,
    sort: options.Sort = "",
    columns: options.Columns = "",
    limit: Annotated[
        int | None, typer.Option(min=0, help="The most rows to print.  [default: all of them]", show_default=False)
    ] = None,
    form: Annotated[
        Literal["table", "csv", "json", "arrow", "parquet"],
        typer.Option("--format", help="table; or a file on standard output. json is one object a line."),
    ] = "table",
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Print the rows of a table as of one moment: all of them, or as many as --limit says.

    Rows are streamed, so a table of any size needs little memory.
    """
    form = "json" if json else form
    if form in _BINARY and sys.stdout.isatty():
        raise typer.BadParameter(f"{form} is not text; write it to a file: > rows.{form}", param_hint="--format")
    asked: WindowOptions = {"where": where or (), "sort": sort or (), "columns": columns or ()}
    if limit is not None:
        asked["limit"] = limit
    with options.connected(url, token) as client:
        if form != "table" and form != "json":
            for chunk in client.table(table).file(form, **asked):
                sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
            return
        batches = _batches(client.table(table).file("arrow", **asked))
        if form == "json":
            for row in itertools.chain.from_iterable(map(_rows, batches)):
                print(json_text.dumps(row, ensure_ascii=False))
        else:
            _print_tables(batches)


class _Chunks(io.RawIOBase):
    """An answer that arrives in pieces, as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _batches(chunks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(_Chunks(chunks)))) as reader:
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)  # the columns, also where there is no row
        for batch in reader:
            for start in range(0, batch.num_rows, _BLOCK_ROWS):
                yield batch.slice(start, _BLOCK_ROWS)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows as JSON values, as answers of the server have them."""
    values = [map(_plain, _for_json(column).to_pylist()) for column in batch.columns]
    for row in zip(*values, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _for_json(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    from turnout_client.arrow_columns import is_time, iso_texts

    if is_time(column.type):
        return iso_texts(pa.chunked_array([column]))
    if pa.types.is_float32(column.type):
        # By way of its shortest text, so that the float 0.1 is 0.1 and not 0.10000000149011612.
        return column.cast(pa.string()).cast(pa.float64())
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_tables(batches: Iterator[pa.RecordBatch]) -> None:
    """A table for each few hundred rows: the widths of all rows are not known before the last has come."""
    screen, count = output.console(), 0
    first = next(batches)
    for batch in itertools.chain([next(batches, first)], batches):
        screen.print(_table(batch))
        count += batch.num_rows
    screen.print(f"{count:,} rows" if count != 1 else "1 row", style="dim")


def _table(batch: pa.RecordBatch) -> Table:
    import pyarrow as pa

    table = Table(header_style="bold cyan")
    for field in batch.schema:
        kind = field.type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        table.add_column(output.cell(field.name), justify="right" if number else "left", no_wrap=True)
    for row in _rows(batch):
        table.add_row(*map(output.cell, row.values()))
    return table
