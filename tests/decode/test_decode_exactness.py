"""Random Avro records of random schemas, written by another library, against a plain account of what their rows are.

Both ways of decoding are held against it: on the driver, that asks for schemas, and in workers, by those then known.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import avro.io
import avro.schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoded_records import found, raw, source
from lengths import DECODE_EXAMPLES
from turnout.config import Format
from turnout.decode.decoder import Decoded, merge, open_decoder
from turnout.schemas.record_decoder import RecordDecoder
from turnout.schemas.registry import RegisteredSchema
from turnout.schemas.source_schemas import RegistrySchemas

COLUMNS = {
    "id": "string",
    "age": "int64",
    "small": "int32",
    "score": "double",
    "on": "boolean",
    "note": "string",
    "price": "decimal(10,2)",
    "day": "date",
    "at": "timestamp",
}
MISFIT = object()
"""A value that its column cannot show: null, and a fault that names the field."""

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=5)
moments = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def same(value: Any) -> Any:
    return value


def misfit(value: Any) -> Any:
    return MISFIT


def days(value: date) -> Any:
    return (value - date(1970, 1, 1)).days


def microseconds(value: datetime) -> Any:
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def as_json(value: Any) -> Any:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def in_cents(value: Decimal) -> Any:
    """Rounded half up, by whole numbers alone."""
    thousandths = int(value * 1000)
    cents = (abs(thousandths) + 5) // 10
    return Decimal(cents if thousandths >= 0 else -cents) / 100


Option = tuple[Any, st.SearchStrategy[Any], Callable[[Any], Any]]
OPTIONS: dict[str, list[Option]] = {
    "id": [("string", text, same), ("long", int64, str), ("boolean", st.booleans(), as_json)],
    "age": [("int", int32, same), ("long", int64, same), ("string", text, misfit), ("double", st.floats(), misfit)],
    "small": [("int", int32, same), ("long", int64, lambda n: n if -(2**31) <= n < 2**31 else MISFIT)],
    "score": [
        ("double", st.floats(), lambda x: x if math.isfinite(x) else MISFIT),
        ("float", st.floats(width=32, allow_nan=False, allow_infinity=False), same),
        ("long", int64, float),
        ("boolean", st.booleans(), misfit),
    ],
    "on": [("boolean", st.booleans(), same), ("int", int32, misfit)],
    "note": [
        ("string", text, same),
        ({"type": "array", "items": "int"}, st.lists(int32, max_size=3), as_json),
        ({"type": "map", "values": "string"}, st.dictionaries(text, text, max_size=1), as_json),
        (
            {"type": "record", "name": "Nested", "fields": [{"name": "n", "type": ["null", "long"]}]},
            st.fixed_dictionaries({"n": st.none() | int64}),
            as_json,
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB"), same),
        ("bytes", st.binary(max_size=4), lambda b: base64.b64encode(b).decode()),
    ],
    "price": [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-3)),
            in_cents,
        ),
        ("int", st.integers(-(10**7), 10**7), Decimal),
        ("string", text.filter(lambda t: not t.strip() or t.strip()[0].isalpha()), misfit),
    ],
    "day": [
        ({"type": "int", "logicalType": "date"}, st.dates(date(1900, 1, 1), date(2200, 1, 1)), days),
        ("string", st.dates().map(str), lambda text: days(date.fromisoformat(text))),
        ("int", int32, misfit),
    ],
    "at": [
        ({"type": "long", "logicalType": "timestamp-micros"}, moments, microseconds),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            moments.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
            microseconds,
        ),
        ("long", int64, misfit),
    ],
}

Fields = dict[str, tuple[Any, bool, st.SearchStrategy[Any], Callable[[Any], Any]]]
"""The fields of a schema: type, whether it can be null, values, and what the column shows of them."""


@st.composite
def schemas(draw: st.DrawFn) -> Fields:
    names = draw(st.permutations(list(COLUMNS)))
    chosen = names[: draw(st.integers(1, len(names)))]
    fields = {}
    for name in chosen:
        kind, values, shows = draw(st.sampled_from(OPTIONS[name]))
        fields[name] = (kind, draw(st.booleans()), values, shows)
    return fields


def described(fields: Fields) -> str:
    written = [
        {"name": name, "type": ["null", kind] if nullable else kind} for name, (kind, nullable, _, _) in fields.items()
    ]
    unknown = {"name": "unasked", "type": "string"}
    return json.dumps({"type": "record", "name": "R", "fields": [*written, unknown]})


def encoded(schema: str, number: int, values: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    writer = avro.io.DatumWriter(avro.schema.parse(schema))
    writer.write(values | {"unasked": "x"}, avro.io.BinaryEncoder(buffer))
    return b"\0" + number.to_bytes(4, "big") + buffer.getvalue()


Expected = tuple[dict[str, Any] | None, set[str | None]]
"""The row, and the fields that have a fault; None for the whole record."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[int, str], list[bytes | None], list[Expected]]:
    """Schemas by id, records, and what each is."""
    forms = draw(st.lists(schemas(), min_size=1, max_size=4))
    texts = {number: described(fields) for number, fields in enumerate(forms, 1)}
    records: list[bytes | None] = []
    expected: list[Expected] = []
    for number in draw(st.lists(st.integers(-2, len(forms)), min_size=1, max_size=60)):
        if number <= 0:
            odd = (None, b"\0\0\0\0\x63" + draw(st.binary(max_size=5)), b"x" + draw(st.binary(max_size=5)))[-number]
            records.append(odd)
            expected.append((None, {None}))
            continue
        values: dict[str, Any] = {}
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        wrong: set[str | None] = set()
        for name, (_, nullable, some, shows) in forms[number - 1].items():
            values[name] = draw(st.none() | some) if nullable else draw(some)
            if values[name] is None:
                continue
            found = shows(values[name])
            if found is MISFIT:
                wrong.add(name)
            else:
                row[name] = found
        records.append(encoded(texts[number], number, values))
        expected.append((row, wrong))
    return texts, records, expected


class Registered:
    """A registry with these schemas."""

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def schema(self, number: int) -> RegisteredSchema | None:
        return RegisteredSchema("AVRO", self._texts[number]) if number in self._texts else None


def results(decoded: Decoded, count: int) -> list[Expected]:
    """The row and the faults of each record, in their order."""
    return [(row, {field for field, _ in faults}) for row, faults in found(decoded, count)]


@settings(max_examples=DECODE_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories())
def test_random_records_of_random_schemas(history: Any) -> None:
    texts, records, expected = history
    count = len(records)
    schemas: Any = RegistrySchemas(Registered(texts), Format.AVRO)  # type: ignore[arg-type]
    decoder = RecordDecoder([source(COLUMNS, "avro")], {"s": schemas})
    assert results(decoder.decode(raw(records)), count) == expected
    # By now the schemas are known, so workers decode all but the records of a schema that nobody has.
    many = open_decoder(decoder.for_workers())(raw(records))
    left = many.left_over["_id"].to_pylist() if many.left_over is not None else []
    assert left == [place for place, value in enumerate(records) if value is not None and value[:5] == b"\0\0\0\0\x63"]
    assert many.records == count - len(left)
    last = [] if many.left_over is None else [decoder.decode(many.left_over)]
    assert results(merge([many, *last]), count) == expected
