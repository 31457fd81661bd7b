"""One JSON record -> its fields, exactly as they were sent: the final word on every record.

Python's own reader does the work. Numbers stay texts, so that none is changed or takes long to read; structures in
declared columns become the text that they had. Nesting is counted before the reader recurses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from turnout.decode.columns import Fraction, Structure, Whole

NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "not an object"

DEEPEST = 1_000
"""Levels of nesting; what is deeper counts as not valid."""
_CERTAINLY_SHALLOW = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# To the end of the text where the string has none: so each character is looked at once.
_ANY_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<mark>[][{},:])"
    r'|(?P<string>"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")'
    r"|(?P<other>true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))"
)

Scan = Callable[[str, int], tuple[Any, int]]


def reader(columns: Sequence[str]) -> Callable[[bytes], Mapping[str, Any] | str]:
    """What reads the fields of a record: texts, booleans, None, Whole, Fraction, Structure; or why there are none."""
    decoder = json.JSONDecoder(parse_int=Whole, parse_float=Fraction, parse_constant=_refused)
    decode: Callable[[str], Any] = decoder.decode
    scan: Scan = decoder.scan_once  # type: ignore[attr-defined]

    def read(value: bytes) -> Mapping[str, Any] | str:
        try:
            text = value.decode()
            if text.count("[") + text.count("{") > _CERTAINLY_SHALLOW and (levels := depth(text)) > _CERTAINLY_SHALLOW:
                record = _deep(text, scan) if levels <= DEEPEST else NOT_JSON
            else:
                record = decode(text)
                if type(record) is dict:
                    for name in columns:
                        if type(record.get(name)) in (dict, list):
                            _with_texts(record, text, _spans(text, scan), columns)
                            break
                else:
                    record = NOT_AN_OBJECT
        except ValueError:
            return NOT_JSON
        if "\\u" in text and type(record) is dict:
            _without_lone_surrogates(record, columns)
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


def _with_texts(
    record: dict[str, Any], text: str, spans: Iterator[tuple[str, int, int]], columns: Sequence[str]
) -> None:
    """Put the text of structures in their place; of fields that come twice, the last counts."""
    places = {name: (start, end) for name, start, end in spans}
    for name in columns:
        if type(record.get(name)) in (dict, list):
            start, end = places[name]
            record[name] = Structure(text[start:end])


def _without_lone_surrogates(record: dict[str, Any], columns: Sequence[str]) -> None:
    """Half of a pair is no character: it cannot be stored, and becomes U+FFFD."""
    for name in columns:
        if type(value := record.get(name)) is str:
            record[name] = _LONE_SURROGATE.sub("\ufffd", value)


def _deep(text: str, scan: Scan) -> Mapping[str, Any] | str:
    """A record that nests deeper than Python's reader surely can go, without recursion; ValueError if not valid."""
    record: dict[str, Any] = {}
    name, start = "", 0
    expected, closers = "value", ""
    first = ""
    at = 0
    stack: list[str] = []
    while expected != "end":
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(NOT_JSON)
        at, kind, symbol = token.end(), token.lastgroup, token[token.lastgroup or 0]
        first = first or symbol
        value_at = at - len(symbol)
        if kind == "mark" and symbol in closers:
            stack.pop()
            expected = "more"
        elif expected == "value" and symbol in ("{", "["):
            if len(stack) == 1:
                start = value_at
            stack.append("}" if symbol == "{" else "]")
            expected, closers = ("name", "}") if symbol == "{" else ("value", "]")
            continue
        elif expected == "value" and kind != "mark":
            if len(stack) == 1:
                start = value_at
            expected = "more"
        elif expected == "name" and kind == "string":
            if len(stack) == 1:
                name = scan(text, value_at)[0]
            expected, closers = "colon", ""
            continue
        elif expected == "colon" and symbol == ":":
            expected = "value"
            continue
        elif expected == "more" and symbol == ",":
            expected, closers = ("name" if stack[-1] == "}" else "value"), ""
            continue
        else:
            raise ValueError(NOT_JSON)
        if len(stack) == 1 and first == "{":
            piece = text[start:at]
            record[name] = Structure(piece) if piece[0] in "{[" else scan(piece, 0)[0]
        if not stack:
            expected = "end"
        else:
            closers = stack[-1]
    if _end(_SPACE, text, at) != len(text):
        raise ValueError(NOT_JSON)
    return record if first == "{" else NOT_AN_OBJECT
