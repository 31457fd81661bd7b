"""Which column type the values of a field have, and what speaks for it.

What fits a type is said by `decode/columns.py` alone; here is only which of the types that fit is meant. A number in
quotes stays text, and a field whose values are of several kinds is a string, which takes any value as its JSON text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from turnout.decode.columns import Day, Fraction, Moment, Structure, Whole, fit_of, text_of

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
_NUMBERS = {"whole number", "fraction"}
_STRUCTURES = {"object", "list"}
# Stricter than what fits: a part number such as 1200-1-2 is no date to people.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DATE.pattern}(?:[Tt ][0-9]{{2}}:[0-9]{{2}}.*)?")
_DIGITS = 38
_TIME_NAME = re.compile(r"(?i)at$|time|date|^ts$|_ts$|stamp|since|until|created|updated|modified")
# From 2000 to 2100, in seconds.
_YEARS = (946_684_800, 4_102_444_800)
_LONGEST_SHOWN = 32
_RANGED = ("int32", "int64", "float", "double", "date", "timestamp")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of some records, the type for its column, and why."""

    name: str
    kind: str
    evidence: str
    records: int
    """How many were looked at."""
    present: int
    """How many have a value of it."""
    values: frozenset[str]
    """Those values, as texts."""
    nested: bool = False
    """Whether it has objects or lists."""

    @property
    def exact(self) -> bool:
        """Whether its type can be a key's."""
        return self.kind not in ("float", "double")


def infer(name: str, values: Sequence[Any], records: int, declared: str | None = None) -> Column:
    """The column of a field whose values in `records` records are these; `declared` is its type by a schema."""
    given = [value for value in values if value is not None]
    words = Counter(_word(value) for value in given)
    kind = declared or _chosen(given, set(words))
    texts = frozenset(map(text_of, given))
    fit = fit_of(kind)
    fitting = [value for value in given if fit(value) is not None]
    evidence = [f"{len(given):,} of {records:,} records", *_noted(name, kind, fitting, words, len(texts))]
    if len(fitting) < len(given):  # of a schema, such as NaN
        evidence.append(f"{len(given) - len(fitting):,} do not fit")
    nested = bool(words.keys() & _STRUCTURES)
    return Column(name, kind, ", ".join(evidence), records, len(given), texts, nested)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _word(value: Any) -> str:
    return _WORDS.get(type(value), "other value")


def _fits(kind: str, values: Sequence[Any]) -> bool:
    fit = fit_of(kind)
    return all(fit(value) is not None for value in values)


def _chosen(values: Sequence[Any], words: set[str]) -> str:
    if not words:
        return "string"
    if words == {"flag"}:
        return "boolean"
    if words <= _NUMBERS:
        return _number(values, words)
    if words == {"text"}:
        return _text(values)
    if words == {"date"} and _fits("date", values):
        return "date"
    return "timestamp" if words <= {"date", "time"} and _fits("timestamp", values) else "string"


def _number(values: Sequence[Any], words: set[str]) -> str:
    if words == {"whole number"}:
        return next((kind for kind in ("int64", f"decimal({_DIGITS},0)") if _fits(kind, values)), "string")
    if not _fits("double", values):
        return "string"
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


def _text(values: Sequence[str]) -> str:
    if all(map(_DATE.fullmatch, values)) and _fits("date", values):
        return "date"
    return "timestamp" if all(map(_MOMENT.fullmatch, values)) and _fits("timestamp", values) else "string"


def _noted(name: str, kind: str, given: Sequence[Any], words: Counter[str], distinct: int) -> list[str]:
    if not given:
        return ["never a value: its type is a guess"]
    if kind == "boolean":
        return []
    if kind in _RANGED or kind.startswith("decimal"):
        return [_range(kind, given), *_hint(name, kind, given)]
    if kind == "string" and (len(words) > 1 or words.keys() - {"text", "binary value"}):
        kinds = ", ".join(counted(count, word) for word, count in words.most_common())
        return [f"{kinds}: kept as JSON text"]
    return [counted(distinct, "value")]


def _range(kind: str, given: Sequence[Any]) -> str:
    fit = fit_of(kind)
    least, most = (_shown(chosen(given, key=fit)) for chosen in (min, max))
    return least if least == most else f"{least} to {most}"


def _hint(name: str, kind: str, given: Sequence[Any]) -> list[str]:
    if kind != "int64" or not _TIME_NAME.search(name):
        return []
    if all(_YEARS[0] <= int(value) < _YEARS[1] for value in given):
        return ["seconds since 1970? then timestamp shows them as times"]
    if all(_YEARS[0] <= int(value) // 1000 < _YEARS[1] for value in given):
        return ["milliseconds since 1970? timestamp takes seconds, or texts such as 2026-01-31T12:00:00Z"]
    return []


def _shown(value: Any) -> str:
    text = text_of(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
