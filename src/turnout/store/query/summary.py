"""Summaries of a table: groups of its rows, and counts, sums, averages and percentiles of each group.

Owns their texts (`by=accountType,age:10`, `values=count,sum(balance)`), their structured form and the SQL that they
become. Names are looked up among the table's columns and quoted; filters are `where.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.columns import ColumnType
from turnout.plan.joins import quoted
from turnout.store.database import Readable
from turnout.store.query.values import show
from turnout.store.query.where import MAX_SMALL_FILTER, SortKey, Term, compile_where, read_name, weight
from turnout.store.query.windows import Column, open_snapshot

MAX_BY = 3
MAX_VALUES = 20
MAX_GROUPS = 100_000
"""More groups than that are a mistake: nobody reads them, and each costs memory in the store."""

MAX_LIMIT = 10_000
DEFAULT_LIMIT = 100

RECORD_TIME = "_time"
"""The name that `by` has for the time of a row's Kafka record."""

_MS = "_ts"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WIDTH = re.compile(r"\s*:\s*(?P<number>[0-9]{1,18}(?:\.[0-9]{1,12})?)(?P<unit>[smhd]?)\s*", re.ASCII)
_OPEN = re.compile(r"\s*([a-z0-9_]+)\s*\(", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r"\s*(,|$)\s*")
_INT64 = ColumnType.parse("int64")
_DOUBLE = ColumnType.parse("double")
_TIMESTAMP = ColumnType.parse("timestamp")
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_FUNCTIONS = ("count", "sum", "avg", "min", "max", "count_distinct", *_PERCENTILES)
_VALUES_HINT = f"write count, or a function of a column: {', '.join(f'{name}(column)' for name in _FUNCTIONS[1:])}"
_BY_HINT = (
    "write up to three columns; a number may have a width (age:10), a time one with a unit (ts:1m, of s, m, h, d)"
)


@dataclass(frozen=True, slots=True)
class Group:
    """A column to group by, as it is, or in bins: `width` of a number; of a time in seconds, where `unit` is set."""

    column: str
    width: Decimal | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        return self.column if self.width is None else f"{self.column}:{self.width}{self.unit}"


@dataclass(frozen=True, slots=True)
class Value:
    """What is calculated for each group; `column` None: its rows are counted."""

    function: str
    column: str | None = None

    @property
    def name(self) -> str:
        return self.function if self.column is None else f"{self.function}({self.column})"


@dataclass(frozen=True, slots=True)
class Summary:
    """What to calculate. Without `sort` the groups are in their own order."""

    table: str
    by: tuple[Group, ...] = ()
    values: tuple[Value, ...] = (Value("count"),)
    where: tuple[Term, ...] = ()
    sort: tuple[SortKey, ...] = ()
    limit: int = DEFAULT_LIMIT

    @property
    def costly(self) -> bool:
        """Whether it takes much longer than a pass over its columns."""
        kept = any(value.function not in ("count", "sum", "avg", "min", "max") for value in self.values)
        return kept or weight(self.where) > MAX_SMALL_FILTER


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """Groups of one moment; `total` counts all of them, not only these."""

    table: str
    generation: int
    version: int
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    groups: pa.Table
    total: int


def parse_by(raw: str | Sequence[str]) -> tuple[Group, ...]:
    """`accountType,age:10` as groups; each column once."""
    found: list[Group] = []
    for text in (raw,) if isinstance(raw, str) else raw:
        position = 0
        while text[position:].strip():
            name, position = read_name(text, position, "by", stop=":")
            width = _WIDTH.match(text, position)
            group = Group(name)
            if width is not None:
                group, position = Group(name, Decimal(width["number"]), width["unit"]), width.end()
                if not group.width:
                    raise _bad("by", f"{group.name} has no width", _BY_HINT)
            position = _after_comma("by", text, position, _BY_HINT)
            found.append(group)
    names = [group.name for group in found]
    if len(set(names)) < len(names):
        raise _bad("by", f"{show(next(name for name in names if names.count(name) > 1))} comes twice", _BY_HINT)
    if len(found) > MAX_BY:
        raise _bad("by", f"{len(found)} columns, more than {MAX_BY}", "use `where` to look at a part of the rows")
    return tuple(found)


def parse_values(raw: str | Sequence[str]) -> tuple[Value, ...]:
    """`count,sum(balance)` as values, each once."""
    found: dict[str, Value] = {}
    for text in (raw,) if isinstance(raw, str) else raw:
        position = 0
        while text[position:].strip():
            value, position = _read_value(text, position)
            position = _after_comma("values", text, position, _VALUES_HINT)
            found.setdefault(value.name, value)
    if len(found) > MAX_VALUES:
        raise _bad("values", f"{len(found)} values, more than {MAX_VALUES}", _VALUES_HINT)
    return tuple(found.values()) or (Value("count"),)


