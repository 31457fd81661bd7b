"""The SQL of a summary: the parts of each group, and what is shown of them.

A *part* is a number of a group that rows can be added to and taken from: how many rows, a sum, the greatest value with
those that are next. What is shown (`avg`) is calculated of parts, so a summary that is read and one that is kept up to
date by changed rows (`summary_read.py`) are one calculation. Sums of doubles are exact, so they do not depend on the
order of the rows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.nearest import suggestion
from turnout.plan.sql_text import quoted
from turnout.plan.times import FIRST_MICROSECOND, LAST_DAY, moment_sql
from turnout.plan.where import compile_where, known_column
from turnout.store.query.summary import BY_HINT, PERCENTILES, RECORD_TIME, UNIT_SECONDS, Group, Summary, Value, bad
from turnout_client.column_types import ColumnType

RECORD_MS = "_ts"
TOTAL = "_total"
SIGN = "_sign"
"""1 in rows that came, -1 in rows that went."""

MOST_KEPT = 10
"""How many values at each end of a group are kept: as many may go until the table is read again."""

_INT64 = ColumnType.parse("int64")
_DOUBLE = ColumnType.parse("double")
_TIMESTAMP = ColumnType.parse("timestamp")
_WHOLE = "DECIMAL(38,0)"
# Of a bin of times: 31,000 years, so that a multiple of it in microseconds fits 64 bits.
_MOST_SECONDS = 10**12


@dataclass(frozen=True, slots=True)
class GroupPart:
    """`read` is calculated of all rows of a group; `row` is what one row adds to it, in the type `kind`.

    `merge`: how two of them are one: sum, min or max; empty where changed rows do not tell it.
    """

    read: str
    row: str = "NULL"
    kind: str = "BIGINT"
    merge: str = "sum"

    @property
    def is_end(self) -> bool:
        """Whether it is the value at an end, which is lost when its last row goes."""
        return self.merge in ("min", "max")


@dataclass(frozen=True, slots=True)
class End:
    """The greatest or the least value of a group (`function` says which), kept with those that are next."""

    part: str
    function: str

    @property
    def values(self) -> str:
        """The column that has them, from the end on; a value that several rows have is there as often."""
        return f"k{self.part[1:]}"

    @property
    def bound(self) -> str:
        """The column that has the last value up to which none is missing; null: none is missing at all."""
        return f"t{self.part[1:]}"

    @property
    def lost(self) -> str:
        """The column that says whether it is not known any more."""
        return f"l{self.part[1:]}"


_ROWS = GroupPart("count(*)", "1")
ROWS = "p_sum_bigint_0"
"""Its name: every summary counts the rows of its groups."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A summary over a table that is still to be named.

    Groups and parts are named by their types (`g_string_0`, `p_sum_bigint_1`): a name that was asked for may be
    anything, and columns of different summaries that have one name can stand in one table.
    """

    groups: Mapping[str, str]
    parts: Mapping[str, GroupPart]
    shown: tuple[str, ...]
    """What is shown of groups and parts, in the order of `columns`."""

    where: str
    parameters: list[object]
    order: tuple[tuple[str, bool], ...]
    """The columns of the sort, each with whether it descends."""

    limit: int
    columns: Mapping[str, ColumnType]
    unsure: tuple[str, ...]
    """Parts that count values which cannot be added exactly."""

    @property
    def ends(self) -> tuple[End, ...]:
        return tuple(End(name, part.merge) for name, part in self.parts.items() if part.is_end)

    def read(self, source: str, *more: str) -> str:
        """All groups with their parts, and `more` columns; parameters: `parameters`."""
        parts = {
            name: part.read if part.merge != "sum" else f"CAST({part.read} AS {part.kind})"
            for name, part in self.parts.items()
        }
        columns = [*(f"{text} AS {name}" for name, text in {**self.groups, **parts}.items()), *more]
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {self.where}{' GROUP BY ALL' if self.groups else ''}"

    def read_kept(self, source: str) -> str:
        """All groups with their parts and the values at each end, to be kept."""
        tops = [f"{end.function}({self.parts[end.part].row}, {MOST_KEPT}) AS {end.values}" for end in self.ends]
        bounds = [f"{end.values}[{MOST_KEPT}] AS {end.bound}" for end in self.ends]
        return f"SELECT {', '.join(['*', *bounds])} FROM ({self.read(source, *tops)})"

    def show(self, groups: str) -> str:
        """The answered columns of `groups`, in order, each with the number of all."""
        names = {text: f"c{number}" for number, text in enumerate(self.shown)}
        return (
            f"SELECT *, count(*) OVER () AS {TOTAL} FROM (SELECT {named(names)} FROM {groups}) "
            f"ORDER BY {ordered(self.order, names) or 'c0'} LIMIT {self.limit}"
        )

    @property
    def of_row(self) -> dict[str, str]:
        """A row that came or went as a group of its own: the names of groups and parts, and their SQL."""
        made = dict(self.groups)
        for name, part in self.parts.items():
            signed = (
                f"CASE WHEN {SIGN} > 0 THEN CAST({part.row} AS {part.kind}) ELSE -CAST({part.row} AS {part.kind}) END"
            )
            made[name] = part.row if part.is_end else signed
        return made


def named(names: Mapping[str, str]) -> str:
    """Texts under their names, as a SELECT has them."""
    return ", ".join(f"{text} AS {name}" for text, name in names.items())


def ordered(order: Sequence[tuple[str, bool]], names: Mapping[str, str]) -> str:
    """Texts as an ORDER BY has them, by their names."""
    return ", ".join(f"{names[text]} {'DESC' if descends else 'ASC'} NULLS LAST" for text, descends in order)


def compile_summary(summary: Summary, columns: Mapping[str, ColumnType], dated: bool) -> Statement:
    """The statement of a summary; `dated`: the table has the times of its records."""
    condition, parameters = compile_where(summary.where, columns)
    made: dict[str, ColumnType] = {}
    groups: dict[str, str] = {}
    for group in summary.by:
        text, made[group.name] = _grouped(group, columns, dated)
        groups[_free_name(groups, f"g_{made[group.name].name}")] = text
    parts, shown = _Parts(), [*groups]
    for value in summary.values:
        if value.name in made:
            raise bad(
                "values", f"{show(value.name)} is also a column of `by`", "give the column bins, or leave one out"
            )
        text, made[value.name] = _calculated(value, columns, parts)
        shown.append(text)
    return Statement(
        groups,
        parts.named,
        tuple(shown),
        condition,
        parameters,
        _order(summary, dict(zip(made, shown, strict=True))),
        summary.limit,
        made,
        tuple(parts.unsure),
    )


class _Parts:
    """The parts of a summary, each once."""

    def __init__(self) -> None:
        self.named: dict[str, GroupPart] = {ROWS: _ROWS}
        self.unsure: list[str] = []

    def name(self, part: GroupPart) -> str:
        for name, known in self.named.items():
            if known == part:
                return name
        name = _free_name(self.named, f"p_{part.merge}_{part.kind}")
        self.named[name] = part
        return name


def _free_name(taken: Mapping[str, object], kind: str) -> str:
    kind = re.sub(r"\W", "_", kind.lower())
    return next(name for number in itertools.count() if (name := f"{kind}_{number}") not in taken)


def _grouped(group: Group, columns: Mapping[str, ColumnType], dated: bool) -> tuple[str, ColumnType]:
    if group.column == RECORD_TIME and RECORD_TIME not in columns:
        if not dated:
            raise bad("by", f"this table has no {RECORD_TIME}: its rows are not Kafka records", BY_HINT)
        name, kind = moment_sql(RECORD_MS), _TIMESTAMP
    else:
        known_column(group.column, columns, "by", "bad_by")
        name, kind = quoted(group.column), columns[group.column]
    if group.width is None:
        return name, kind
    if kind.time:
        return _time_bin(group, name, kind), kind
    if not kind.number or group.unit:
        what = "a number has a width without a unit" if kind.number else f"{kind.name} has no bins"
        raise bad("by", f"{group.name}: {what}", BY_HINT)
    return _number_bin(group.width, name, kind)


def _time_bin(group: Group, name: str, kind: ColumnType) -> str:
    width = group.width or Decimal(0)
    if not group.unit:
        raise bad("by", f"{group.name}: the width of a time has a unit", BY_HINT)
    seconds = width * UNIT_SECONDS[group.unit]
    if seconds > _MOST_SECONDS:
        raise bad("by", f"{group.name}: a bin has {_MOST_SECONDS // UNIT_SECONDS['d']} days at most", BY_HINT)
    if kind.name == "date":
        if seconds % UNIT_SECONDS["d"]:
            raise bad("by", f"{group.name}: a date has bins of whole days", BY_HINT)
        days = int(seconds) // UNIT_SECONDS["d"]
        number = f"date_diff('day', DATE '1970-01-01', {name})"
        return f"(DATE '1970-01-01' + CAST({_floor(number, days, -LAST_DAY)} AS INTEGER))"
    microseconds = int(seconds * 1_000_000)
    if not microseconds:
        raise bad("by", f"{group.name}: a bin is a microsecond at least", BY_HINT)
    return f"make_timestamptz({_floor(f'epoch_us({name})', microseconds, FIRST_MICROSECOND)})"


def _number_bin(width: Decimal, name: str, kind: ColumnType) -> tuple[str, ColumnType]:
    """The lower end of a number's bin: whole where the numbers and the width are."""
    if kind.bits and width == width.to_integral_value():
        return _floor(f"CAST({name} AS BIGINT)", int(width), -(2**63)), _INT64
    digits = max(0, -int(width.as_tuple().exponent))
    return f"round(floor(CAST({name} AS DOUBLE) / {width}) * {width}, {digits})", _DOUBLE


