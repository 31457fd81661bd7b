"""The commands `tables` and `types`, for the tables and columns of a server, and `rows`, for the rows of a table."""

from __future__ import annotations

import io
import itertools
import json as json_text
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from turnout_client.cli import options, output
from turnout_client.cli.app import Printed, app, asking, examples
from turnout_client.cli.program import PROGRAM
from turnout_client.column_types import ColumnType
from turnout_client.frames import need

if TYPE_CHECKING:
    import pyarrow as pa

    from turnout_client import Client, WindowOptions

_BLOCK_ROWS = 500
_BINARY = ("arrow", "parquet")
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


@asking("turnout tables", "turnout tables --json")
def tables(client: Client) -> Printed:
    """List the tables: columns with their types, row count, generation, version."""
    found = client.tables()
    listed = Table(header_style="bold")
    for name in ("table", "rows", "gen", "version", "columns"):
        number = name in ("rows", "gen", "version")
        listed.add_column(name, justify="right" if number else "left", no_wrap=name != "columns")
    for table in found:
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        numbers = (f"{table['rows']:,}", str(table["generation"]), str(table["version"]))
        listed.add_row(output.cell(table["name"], "bold"), *numbers, output.cell(columns, "dim"))
    return Printed({"tables": found}, [listed])


@app.command(epilog=examples("turnout types > tables.ts", "turnout types --url http://turnout.example:10000"))
def types(url: options.Url = options.DEFAULT_URL, token: options.Token = "") -> None:
    """Print a TypeScript interface for each table, and `Tables`, which maps each table name to its interface.

    They are row types for `@turnout/client`: `client.window<FinalUi>({ table: "final_ui" })`.
    """
    with options.connected(url, token) as client:
        print(interfaces(client.tables()), end="")


def interfaces(tables: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a TypeScript module that declares a row type for each table."""
    names: dict[str, str] = {}
    lines = [f"// Written by `{PROGRAM.name} types`: run it again when columns change.", ""]
    for table in tables:
        names[table["name"]] = _name(table["name"], names.values())
        lines += [f"export interface {names[table['name']]} {{", *map(_property, table["columns"]), "}", ""]
    lines += ["/** The type of a row, by the name of its table. */", "export interface Tables {"]
    return "\n".join([*lines, *(f"  {_key(table)}: {name};" for table, name in names.items()), "}", ""])


def _name(table: str, taken: Iterable[str]) -> str:
    """Return the interface name of a table: `FinalUi` for `final_ui`; a number is added if the name is taken."""
    words = re.findall("[A-Za-z0-9]+", table)
    name = "".join(word[0].upper() + word[1:] for word in words)
    name = name if name[:1].isalpha() else f"Table{name}"
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in {*taken, "Tables"})


def _property(column: Mapping[str, str]) -> str:
    """Return the TypeScript property of a column, which may be null; types that only SQL produces are `unknown`."""
    kind = ColumnType.known(column["type"])
    if kind is None:
        return f"  {_key(column['name'])}: unknown;"
    return f"  {_key(column['name'])}: {kind.json} | null;" + (f" // {kind}" if kind.name != kind.json else "")


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json_text.dumps(name)


@asking(
    "turnout rows final_ui --where 'age >= 30' --sort=-balance --limit 20",
    "turnout rows final_ui --columns userId,balance --format csv > balances.csv",
    "turnout rows bad_records --format json > bad.jsonl",
)
def rows(
    client: Client,
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
    json: bool = False,
) -> None:
    """Print all rows of a table, or the first --limit rows, as of one moment.

    Rows are streamed, so that even a large table needs little memory.
    """
    form = "json" if json else form
    if form in _BINARY and sys.stdout.isatty():
        raise typer.BadParameter(f"{form} is not text; write it to a file: > rows.{form}", param_hint="--format")
    asked: WindowOptions = {"where": where or (), "sort": sort or (), "columns": columns or ()}
    if limit is not None:
        asked["limit"] = limit
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
    """A file object over an answer that arrives in chunks."""

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
    pa = need("pyarrow", "--format csv")
    with pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(_Chunks(chunks)))) as reader:
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)  # an empty table still needs its columns
        for batch in reader:
            for start in range(0, batch.num_rows, _BLOCK_ROWS):
                yield batch.slice(start, _BLOCK_ROWS)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows with JSON values, in the format of the server's answers."""
    from turnout_client.arrow_columns import for_json

    values = [map(_plain, for_json(column).to_pylist()) for column in batch.columns]
    for row in zip(*values, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_tables(batches: Iterator[pa.RecordBatch]) -> None:
    """Print one table for each batch of rows, because the column widths of all rows are not known in advance."""
    screen, count = output.console(), 0
    first = next(batches)
    for batch in itertools.chain([next(batches, first)], batches):
        screen.print(_table(batch))
        count += batch.num_rows
    screen.print(f"{count:,} rows" if count != 1 else "1 row", style="dim")


def _table(batch: pa.RecordBatch) -> Table:
    import pyarrow as pa

    table = output.CutTable(header_style="bold cyan")
    for field in batch.schema:
        kind = field.type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        table.add_column(output.cell(field.name), justify="right" if number else "left")
    for row in _rows(batch):
        table.add_row(*map(output.cell, row.values()))
    return table
