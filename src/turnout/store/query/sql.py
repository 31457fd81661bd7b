"""Somebody's own SELECT over the published tables, in a database and a process of its own.

The query never touches the store: the columns that it names are copied, of one moment, into a DuckDB in memory that has
no files, no network, no settings to change and a bound of memory (`sql_worker.py`). So whatever a query finds a way to,
nothing is there. DuckDB's own parser says which tables and columns it names, and that it is one SELECT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import ByteSize, TypeAdapter

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.nearest import suggestion
from turnout.plan.position import Position
from turnout.plan.sql_text import quoted
from turnout.store.database import Readable, first_row
from turnout.store.query.sql_process import ProcessEndedError, ProcessIdleError, process
from turnout.store.query.sql_worker import locked
from turnout.store.query.windows import Column, Snapshot, open_snapshot
from turnout_client.column_types import ColumnType

MAX_CHARACTERS = 100_000
MAX_ROWS = 10_000
DEFAULT_ROWS = 1_000

# The queries that only read; a WITH can hold others, such as DELETE.
_READING_NODES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")
# Table functions that need nothing but their arguments.
_TABLE_FUNCTIONS = ("range", "generate_series", "unnest")
# Functions that change with each call or moment, and tell nothing else.
_CHANGING = (
    *("now", "today", "current_date", "get_current_time", "get_current_timestamp", "transaction_timestamp"),
    *("random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "error"),
)
# Functions that tell of the database, its settings or its plans although they look like others.
_TELLING = (
    *("current_setting", "getvariable", "version", "get_block_size", "parse_duckdb_log_message", "user"),
    *("session_user", "current_user", "current_role", "current_catalog"),
    *("json_serialize_plan", "json_serialize_sql", "json_deserialize_sql"),
)
_FUNCTIONS = """
SELECT function_name FROM duckdb_functions() GROUP BY ALL
HAVING NOT list_contains($changing, function_name) AND (list_contains($telling, function_name) OR NOT bool_or(
    schema_name = 'main' AND function_type IN ('scalar', 'aggregate', 'window', 'macro')
    AND coalesce(stability, 'CONSISTENT') = 'CONSISTENT' AND NOT starts_with(function_name, '__')))