def _read_value(text: str, position: int) -> tuple[Value, int]:
    opened = _OPEN.match(text, position)
    if opened is None:
        name, position = read_name(text, position, "values", stop="")
        if name.lower() != "count":
            raise _bad("values", f"{show(name)} is not a function of a column", _VALUES_HINT)
        return Value("count"), position
    function = opened[1].lower()
    if function not in _FUNCTIONS:
        raise _bad("values", f"no function {show(opened[1])}", _VALUES_HINT)
    rest = text[opened.end() :].lstrip()
    if function == "count" and rest[:1] in (")", "*"):
        end = text.find(")", opened.end())
        if end < 0:
            raise _bad("values", "count( is not closed by `)`", _VALUES_HINT)
        return Value("count"), end + 1
    column, position = read_name(text, opened.end(), "values", stop="")
    closed = re.compile(r"\s*\)").match(text, position)
    if closed is None:
        raise _bad("values", f"{function}({column} is not closed by `)`", _VALUES_HINT)
    return Value(function, column), closed.end()


def _after_comma(place: str, text: str, position: int, hint: str) -> int:
    found = _COMMA.match(text, position)
    if found is None:
        raise _bad(place, f"{show(text[position:])} where a comma was expected", hint)
    return found.end()


def read_summary(database: Readable, summary: Summary) -> SummaryResult:
    """The groups in memory, of one moment."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, _MS in table.hidden)
        try:
            found = snapshot.query(statement.text(table.source), statement.parameters).to_arrow_table()
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise _bad(
                "values", "a sum does not fit its type", "use avg, or a filter that leaves fewer or smaller numbers"
            ) from error
        total = found.column(_TOTAL)[0].as_py() if found.num_rows else 0
        if total > MAX_GROUPS:
            raise _bad(
                "by",
                f"{total} groups, more than {MAX_GROUPS}",
                "group by a column with fewer values, or in wider bins; or use `where`",
                "too_many_groups",
            )
        columns = tuple(Column(name, kind.name) for name, kind in statement.columns.items())
        groups = found.drop_columns([_TOTAL]).rename_columns([column.name for column in columns])
        by = tuple(group.name for group in summary.by)
        return SummaryResult(summary.table, table.generation, snapshot.version(table), by, columns, groups, total)


_TOTAL = "_total"


@dataclass(frozen=True, slots=True)
class Statement:
    """The SQL of a summary over a table that is still to be named, and the types of its columns."""

    select: str
    where: str
    order: str
    limit: int
    parameters: list[object]
    columns: Mapping[str, ColumnType]
    grouped: bool

    def text(self, source: str) -> str:
        # Numbers stand for the columns: a name that was asked for may be anything.
        by = " GROUP BY ALL" if self.grouped else ""
        groups = f"SELECT {self.select} FROM {source} WHERE {self.where}{by}"
        return f"SELECT *, count(*) OVER () AS {_TOTAL} FROM ({groups}) ORDER BY {self.order} LIMIT {self.limit}"


def compile_summary(summary: Summary, columns: Mapping[str, ColumnType], dated: bool) -> Statement:
    """The statement of a summary; `dated`: the table has the times of its records."""
    condition, parameters = compile_where(summary.where, columns)
    made: dict[str, ColumnType] = {}
    parts: list[str] = []
    for group in summary.by:
        text, kind = _grouped(group, columns, dated)
        made[group.name] = kind
        parts.append(text)
    for value in summary.values:
        text, kind = _calculated(value, columns)
        if value.name in made:
            raise _bad(
                "values", f"{show(value.name)} is also a column of `by`", "give the column bins, or leave one out"
            )
        made[value.name] = kind
        parts.append(text)
    select = ", ".join(f"{part} AS c{number}" for number, part in enumerate(parts))
    return Statement(select, condition, _order(summary, made), summary.limit, parameters, made, bool(summary.by))


def _grouped(group: Group, columns: Mapping[str, ColumnType], dated: bool) -> tuple[str, ColumnType]:
    if group.column == RECORD_TIME and RECORD_TIME not in columns:
        if not dated:
            raise _bad("by", f"this table has no {RECORD_TIME}: its rows are not Kafka records", _BY_HINT)
        name, kind = f"make_timestamptz({_MS} * 1000)", _TIMESTAMP
    else:
        _known(group.column, columns, "by")
        name, kind = quoted(group.column), columns[group.column]
    if group.width is None:
        return name, kind
    if kind.name in ("timestamp", "date"):
        return _time_bin(group, name, kind), kind
    if not _is_number(kind) or group.unit:
        what = "a number has a width without a unit" if _is_number(kind) else f"{kind.name} has no bins"
        raise _bad("by", f"{group.name}: {what}", _BY_HINT)
    return _number_bin(group.width, name, kind)


def _time_bin(group: Group, name: str, kind: ColumnType) -> str:
    width = group.width or Decimal(0)
    if not group.unit:
        raise _bad("by", f"{group.name}: the width of a time has a unit", _BY_HINT)
    seconds = width * _SECONDS[group.unit]
    if kind.name == "date":
        if seconds % _SECONDS["d"]:
            raise _bad("by", f"{group.name}: a date has bins of whole days", _BY_HINT)
        days = int(seconds) // _SECONDS["d"]
        number = f"date_diff('day', DATE '1970-01-01', {name})"
        return f"(DATE '1970-01-01' + CAST({_floor(number, days)} AS INTEGER))"
    microseconds = int(seconds * 1_000_000)
    if not microseconds:
        raise _bad("by", f"{group.name}: a bin is a microsecond at least", _BY_HINT)
    return f"make_timestamptz({_floor(f'epoch_us({name})', microseconds)})"


def _number_bin(width: Decimal, name: str, kind: ColumnType) -> tuple[str, ColumnType]:
    """The lower end of a number's bin: whole where the numbers and the width are."""
    if kind.name in ("int32", "int64") and width == width.to_integral_value():
        return _floor(f"CAST({name} AS BIGINT)", int(width)), _INT64
    digits = max(0, -int(width.as_tuple().exponent))
    return f"round(floor(CAST({name} AS DOUBLE) / {width}) * {width}, {digits})", _DOUBLE


