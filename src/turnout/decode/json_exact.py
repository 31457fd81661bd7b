"""One JSON record -> its fields, exactly as they were sent: the final word on every record.

Python's own reader does the work. Numbers stay texts, so that none is changed or takes long to read; structures in
declared columns become the text that they had. Nesting is counted before the reader recurses.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from turnout.decode.columns import Fraction, Structure, Whole

NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "not an object"

DEEPEST = 1_000
"""Levels of nesting; what is deeper counts as not valid."""

_SPACE = re.compile(r"[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# To the end of the text where the string has none: so each character is looked at once.
_ANY_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)

Scan = Callable[[str, int], tuple[Any, int]]


def reader(columns: Sequence[str]) -> Callable[[bytes], Mapping[str, Any] | str]:
    """What reads the fields of a record: texts, booleans, None, Whole, Fraction, Structure; or why there are none."""
    decoder = json.JSONDecoder(parse_int=Whole, parse_float=Fraction, parse_constant=_refused)
    decode: Callable[[str], Any] = decoder.decode
    scan: Scan = decoder.scan_once  # type: ignore[attr-defined]
    # Python's reader recurses, and a caller may be deep in the stack already.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * DEEPEST))

    def read(value: bytes) -> Mapping[str, Any] | str:
        try:
            text = value.decode()
            if text.count("[") + text.count("{") > DEEPEST and depth(text) > DEEPEST:
                return NOT_JSON
            record = decode(text)
        except (ValueError, RecursionError):
            return NOT_JSON
        if type(record) is not dict:
            return NOT_AN_OBJECT
        places: dict[str, slice] = {}
        for name in columns:
            if type(record.get(name)) in (dict, list):
                # As the text that it had; of fields that come twice, the last counts.
                places = places or {field: slice(start, end) for field, start, end in _spans(text, scan)}
                record[name] = Structure(text[places[name]])
        if "\\u" in text:
            # Half of a pair is no character: it cannot be stored, and becomes U+FFFD.
            for name in columns:
                if type(given := record.get(name)) is str:
                    record[name] = _LONE_SURROGATE.sub("\ufffd", given)
        return record

    return read


def _refused(text: str) -> Any:
    raise ValueError(text)


def depth(text: str) -> int:
    """How deep brackets nest outside of strings."""
    bare = np.frombuffer(_ANY_STRING.sub("", text).encode(errors="replace"), np.uint8)
    opening = (bare == ord("[")) | (bare == ord("{"))
    closing = (bare == ord("]")) | (bare == ord("}"))
    levels = np.cumsum(opening.astype(np.int64) - closing)
    return int(levels.max(initial=0))


def _spans(text: str, scan: Scan) -> Iterator[tuple[str, int, int]]:
    """The name of each field of a valid object, and where its value begins and ends."""
    at = _end(_SPACE, text, text.index("{") + 1)
    while text[at] != "}":
        name, at = scan(text, at)
        at = _end(_COLON, text, at)
        _, end = scan(text, at)
        yield name, at, end
        at = _end(_COMMA, text, end)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
