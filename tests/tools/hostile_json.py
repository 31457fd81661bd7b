"""Hostile JSON records: unusual numbers, texts, names, spaces and bytes in otherwise plain objects."""

from __future__ import annotations

import json
import random

COLUMNS = {
    "id": "string",
    "age": "int64",
    "small": "int32",
    "balance": "double",
    "ratio": "float",
    "on": "boolean",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(10,2)",
    "tiny": "decimal(2,2)",
}

NUMBERS = [
    "0",
    "1",
    "-1",
    "-0",
    "0.0",
    "-0.0",
    "1.0",
    "1.5",
    "1e2",
    "1E2",
    "1e-2",
    "1e400",
    "-1e400",
    "1e308",
    "1.8e308",
    "4.9e-324",
    "1e-400",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "123456789.12",
    "12345678.905",
    "0.005",
    "1.005",
    "-1.005",
    "99999999.995",
    "99999999.99",
    "100000000",
    "1e7",
    "1e8",
    "1.25e1",
    "3.4028235e38",
    "3.4028236e38",
    "1e39",
    "1e-50",
    "0.1",
    "16777217",
    "0.99",
    "0.995",
    "1767355200",
    "1767355200000",
    "99999999999999",
    "1e1000000000",
    "1e-1000000000",
    "1e-77",
    "1e-999",
    "1e-9999999",
    "0." + "0" * 400 + "1",
    "1" * 45,
    "-62135596801",
    "253402300800",
    "01",
    "1.",
    ".5",
    "+1",
    "1e",
    "1e+",
    "-",
    "0x10",
    "NaN",
    "Infinity",
    "-Infinity",
    "Inf",
    "-Inf",
    "nan",
    "1_0",
    "1,5",
]
TEXTS = (
    "a", "", "é", "🚂", "NaN", "Info", "true", "null", "1", "1.5", " 1.5", "1.5 ", "1e2", "+1", ".5", "5.", "1,000.5",
    "x" * 300, "{", "}", "[]", '{"a":1}', "2026-01-02", "2026-1-2", "2024-02-29", "2026-02-29", "0000-01-01",
    "0001-01-01", "9999-12-31", "10000-01-01", "+10000-01-01", "-0001-01-01", "5881580-07-10", "5881580-07-11",
    "2026-01-02T12:00:00Z", "2026-01-02T12:00:00", "2026-01-02 12:00:00", "2026-01-02T12:00", "2026-01-02T12",
    "2026-01-02T12:00:00.5Z", "2026-01-02T12:00:00.123456Z", "2026-01-02T12:00:00.1234567Z",
    "2026-01-02T12:00:00+01:00", "2026-01-02T12:00:00-0330", "2026-01-02T12:00:00+01", "2026-01-02T12:00:00+23:59",
    "2026-01-02T12:00:00+24:00", "2026-01-02T12:00:00+01:60", "2026-01-02T24:00:00Z", "2026-01-02T23:59:60Z",
    "2026-01-02T12:00:00 Z", "2026-01-02T12:00:00z", "2026-01-02T12:60:00Z", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-01:00", "294247-01-10T04:00:54.775806Z", "294247-01-10T04:00:54.775807Z", "noon",
    "infinity", "٢٠٢٦-٠١-٠٢", "١", "2026-01-02T12:00:00.Z", "2026-01-02T", "2026-01-02 ", "\t2026-01-02",
)  # fmt: skip
RAW_STRINGS = (
    '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\/"', '"\\x"', '"\\u12"', '"\\n"', '"\t"', '"\n"',
    '"\x7f"', '"', "'a'", '"a', 'a"', '"\\"', '"\\\\"', '"\x00"', '"\ufeff"', '"\ufffe"',
)  # fmt: skip
STRUCTURES = (
    "[]",
    "{}",
    "[1 , 2.50]",
    '{"b" : 1.50}',
    "[1,]",
    '{"a":1,}',
    "[NaN]",
    '{"id":"x"}',
    "[[[]]]",
    "[" * 250 + "]" * 250,
)
WORDS = ("true", "false", "null", "True", "nul", "tru", "undefined", "")
INVALID = (
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\x0b",
    b"\n",
    b" ",
    b"}",
    b"{",
    b",",
    b"]",
)


def a_value(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NUMBERS)
    if kind < 0.75:
        return json.dumps(rng.choice(TEXTS), ensure_ascii=rng.random() < 0.5)
    return rng.choice(rng.choice((RAW_STRINGS, STRUCTURES, WORDS)))


GOOD = {
    "id": ['"a"', '"\\u00e9"', '"🚂"', "null"],
    "age": ["1", "-5", "null"],
    "small": ["7"],
    "balance": ["1.5", "-0", "2", "1e-3"],
    "ratio": ["0.1", "3"],
    "on": ["true", "false"],
    "day": ['"2026-01-02"'],
    "at": ['"2026-01-02T12:00:00Z"'],
    "price": ["1.25", '"1.25"', "3"],
    "tiny": ["0.25"],
    "other": ["1", "[1]", '{"id":"no"}', "null"],
}


def a_record(rng: random.Random, oddness: float | None = None) -> bytes | None:
    """Return mostly an object of known fields, with a few unusual values, names, spaces and bytes."""
    oddness = rng.random() if oddness is None else oddness
    fields = []
    for name in rng.sample(list(GOOD), rng.randint(0, 6)):
        value = rng.choice(GOOD[name]) if rng.random() > oddness * 0.5 else a_value(rng)
        if rng.random() < 0.01 * oddness:
            name = rng.choice(("", "i\\u0064", "\\ud800", "id", "ID", "a\nb"))
        space = rng.choice(("", "", "", "", " ", "\n", "\t\r\n ")) if oddness > 0.3 else ""
        fields.append(f'"{name}"{space}:{space}{value}{space}')
    text = b"{" + ",".join(fields).encode("utf-8", "surrogatepass") + b"}"
    if oddness > 0.9:
        at = rng.randint(0, len(text))
        change = rng.random()
        if change < 0.4:
            text = text[:at] + rng.choice(INVALID) + text[at:]
        elif change < 0.6:
            text = text[:at]
        elif change < 0.8:
            text = text[at:]
        elif change < 0.85:
            return None
        elif change < 0.9:
            text = text + text
        else:
            text = rng.choice(
                (b"", b" ", b"[]", b"null", b"12", b'"text"', b"{}", b" {}", b"{} ", b"NaN", b"//", b"{'id':1}")
            )
    return text