def _floor(number: str, width: int, least: int) -> str:
    """The greatest multiple of `width` that is not above the whole `number`; `least` where the type has none."""
    first = -(-least // width) * width
    # DuckDB's remainder has the sign of the number.
    multiple = f"{number} - ((({number}) % {width}) + {width}) % {width}"
    return f"(CASE WHEN {number} < {first} THEN CAST({least} AS BIGINT) ELSE {multiple} END)"


def _calculated(value: Value, columns: Mapping[str, ColumnType], parts: _Parts) -> tuple[str, ColumnType]:
    if value.column is None:
        return parts.name(_ROWS), _INT64
    known_column(value.column, columns, "values", "bad_values")
    name, kind = quoted(value.column), columns[value.column]
    if value.function == "count_distinct":
        return parts.name(GroupPart(f"count(DISTINCT {name})", merge="")), _INT64
    if value.function in ("min", "max"):
        return parts.name(GroupPart(f"{value.function}({name})", name, kind.duckdb, value.function)), kind
    if value.function in PERCENTILES and kind.time:
        return parts.name(GroupPart(f"quantile_disc({name}, {PERCENTILES[value.function]})", merge="")), kind
    counted = GroupPart(f"count({name})", f"({name} IS NOT NULL)")
    if value.function == "count":
        return parts.name(counted), _INT64
    if not kind.number:
        numbers = ", ".join(column for column, other in columns.items() if other.number) or "none"
        hint = f"columns that are numbers: {numbers}"
        raise bad("values", f"{value.name} needs a number; {show(value.column)} is {kind.name}", hint)
    if value.function in PERCENTILES:
        quantile = f"quantile_cont(CAST({name} AS DOUBLE), {PERCENTILES[value.function]})"
        return parts.name(GroupPart(quantile, merge="")), _DOUBLE
    count, (total, wide) = parts.name(counted), _sum(name, kind, parts)
    if value.function == "avg":
        return f"CASE WHEN {count} > 0 THEN CAST({total} AS DOUBLE) / {count} END", _DOUBLE
    # Of no values it is null, also where there were some before.
    return f"CASE WHEN {count} > 0 THEN CAST({total} AS {wide.duckdb}) END", wide


def _sum(name: str, kind: ColumnType, parts: _Parts) -> tuple[str, ColumnType]:
    if kind.bits:
        return parts.name(GroupPart(f"sum({name})", name, _WHOLE)), _INT64
    if kind.digits:
        wide = ColumnType.parse(f"decimal(38,{kind.digits[1]})")
        return parts.name(GroupPart(f"sum({name})", name, wide.duckdb)), wide
    return _exact_sum(f"CAST({name} AS DOUBLE)", parts), _DOUBLE


def _exact_sum(number: str, parts: _Parts) -> str:
    """The sum of doubles by whole numbers: 1024ths of them, and 2**60ths of what is left.

    That is exact for all below 2**53 that have no bits below 2**-70. Where there are others, it is DuckDB's sum.
    """
    scaled = f"({number} * 1024)"
    left = f"(({scaled} - floor({scaled})) * {2**60})"
    fits = f"(abs({number}) < {2**53} AND {left} = floor({left}))"
    upper, lower = (f"CASE WHEN {fits} THEN CAST({text} AS BIGINT) END" for text in (f"floor({scaled})", left))
    unsure = parts.name(GroupPart(f"count(*) FILTER (NOT {fits})", f"CAST(NOT {fits} AS TINYINT)"))
    parts.unsure.append(unsure)
    # No row adds to it: it is shown of groups that were just read only.
    plain = parts.name(GroupPart(f"sum({number})", "NULL", "DOUBLE"))
    whole, rest = (parts.name(GroupPart(f"sum({text})", text, _WHOLE)) for text in (upper, lower))
    exact = f"CAST({whole} AS DOUBLE) / 1024 + CAST({rest} AS DOUBLE) / {2**70}"
    return f"(CASE WHEN coalesce({unsure}, 0) = 0 THEN {exact} ELSE {plain} END)"


def _order(summary: Summary, made: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """By what was asked, then by the groups themselves, so that the order is total."""
    keys: dict[str, bool] = {}
    for key in summary.sort:
        if key.column not in made:
            hint = f"{suggestion(key.column, made)}sort by: {', '.join(made)}"
            raise TurnoutError(code="bad_sort", message=f"sort: no column {show(key.column)}", hint=hint)
        keys.setdefault(made[key.column], key.descending)
    for group in summary.by:
        keys.setdefault(made[group.name], False)
    return tuple(keys.items())