"""
_HINT = "write one SELECT over published tables; see the list of tables"
_NO_COLUMN = re.compile(r'(?:Referenced column|.* does not have a column named) "(.*?)"')
_BATCH_ROWS = 50_000
# To read the texts of queries, which are bounded, as is how many are read at the same time.
_PARSER_MEMORY = "256MB"
_SIZE = TypeAdapter(ByteSize)


@dataclass(frozen=True, slots=True)
class SqlResult:
    """Rows of one moment; `complete` is False where there are more than were asked for."""

    generation: int
    columns: tuple[Column, ...]
    rows: pa.Table
    complete: bool
    positions: Mapping[str, Position]
    """The position of each table that the SELECT names."""


def read_sql(database: Readable, text: str, limit: int = DEFAULT_ROWS, memory: str = "512MB") -> SqlResult:
    """The rows of a SELECT, `limit` at most."""
    with open_snapshot(database) as snapshot:
        with closing(_parser().cursor()) as parser:
            query = parse_query(parser, text, snapshot.names)
        # Before the rows: another statement would end their stream.
        positions = {name: snapshot.position(snapshot.table(name)) for name in query.tables}
        # A table that is read once comes as a stream while the query runs, the last one of all.
        streamed = next((name for name, times in query.tables.items() if times == 1), None)
        copied = [name for name in query.tables if name != streamed]
        asked = {
            "sql": text,
            "copied": copied,
            "streamed": streamed,
            "limit": limit + 1,
            "memory": memory,
            "bytes": int(_SIZE.validate_python(memory)),
            "max_bytes": database.max_bytes,
        }
        names = [*copied, *([] if streamed is None else [streamed])]
        head, rows = _answer(database, asked, lambda: (_columns(snapshot, name, query) for name in names))
        if rows is None:
            known = [column for name in query.tables for column in snapshot.table(name).columns]
            raise _failed(head, text, known, memory, database.max_bytes)
        columns, rows = _shown(rows, head["kinds"])
        complete = rows.num_rows <= limit
        return SqlResult(snapshot.published, columns, rows.slice(0, limit), complete, positions)


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """What reads the texts of queries: one for all, since they are values to it, and it runs none of them."""
    return locked(_PARSER_MEMORY)


@cache
def _closed_functions() -> frozenset[str]:
    """Functions of DuckDB that are not open: all that need or tell more than their arguments."""
    with closing(_parser().cursor()) as cursor:
        given = {"changing": [*_CHANGING, *_TABLE_FUNCTIONS], "telling": _TELLING}
        return frozenset(name for (name,) in cursor.execute(_FUNCTIONS, given).fetchall())


def _answer(
    database: Readable, asked: Mapping[str, Any], tables: Callable[[], Iterable[pa.RecordBatchReader]]
) -> tuple[dict[str, Any], pa.Table | None]:
    while True:
        try:
            with process() as worker, database.ending(worker):
                return worker.ask(asked, tables())
        except ProcessIdleError:
            continue
        except ProcessEndedError:
            return {"memory": True}, None


def _failed(
    head: Mapping[str, Any], text: str, columns: Sequence[str], memory: str, max_bytes: int | None
) -> TurnoutError:
    if "error" in head:
        return _explained(head["error"], text, columns)
    if "too_large" in head:
        return TurnoutError(
            code="answer_too_large",
            message=f"sql: the rows have more than the {(max_bytes or 0) // 1_000_000} MB allowed",
            hint="ask for fewer rows or columns, or group them",
        )
    return _refused(
        f"the query needs more than the {memory} of memory that one may have",
        "name only the columns that you need, narrow the rows, or group them",
    )


def parse_query(room: duckdb.DuckDBPyConnection, text: str, known: list[str]) -> Query:
    """The text as one SELECT over known tables; TurnoutError `sql_refused` for everything else."""
    if len(text) > MAX_CHARACTERS:
        raise _refused(f"the text has more than {MAX_CHARACTERS} characters", "write a shorter one")
    if "\0" in text:
        raise _refused("it has a NUL character, where DuckDB would end it", "leave the character out")
    try:
        text.encode()  # DuckDB fails on a lone surrogate in another way for each place
        row = first_row(room, "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [text])
        tree = json.loads(row[0] if row else "{}")
    except (duckdb.Error, UnicodeEncodeError, RecursionError) as error:
        raise _explained(str(error), text) from error
    if tree.get("error"):
        reason = tree.get("error_message", "it cannot be read")
        only_select = "only SELECT" in reason or "Only SELECT" in reason
        raise _refused("it is not a SELECT" if only_select else _shortened(reason), _HINT, _position(tree, text))
    statements = tree["statements"]
    if len(statements) != 1:
        raise _refused(f"{len(statements)} statements; one is run", "send them one by one")
    query = Query({name.casefold(): name for name in known})
    try:
        query.read(statements[0]["node"], frozenset())
    except RecursionError as error:
        raise _refused("it is nested too deeply", "write it with fewer levels") from error
    query.all_columns |= bool(query.names & query.relations)
    return query


@dataclass(slots=True)
class Query:
    """What a SELECT names, collected from its tree. A name that a WITH defines counts only inside it."""

    known: Mapping[str, str]
    tables: dict[str, int] = field(default_factory=dict)
    """The tables, and how often each is named."""
    names: set[str] = field(default_factory=set)
    """The names that can be columns of the tables."""
    relations: set[str] = field(default_factory=set)
    all_columns: bool = False

    def read(self, node: object, defined: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                self.read(item, defined)
        elif isinstance(node, dict):
            self._read_node(node, defined)

    def _read_node(self, node: dict[str, Any], defined: frozenset[str]) -> None:
        kind = node.get("type")
        if str(kind).endswith("_NODE") and kind not in _READING_NODES:
            raise _refused("it is not a SELECT", _HINT)
        if "cte_map" in node:
            for definition in node["cte_map"]["map"]:
                # Each sees those before it.
                self.read(definition["value"], defined)
                defined |= {definition["key"].casefold()}
        if kind == "RECURSIVE_CTE_NODE":
            defined |= {node["cte_name"].casefold()}
        if kind == "BASE_TABLE":
            self._read_table(node, defined)
        elif kind == "TABLE_FUNCTION":
            self._read_function(node)
        elif node.get("function_name", "").casefold() in _closed_functions():
            raise _refused(f"the function {show(node['function_name'])} is not known here", _HINT)
        elif kind == "SHOW_REF":
            raise _refused("DESCRIBE, SUMMARIZE and SHOW are not run here", _HINT)
        elif kind == "COLUMN_REF":
            self.names |= {name.casefold() for name in node["column_names"]}
        elif kind == "STAR" or node.get("ref_type") == "NATURAL":
            self.all_columns = True
        elif kind in ("PARAMETER", "VALUE_PARAMETER"):
            raise _refused("it has a parameter; write the value itself", _HINT)
        self.names |= {name.casefold() for name in node.get("using_columns") or ()}
        for name, value in node.items():
            if name != "cte_map":
                self.read(value, defined)

    def _read_table(self, node: dict[str, Any], defined: frozenset[str]) -> None:
        name = node["table_name"]
        if node["schema_name"] or node["catalog_name"]:
            raise _refused(f"{show(name)} has a schema or a database before it", "write only the table's name")
        if node["at_clause"]:
            raise _refused("AT is not known here", _HINT)
        self.relations |= {name.casefold(), (node["alias"] or name).casefold()}
        if name.casefold() in defined:
            return
        if name.casefold() not in self.known:
            hint = f"{suggestion(name, self.known.values())}tables: {', '.join(self.known.values())}"
            raise _refused(f"no table {show(name)}", hint)
        table = self.known[name.casefold()]
        self.tables[table] = self.tables.get(table, 0) + 1

    def _read_function(self, node: dict[str, Any]) -> None:
        name = node["function"].get("function_name", "").casefold()
        if name not in _TABLE_FUNCTIONS:
            raise _refused(
                f"the table function {show(name)} is not known here", f"known: {', '.join(_TABLE_FUNCTIONS)}"
            )


def _columns(snapshot: Snapshot, name: str, query: Query) -> pa.RecordBatchReader:
    """The rows of a table with the columns that a query can name."""
    table = snapshot.table(name)
    chosen = [c for c in table.columns if query.all_columns or c.casefold() in query.names]
    columns = ", ".join(quoted(column) for column in chosen or list(table.columns)[:1])
    return snapshot.cursor.sql(f"SELECT {columns} FROM {table.source}").to_arrow_reader(_BATCH_ROWS)


def _shown(rows: pa.Table, kinds: Sequence[str]) -> tuple[tuple[Column, ...], pa.Table]:
    """Rows with types and names that tables have."""
    names = list(_unique(rows.column_names))
    shown = [
        _as_declarable(column, ColumnType.from_duckdb(kind)) for column, kind in zip(rows.columns, kinds, strict=True)
    ]
    columns = tuple(Column(name, kind) for name, (_, kind) in zip(names, shown, strict=True))
    return columns, pa.table([values for values, _ in shown], names=names)


def _as_declarable(values: pa.ChunkedArray, kind: str) -> tuple[pa.ChunkedArray, str]:
    """A column with a type that tables have, where one fits: a count is a number, not the text of a large one."""
    if pa.types.is_dictionary(values.type):
        return values.cast(pa.string()), "string"
    if kind in ("hugeint", "uhugeint") or (pa.types.is_integer(values.type) and kind not in ("int32", "int64")):
        try:
            return values.cast(pa.int64()), "int64"
        except pa.ArrowInvalid:
            return values.cast(pa.decimal128(38, 0)), "decimal(38,0)"
    if kind.startswith("timestamp"):
        # Without a zone they are UTC, as everywhere.
        return values.cast(pa.timestamp("us"), safe=False).cast(pa.timestamp("us", "UTC")), "timestamp"
    return values, "string" if kind == "uuid" else kind


def _unique(names: list[str]) -> Iterator[str]:
    """The names of a result, where equal ones are numbered: an object of JSON has each once."""
    used: set[str] = set()
    for name in names:
        number, made = 1, name
        while made in used:
            number += 1
            made = f"{name}_{number}"
        used.add(made)
        yield made


def _explained(error: str, text: str, columns: Sequence[str] = ()) -> TurnoutError:
    """What DuckDB says of a query, with its candidates as a hint; it says so in JSON (`sql_worker.locked`)."""
    told: dict[str, str] = {}
    with suppress(ValueError):
        told = json.loads(error.partition(": ")[2])
    message, *more = (told.get("exception_message") or error).strip().splitlines()
    hint = "; ".join(filter(None, map(str.strip, more))).replace(":; ", ": ")
    if missing := _NO_COLUMN.match(message):
        # Only the columns that a query names are copied, so DuckDB knows no others.
        message = f"no column {show(missing[1])}"
        hint = f"{suggestion(missing[1], columns)}columns: {', '.join(dict.fromkeys(columns))}"
    return _refused(_shortened(message.rstrip("!.")), _shortened(hint) or _HINT, _position(told, text))


def _position(told: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """The line and the column, from 1, of DuckDB's position, which counts bytes."""
    if not str(told.get("position", "")).isdigit():
        return None
    before = text.encode()[: int(told["position"])].decode(errors="ignore")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


def _refused(message: str, hint: str, position: tuple[int, int] | None = None) -> TurnoutError:
    place = f"line {position[0]}, column {position[1]}: " if position else ""
    return TurnoutError("sql_refused", f"sql: {place}{message}", hint, position=position)
