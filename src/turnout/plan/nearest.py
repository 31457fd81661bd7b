"""The name that was probably meant: the one way in which errors suggest names of tables, columns and settings."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

# Comparing is quadratic in the length; a name this long is no slip of the pen.
_LONGEST_NAME = 60
_MOST_NAMES = 1_000


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, whatever their case; None where none is like it."""
    if len(name) > _LONGEST_NAME:
        return None
    plain = {candidate.lower(): candidate for candidate in islice(known, _MOST_NAMES)}
    close = get_close_matches(name.lower(), plain, n=1)
    return plain[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean X? `, to stand before a hint; empty where no known name is like it."""
    close = nearest(name, known)
    return f"did you mean {close}? " if close else ""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "remove it or fix the name") -> str:
    """A remedy for an unknown name: the known one that is most like it, or `otherwise`."""
    close = nearest(name, known)
    return f"did you mean '{close}'?" if close else otherwise