def _floor(number: str, width: int) -> str:
    """The greatest multiple of `width` that is not above the whole `number`."""
    # DuckDB's remainder has the sign of the number.
    return f"({number} - ((({number}) % {width}) + {width}) % {width})"


def _calculated(value: Value, columns: Mapping[str, ColumnType]) -> tuple[str, ColumnType]:
    if value.column is None:
        return "count(*)", _INT64
    _known(value.column, columns, "values")
    name, kind = quoted(value.column), columns[value.column]
    if value.function in ("count", "count_distinct"):
        return f"count({'DISTINCT ' * (value.function != 'count')}{name})", _INT64
    if value.function in ("min", "max"):
        return f"{value.function}({name})", kind
    if value.function in _PERCENTILES and kind.name in ("date", "timestamp"):
        return f"quantile_disc({name}, {_PERCENTILES[value.function]})", kind
    if not _is_number(kind):
        numbers = ", ".join(column for column, other in columns.items() if _is_number(other)) or "none"
        hint = f"columns that are numbers: {numbers}"
        raise _bad("values", f"{value.name} needs a number; {show(value.column)} is {kind.name}", hint)
    if value.function == "sum":
        return _sum(name, kind)
    if value.function == "avg":
        return f"avg(CAST({name} AS DOUBLE))", _DOUBLE
    return f"quantile_cont(CAST({name} AS DOUBLE), {_PERCENTILES[value.function]})", _DOUBLE


def _sum(name: str, kind: ColumnType) -> tuple[str, ColumnType]:
    if kind.name in ("int32", "int64"):
        return f"CAST(sum({name}) AS BIGINT)", _INT64
    if kind.name.startswith("decimal"):
        scale = kind.name.rpartition(",")[2].rstrip(")")
        wide = ColumnType.parse(f"decimal(38,{scale})")
        return f"CAST(sum({name}) AS {wide.duckdb})", wide
    return f"sum(CAST({name} AS DOUBLE))", _DOUBLE


def _order(summary: Summary, made: Mapping[str, ColumnType]) -> str:
    """By what was asked, then by the groups themselves, so that the order is total."""
    names = list(made)
    parts = []
    for key in summary.sort:
        if key.column not in made:
            hint = f"sort by: {', '.join(names)}"
            raise TurnoutError(code="bad_sort", message=f"sort: no column {show(key.column)}", hint=hint)
        parts.append(f"c{names.index(key.column)} {'DESC' if key.descending else 'ASC'} NULLS LAST")
    parts += [f"c{number} ASC NULLS LAST" for number in range(len(summary.by))]
    return ", ".join(parts) or "c0"


def _is_number(kind: ColumnType) -> bool:
    return kind.name in ("int32", "int64", "float", "double") or kind.name.startswith("decimal")


def _known(name: str, columns: Mapping[str, ColumnType], place: str) -> None:
    if name not in columns:
        raise _bad(place, f"no column {show(name)}", f"columns: {', '.join(columns)}")


def _bad(place: str, message: str, hint: str, code: str | None = None) -> TurnoutError:
    return TurnoutError(code=code or f"bad_{place}", message=f"{place}: {message}", hint=hint)
