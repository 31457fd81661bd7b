"""The column type that the values of a field have, and the evidence for it.

`decode/columns.py` alone decides which values fit a type; this module decides which of the fitting types is meant. A
number in quotes stays text. Up to 5 % of the values may be exceptions, which are null in their rows and stand in
`bad_records`. A field whose values are of several kinds is a string, which takes any value as its JSON text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from turnout.decode.columns import Day, Fraction, Moment, Structure, Whole, fit_of, json_of, text_of
from turnout_client.column_types import ColumnType

_WORDS: dict[type, str] = {
    bool: "flag",
    Whole: "whole number",
    int: "whole number",
    Fraction: "fraction",
    float: "fraction",
    Decimal: "fraction",
    str: "text",
    Day: "date",
    Moment: "time",
    bytes: "binary value",
    Structure: "object",
    dict: "object",
    list: "list",
}
_NUMBERS = frozenset({"whole number", "fraction"})
# Values of one family can have one type; those of two can only be strings.
_FAMILIES = (frozenset({"flag"}), _NUMBERS, frozenset({"text"}), frozenset({"date", "time"}))
_NEARLY_ALL = 0.95
_EXCEPTIONS_SHOWN = 3
_STRUCTURES = {"object", "list"}
# Stricter than what fits: a part number such as 1200-1-2 is no date to people.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DATE.pattern}(?:[Tt ][0-9]{{2}}:[0-9]{{2}}.*)?")
_DIGITS = 38
_TIME_NAME = re.compile(r"(?i)at$|time|date|^ts$|_ts$|stamp|since|until|created|updated|modified")
# From 2000 to 2100, in seconds.
_YEARS = (946_684_800, 4_102_444_800)
_LONGEST_SHOWN = 32


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A field of some records, the type for its column, and why."""

    name: str
    kind: str
    evidence: str
    records: int
    """How many were looked at."""
    present: int
    """How many have a value of it."""
    values: frozenset[str]
    """The values as texts."""
    nested: bool = False
    """Whether it has objects or lists."""
    exceptions: int = 0
    """How many of the values do not fit the type."""

    @property
    def exact(self) -> bool:
        """Whether its type can be a key's."""
        return ColumnType.parse(self.kind).exact


def infer(name: str, values: Sequence[Any], records: int, declared: str | None = None) -> InferredColumn:
    """The column of a field whose values in `records` records are these; `declared` is its type by a schema."""
    given = [value for value in values if value is not None]
    words = Counter(_word(value) for value in given)
    kind = declared or _chosen(given, words)
    texts = frozenset(map(text_of, given))
    fit = fit_of(kind)
    fitting = [value for value in given if fit(value) is not None]
    exceptions = [value for value in given if fit(value) is None]
    evidence = [f"{len(given):,} of {records:,} records", *_noted(name, kind, fitting, words, len(texts))]
    if exceptions:
        evidence.append(_excepted(exceptions))
    nested = bool(words.keys() & _STRUCTURES)
    return InferredColumn(name, kind, ", ".join(evidence), records, len(given), texts, nested, len(exceptions))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def different(values: int) -> str:
    return "1 value" if values == 1 else f"{values:,} different values"


def _word(value: Any) -> str:
    return _WORDS.get(type(value), "other value")


def _fits(kind: str, values: Sequence[Any]) -> bool:
    return _fitting(kind, values) == len(values)


def _fitting(kind: str, values: Sequence[Any]) -> int:
    """How many of the values fit a type."""
    fit = fit_of(kind)
    return sum(fit(value) is not None for value in values)


def _chosen(values: Sequence[Any], words: Counter[str]) -> str:
    """The type of nearly all values; a string where nearly all have none in common."""
    least = _NEARLY_ALL * len(values)
    for family in _FAMILIES:
        members = [value for value in values if _word(value) in family]
        if members and len(members) >= least:
            kind = _of_family(members, set(words) & family, least)
            return kind if _fitting(kind, members) >= least else "string"
    return "string"


def _of_family(values: Sequence[Any], words: set[str], least: float) -> str:
    """The type of values that are all flags, numbers, texts or times; `least` is how many must fit."""
    if words == {"flag"}:
        return "boolean"
    if words <= _NUMBERS:
        return _number(values, words, least)
    if words == {"text"}:
        return _text(values, least)
    return "date" if words == {"date"} and _fits("date", values) else "timestamp"


def _number(values: Sequence[Any], words: set[str], least: float) -> str:
    if words == {"whole number"}:
        kinds = ("int64", f"decimal({_DIGITS},0)")
        whole = next((kind for kind in kinds if _fits(kind, values)), None)
        return whole or next((kind for kind in kinds if _fitting(kind, values) >= least), "string")
    fit = fit_of("double")
    values = [value for value in values if fit(value) is not None]
    if all(map(_keeps_digits, values)):
        return "double"
    scale = max(map(_scale, values))
    exact = f"decimal({_DIGITS},{scale})"
    return exact if 0 <= scale <= _DIGITS and _fits(exact, values) else "double"


def _keeps_digits(value: Any) -> bool:
    """Whether a double shows the number as it was sent."""
    try:
        return Decimal(repr(float(value))) == Decimal(value)
    except ArithmeticError:
        return False


def _scale(value: Any) -> int:
    """How many digits after the point matter."""
    try:
        _, digits, exponent = Decimal(value).as_tuple()
    except ArithmeticError:
        return -1
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, -exponent - zeros) if isinstance(exponent, int) else -1


def _text(values: Sequence[str], least: float) -> str:
    dates = [value for value in values if _DATE.fullmatch(value)]
    if _fitting("date", dates) >= least:
        return "date"
    moments = [value for value in values if _MOMENT.fullmatch(value)]
    return "timestamp" if _fitting("timestamp", moments) >= least else "string"


def _noted(name: str, kind: str, given: Sequence[Any], words: Counter[str], distinct: int) -> list[str]:
    if not given:
        return ["never a value: its type is a guess"]
    if kind == "boolean":
        return []
    known = ColumnType.parse(kind)
    if known.number or known.time:
        return [_range(kind, given), *_hint(name, kind, given)]
    if kind == "string" and (len(words) > 1 or words.keys() - {"text", "binary value"}):
        kinds = ", ".join(counted(count, word) for word, count in words.most_common())
        return [f"{kinds}: kept as JSON text"]
    return [different(distinct)]


def _excepted(values: Sequence[Any]) -> str:
    """How many values are exceptions, and the most frequent of them."""
    frequent = Counter(_shortened(json_of(value)) for value in values).most_common(_EXCEPTIONS_SHOWN)
    more = ", ..." if sum(times for _, times in frequent) < len(values) else ""
    shown = ", ".join(text if times == 1 else f"{text} ({times:,}x)" for text, times in frequent)
    return f"{len(values):,} do not fit: {shown}{more}"


def _range(kind: str, given: Sequence[Any]) -> str:
    fit = fit_of(kind)
    least, most = (_shortened(text_of(chosen(given, key=fit))) for chosen in (min, max))
    return least if least == most else f"{least} to {most}"


def _hint(name: str, kind: str, given: Sequence[Any]) -> list[str]:
    if kind != "int64" or not _TIME_NAME.search(name):
        return []
    if all(_YEARS[0] <= int(value) < _YEARS[1] for value in given):
        return ["seconds since 1970? then timestamp shows them as times"]
    if all(_YEARS[0] <= int(value) // 1000 < _YEARS[1] for value in given):
        return ["milliseconds since 1970? timestamp takes seconds, or texts such as 2026-01-31T12:00:00Z"]
    return []


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
