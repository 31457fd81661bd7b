"""Summaries of a table: groups of its rows, and counts, sums, averages and percentiles of each group.

Owns their texts (`by=accountType,age:10`, `values=count,sum(balance)`) and their structured form; `summary_sql.py` has
the SQL that they become, `summary_read.py` runs it. Filters are `where.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.nearest import suggestion
from turnout.plan.where import MAX_SMALL_FILTER, SortKey, Term, read_name, weight

MAX_BY = 3
MAX_VALUES = 20
MAX_LIMIT = 10_000
DEFAULT_LIMIT = 100

RECORD_TIME = "_time"
"""The name that `by` has for the time of a row's Kafka record."""

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WIDTH = re.compile(r"\s*:\s*(?P<number>[0-9]{1,18}(?:\.[0-9]{1,12})?)(?P<unit>[smhd]?)\s*", re.ASCII)
_OPEN = re.compile(r"\s*([a-z0-9_]+)\s*\(", re.ASCII | re.IGNORECASE)
_SIGNED = re.compile(r"\s*([+-])")
_COMMA = re.compile(r"\s*(,|$)\s*")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_FUNCTIONS = ("count", "sum", "avg", "min", "max", "count_distinct", *PERCENTILES)
_VALUES_HINT = f"write count, or a function of a column: {', '.join(f'{name}(column)' for name in _FUNCTIONS[1:])}"
BY_HINT = "write up to three columns; a number may have a width (age:10), a time one with a unit (ts:1m, of s, m, h, d)"

_T = TypeVar("_T")


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
    """A value that is calculated for each group; `column` None: its rows are counted."""

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


def parse_by(raw: str | Sequence[str]) -> tuple[Group, ...]:
    """`accountType,age:10` as groups; each column once."""
    found = list(_listed(raw, "by", BY_HINT, _read_group))
    names = [group.name for group in found]
    if len(set(names)) < len(names):
        raise bad("by", f"{show(next(name for name in names if names.count(name) > 1))} comes twice", BY_HINT)
    if len(found) > MAX_BY:
        raise bad("by", f"{len(found)} columns, more than {MAX_BY}", "use `where` to select a part of the rows")
    return tuple(found)


def parse_values(raw: str | Sequence[str]) -> tuple[Value, ...]:
    """`count,sum(balance)` as values, each once."""
    found = {value.name: value for value in _listed(raw, "values", _VALUES_HINT, _read_value)}
    if len(found) > MAX_VALUES:
        raise bad("values", f"{len(found)} values, more than {MAX_VALUES}", _VALUES_HINT)
    return tuple(found.values()) or (Value("count"),)


def parse_order(raw: str | Sequence[str]) -> tuple[SortKey, ...]:
    """`-sum(balance),kind` as keys over the columns of a summary: a leading minus means descending."""
    found: dict[str, SortKey] = {}
    for key in _listed(raw, "sort", "write columns of the answer: -count, -sum(balance)", _read_key):
        # A column that comes again can change nothing.
        found.setdefault(key.column, key)
    return tuple(found.values())


def _listed(
    raw: str | Sequence[str], place: str, hint: str, read: Callable[[str, int], tuple[_T, int]]
) -> Iterator[_T]:
    """What `read` finds in one or several texts: it is given a position, and returns the one after what it read."""
    for text in (raw,) if isinstance(raw, str) else raw:
        position = 0
        while text[position:].strip():
            item, position = read(text, position)
            comma = _COMMA.match(text, position)
            if comma is None:
                raise bad(place, f"{show(text[position:])} where a comma was expected", hint)
            position = comma.end()
            yield item


def _read_group(text: str, position: int) -> tuple[Group, int]:
    name, position = read_name(text, position, "by", stop=":")
    width = _WIDTH.match(text, position)
    if width is None:
        return Group(name), position
    group = Group(name, Decimal(width["number"]), width["unit"])
    if not group.width:
        raise bad("by", f"{group.name} has no width", BY_HINT)
    return group, width.end()


def _read_key(text: str, position: int) -> tuple[SortKey, int]:
    signed = _SIGNED.match(text, position)
    if signed is not None:
        position = signed.end()
    if _OPEN.match(text, position):
        value, position = _read_value(text, position, "sort")
        name = value.name
    else:
        name, position = read_name(text, position, "sort", stop="")
    return SortKey(name, signed is not None and signed[1] == "-"), position


def _read_value(text: str, position: int, place: str = "values") -> tuple[Value, int]:
    opened = _OPEN.match(text, position)
    if opened is None:
        name, position = read_name(text, position, place, stop="")
        if name.lower() != "count":
            raise bad(place, f"{show(name)} is not a function of a column", _VALUES_HINT)
        return Value("count"), position
    function = opened[1].lower()
    if function not in _FUNCTIONS:
        raise bad(place, f"no function {show(opened[1])}", f"{suggestion(function, _FUNCTIONS)}{_VALUES_HINT}")
    rest = text[opened.end() :].lstrip()
    if function == "count" and rest[:1] in (")", "*"):
        end = text.find(")", opened.end())
        if end < 0:
            raise bad(place, "count( is not closed by `)`", _VALUES_HINT)
        return Value("count"), end + 1
    column, position = read_name(text, opened.end(), place, stop="")
    closed = re.compile(r"\s*\)").match(text, position)
    if closed is None:
        raise bad(place, f"{function}({column} is not closed by `)`", _VALUES_HINT)
    return Value(function, column), closed.end()


def bad(place: str, message: str, hint: str, code: str | None = None) -> TurnoutError:
    return TurnoutError(code=code or f"bad_{place}", message=f"{place}: {message}", hint=hint)
