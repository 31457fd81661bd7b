"""Guards of a swap: what a new generation must show, compared with the one that is shown. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple


class BrokenGuard(NamedTuple):
    """The name of a guard, and both figures in words."""

    guard: str
    text: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.text}"


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """The limits, as shares of 1; None where bad records do not count."""

    min_rows: Fraction = Fraction(0)
    min_matched: Fraction = Fraction(0)
    max_bad: Fraction | None = None


class Matched(NamedTuple):
    """The join quality of a view, or of a step of one: left rows, and how many of them match."""

    view: str
    left: int
    matched: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What guards count of a generation."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """The rows of each view."""
    matched: Mapping[str, Matched] = field(default_factory=dict)
    """The join quality of each view and step."""
    read: int = 0
    """The records that it has read itself; those of kept sources were shown before."""
    bad: int = 0
    """How many of these have a fault."""
    not_begun: frozenset[str] = frozenset()
    """The views of sources that begin at `latest` and have no rows yet."""


def broken_guards(limits: GuardLimits, before: Figures, after: Figures) -> list[BrokenGuard]:
    """The guards that `after` breaks. Views that only one of them has are not compared."""
    return [*_rows(limits.min_rows, before, after), *_matched(limits.min_matched, before, after), *_bad(limits, after)]


def _rows(least: Fraction, before: Figures, after: Figures) -> Iterator[BrokenGuard]:
    for view, rows in after.rows.items():
        shown = before.rows.get(view, 0)
        if view not in after.not_begun and rows < least * shown:
            text = f"{view} has {rows:,} rows instead of {shown:,}; at least {_percent(least)} of these are required"
            yield BrokenGuard("min_rows", text)


def _matched(least: Fraction, before: Figures, after: Figures) -> Iterator[BrokenGuard]:
    for name, new in after.matched.items():
        old = before.matched.get(name)
        if new.view in after.not_begun or old is None or not (new.left and old.left):
            continue
        share, shown = Fraction(new.matched, new.left), Fraction(old.matched, old.left)
        if share < least * shown:
            text = (
                f"{name} matches {_percent(share)} of its left rows ({new.matched:,} of {new.left:,}) instead of "
                f"{_percent(shown)} ({old.matched:,} of {old.left:,}); at least {_percent(least)} of that is required"
            )
            yield BrokenGuard("min_matched", text)


def _bad(limits: GuardLimits, after: Figures) -> Iterator[BrokenGuard]:
    most = limits.max_bad
    if most is not None and after.bad > most * after.read:
        share = _percent(Fraction(after.bad, after.read or 1))
        text = f"{after.bad:,} of {after.read:,} records have faults ({share}); at most {_percent(most)} may"
        yield BrokenGuard("max_bad", text)


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):.4g}%"
