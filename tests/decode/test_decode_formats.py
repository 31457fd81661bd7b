"""Avro and Protobuf without a registry: values of columns, times that Python cannot hold, and poison."""

from __future__ import annotations

import base64
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from decoded_records import Found, found, raw, shape
from turnout.decode.avro import is_recursive
from turnout.decode.columns import Day, Moment, fit_of, text_of
from turnout.decode.decoder import open_decoder
from turnout.decode.exact_reader import shown
from turnout.decode.protobuf import message_indexes
from turnout.decode.shape import SourceShape
from turnout.plan.times import FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from turnout.schemas.source_schemas import compiled

NOON = 1_767_355_200_000_000
DAY = 20_455
MISFIT = None

FITS: list[tuple[str, Any, Any]] = [
    ("string", "a", "a"),
    ("string", "", ""),
    ("string", 12, "12"),
    ("string", 12.5, "12.5"),
    ("string", True, "true"),
    ("string", float("nan"), "NaN"),
    ("string", float("-inf"), "-Infinity"),
    ("string", b"\x00\xff", "AP8="),
    ("string", Moment(NOON), "2026-01-02T12:00:00+00:00"),
    ("string", Moment(NOON * 1000), "+57975-04-05T00:00:00+00:00"),
    ("string", Day(DAY), "2026-01-02"),
    ("string", [Day(-1), Moment(1)], '["1969-12-31","1970-01-01T00:00:00.000001+00:00"]'),
    ("string", Decimal("1E+3"), "1000"),
    ("string", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ("string", {"a": [1, None, "é"], "b": {"c": 0.5}}, '{"a":[1,null,"é"],"b":{"c":0.5}}'),
    ("boolean", False, False),
    ("boolean", 1, MISFIT),
    ("int32", -(2**31), -(2**31)),
    ("int32", 2**31, MISFIT),
    ("int64", 2**63 - 1, 2**63 - 1),
    ("int64", 2**63, MISFIT),
    ("int64", 1.0, MISFIT),
    ("int64", True, MISFIT),
    ("int64", "1", MISFIT),
    ("int64", Moment(1), MISFIT),
    ("double", 3, 3.0),
    ("double", Decimal("1.5"), 1.5),
    ("double", float("nan"), MISFIT),
    ("double", float("inf"), MISFIT),
    ("double", "1.5", MISFIT),
    ("float", 0.5, 0.5),
    ("float", 1e39, MISFIT),
    ("decimal(4,2)", Decimal("12.345"), Decimal("12.35")),
    ("decimal(4,2)", 12, Decimal("12.00")),
    ("decimal(4,2)", 1.1, Decimal("1.10")),
    ("decimal(4,2)", "1.25", Decimal("1.25")),
    ("decimal(4,2)", Decimal("99.995"), MISFIT),
    ("decimal(4,2)", "NaN", MISFIT),
    ("decimal(4,2)", "x", MISFIT),
    ("decimal(4,2)", Day(1), MISFIT),
    ("decimal(38,0)", Decimal(10**38 - 1), Decimal(10**38 - 1)),
    ("date", Day(DAY), DAY),
    ("date", Day(LAST_DAY), LAST_DAY),
    ("date", Day(LAST_DAY + 1), MISFIT),
    ("date", "2026-01-02", DAY),
    ("date", "2026-1-2", MISFIT),
    ("date", Moment(NOON), MISFIT),
    ("date", 1, MISFIT),
    ("timestamp", Moment(NOON), NOON),
    ("timestamp", Moment(LAST_MICROSECOND), LAST_MICROSECOND),
    ("timestamp", Moment(LAST_MICROSECOND + 1), MISFIT),
    ("timestamp", Moment(FIRST_MICROSECOND - 1), MISFIT),
    ("timestamp", Day(DAY), NOON - 43_200_000_000),
    ("timestamp", Day(2**31 - 1), MISFIT),
    ("timestamp", "2026-01-02T13:00:00+01:00", NOON),
    ("timestamp", "2026-01-02", NOON - 43_200_000_000),
    ("timestamp", "noon", MISFIT),
    ("timestamp", 1767355200000, MISFIT),
]


@pytest.mark.parametrize(("kind", "value", "fitting"), FITS)
def test_value_fits_its_column_or_is_none(kind: str, value: Any, fitting: Any) -> None:
    found = fit_of(kind)(value)
    assert (found, type(found)) == (fitting, type(fitting))


def test_text_of_a_value_is_that_of_json() -> None:
    assert text_of([1, 2.5, "a", None, True]) == '[1,2.5,"a",null,true]'


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": of, "type": kind} for of, kind in fields]}


def encoded(schema: Any, value: Any) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(schema), value)
    return payload.getvalue()


def read(source: SourceShape, *values: bytes) -> list[Found]:
    return found(open_decoder([source])(raw(values)), len(values))


def avro(schema: Any, columns: dict[str, str]) -> SourceShape:
    return shape(columns, form="avro", schemas={0: (json.dumps(schema),)})


def protobuf(text: str, columns: dict[str, str], framed: bool = False) -> SourceShape:
    definition = (compiled({"m.proto": text}, "m.proto"), "m.proto", None if framed else (0,))
    return shape(columns, form="protobuf", schemas={int(framed): definition}, framed=framed)


def test_avro_times_beyond_the_year_9999_are_kept_or_named() -> None:
    kinds: dict[str, tuple[str, str, str]] = {
        "day": ("int", "date", "date"),
        "millis": ("long", "timestamp-millis", "timestamp"),
        "micros": ("long", "timestamp-micros", "timestamp"),
        "local": ("long", "local-timestamp-millis", "timestamp"),
        "text": ("long", "timestamp-millis", "string"),
        "time": ("int", "time-millis", "string"),
    }
    schema = record(*((name, {"type": kind, "logicalType": logical}) for name, (kind, logical, _) in kinds.items()))
    plain = record(*((name, kind) for name, (kind, _, _) in kinds.items()))
    source = avro(schema, {name: column for name, (_, _, column) in kinds.items()})
    far = 1_794_770_092_800_000  # the year 58844 in milliseconds
    values = [
        encoded(plain, dict(zip(kinds, numbers, strict=True)))
        for numbers in (
            (DAY, NOON // 1000, NOON, NOON // 1000, NOON // 1000, 1_500),
            (2**31 - 2, far, far * 1000, -far, far, -1),
            (-(2**31), 2**63 - 1, 2**63 - 1, -(2**63), 2**63 - 1, 2**31 - 1),
        )
    ]
    good, kept, (row, faults) = read(source, *values)
    today: dict[str, Any] = {"day": DAY, "millis": NOON, "micros": NOON, "local": NOON}
    assert good == (today | {"text": "2026-01-02T12:00:00+00:00", "time": "00:00:01.500000"}, [])
    away: dict[str, Any] = {"day": 2**31 - 2, "millis": far * 1000, "micros": far * 1000, "local": -far * 1000}
    assert kept == (away | {"text": "+58844-01-01T00:00:00+00:00", "time": "-1"}, [])
    assert row is not None
    assert [row[name] for name in today] == [None] * 4
    assert (row["text"][:10], row["time"]) == ("+292278994", "2147483647")
    assert faults[0] == ("day", 'expected date, got "-5877641-06-23"')
    assert [field for field, _ in faults] == ["day", "millis", "micros", "local"]


def test_protobuf_times_beyond_the_year_9999_are_kept_or_named() -> None:
    text = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    message M { google.protobuf.Timestamp at = 2; Inner inner = 3; string id = 4; }
    message Inner { google.protobuf.Timestamp at = 1; }
    """
    source = protobuf(text, {"id": "string", "at": "timestamp", "inner": "string"})

    def moment(seconds: int, nanos: int = 0) -> bytes:
        from google.protobuf import timestamp_pb2

        made: bytes = timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
        return bytes([len(made)]) + made

    far = 1_794_770_092_800
    kept, odd, beyond = read(
        source,
        b"\x12" + moment(far, 5_000),
        b"\x12" + moment(1, -1) + b"\x22\x01a",
        b"\x12" + moment(2**62) + b"\x1a" + bytes([len(moment(far)) + 1]) + b"\x0a" + moment(far),
    )
    assert kept == ({"id": "", "at": far * 1_000_000 + 5, "inner": None}, [])
    assert odd == ({"id": "a", "at": None, "inner": None}, [("at", 'expected timestamp, got "1 s -1 ns"')])
    assert beyond[0] is not None
    assert beyond[0]["inner"] == f"at {{ seconds: {far} }}"
    assert [field for field, _ in beyond[1]] == ["at"]


NOTHING = [
    "null",
    {"type": "record", "name": "Empty", "fields": []},
    {"type": "fixed", "name": "F", "size": 0},
    record(("a", "null"), ("b", {"type": "null"}), name="Nulls"),
    record(("a", record(("b", "null"), name="Inner")), ("c", "Inner"), name="Outer"),
]


@pytest.mark.parametrize("items", NOTHING)
@pytest.mark.parametrize("within", [False, True])
def test_avro_array_of_nothing_is_of_no_use(items: Any, within: bool) -> None:
    """Nine bytes could say that it has 2^62 items."""
    array: Any = {"type": "array", "items": items}
    schema = record(("id", "string"), ("a", {"type": "map", "values": ["null", array]} if within else array))
    with pytest.raises(ValueError, match="it has an array whose items take no bytes, so it can have any length"):
        open_decoder([avro(schema, {"id": "string"})])


def test_avro_array_of_a_named_type_that_takes_no_bytes_is_of_no_use() -> None:
    schema = record(("e", record(name="Empty")), ("a", {"type": "array", "items": "Empty"}))
    with pytest.raises(ValueError, match="array whose items take no bytes"):
        open_decoder([avro(schema, {"e": "string"})])


@pytest.mark.parametrize(
    "items",
    [
        "int",
        ["null"],
        {"type": "array", "items": "int"},
        {"type": "map", "values": "null"},
        record(("a", "null"), ("b", "int"), name="Some"),
        record(("next", ["null", "Node"]), name="Node"),
    ],
)
def test_avro_array_that_declares_more_than_the_record_has_is_a_bad_record(items: Any) -> None:
    schema = record(("a", {"type": "array", "items": items}))
    source = avro(schema, {"a": "string"})
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    values = (b"\0", many, many + b"\0" * 1000, b"\x01" + many, b"\x01\x01" + b"\0" * 5)
    good, *bad = read(source, *values)
    assert good == ({"a": "[]"}, [])
    assert [(row, faults) for row, faults in bad] == [(None, [(None, "not valid Avro")])] * 4


def test_avro_lengths_beyond_the_record_are_bad() -> None:
    source = avro(record(("a", "string"), ("b", "bytes")), {"a": "string"})
    for length in (
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 50,
    ):
        assert read(source, length + b"abc") == [(None, [(None, "not valid Avro")])]


@pytest.mark.parametrize("fixed", [False, True])
def test_avro_decimal_of_a_million_digits_is_a_bad_record(fixed: bool) -> None:
    """A few hundred of them in one compressed batch would take hours to read."""
    size = 1_000_000
    number = {"logicalType": "decimal", "precision": 30, "scale": 2}
    schema = record(("d", number | ({"type": "fixed", "size": size, "name": "F"} if fixed else {"type": "bytes"})))
    plain = record(("d", {"type": "fixed", "size": size, "name": "F"} if fixed else "bytes"))
    short, long = (encoded(plain, {"d": start + bytes(size - 2) + b"\x7b"}) for start in (b"\0", b"\x7f"))
    assert read(avro(schema, {"d": "decimal(30,2)"}), short, long) == [
        ({"d": Decimal("1.23")}, []),
        (None, [(None, "not valid Avro")]),
    ]


def test_avro_decimal_has_all_its_digits() -> None:
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}))
    numbers = (b"\xff", b"", (10**20 + 1).to_bytes(9, "big"))
    values = [encoded(record(("d", "bytes")), {"d": number}) for number in numbers]
    rows = [row for row, _ in read(avro(schema, {"d": "string"}), *values)]
    assert rows == [{"d": "-0.01"}, {"d": "0.00"}, {"d": "1000000000000000000.01"}]


@pytest.mark.parametrize(("precision", "scale"), [(10_000_000, 9_999_999), (10, 11), (0, 0), (5, -1), ("5", 1)])
def test_avro_decimal_that_could_be_of_any_length_is_of_no_use(precision: Any, scale: int) -> None:
    """One byte would be a text of megabytes."""
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}))
    with pytest.raises(ValueError, match="it has a decimal whose precision is not from 1 to 1,000, or below its scale"):
        open_decoder([avro(schema, {"d": "string"})])


def test_avro_schema_of_thousands_of_types_is_of_no_use() -> None:
    types = [(f"f{number}", {"type": "fixed", "name": f"T{number}", "size": 1}) for number in range(1_001)]
    with pytest.raises(ValueError, match="it has more than 1,000 named types"):
        open_decoder([avro(record(*types), {"f0": "string"})])


def doubling(levels: int) -> dict[str, Any]:
    """A record that has the one of the level below twice, and so on down to one without fields."""
    kind = record(name="R0")
    for level in range(1, levels + 1):
        kind = record(("a", kind), ("b", f"R{level - 1}"), name=f"R{level}")
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        doubling(17),
        ["null", doubling(4)],
        {"type": "map", "values": ["null", record(*((f"n{number}", "null") for number in range(9)), name="Nulls")]},
        record(("i", "int"), *((f"n{number}", "null") for number in range(16)), name="Some"),
    ],
)
def test_avro_record_of_few_bytes_cannot_have_many_values(kind: Any) -> None:
    """Thirty levels would be a thousand million values without a byte."""
    with pytest.raises(ValueError, match="it has a type that is mostly values without bytes, so it can be of any size"):
        open_decoder([avro(record(("id", "string"), ("a", kind)), {"id": "string"})])


def test_avro_record_with_some_values_without_bytes_is_read() -> None:
    nulls = [(f"n{number}", "null") for number in range(20)]
    kind = record(("a", doubling(1)), ("id", "string"), ("b", "string"), *nulls)
    assert read(avro(kind, {"id": "string"}), b"\x02x\x02y") == [({"id": "x"}, [])]


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_texts_that_are_not_utf8_make_a_bad_record(text: bytes) -> None:
    inside = bytes([len(text) * 2]) + text
    for kind in ("string", {"type": "map", "values": "int"}):
        payload = inside if kind == "string" else b"\2" + inside + b"\2\0"
        source = avro(record(("a", kind)), {"a": "string"})
        assert read(source, payload) == [(None, [(None, "not valid Avro")])]
    for syntax in ("proto2", "proto3"):
        of = "optional string a = 1; map<string, string> b = 2;"
        source = protobuf(f'syntax = "{syntax}"; message M {{ {of} }}', {"b": "string", "a": "string"})
        field = b"\x0a" + bytes([len(text)]) + text
        for payload in (field, b"\x12" + bytes([len(field)]) + field):
            [(row, faults)] = read(source, payload)
            if syntax == "proto2" and payload == field:
                # There such a text is bytes, and shown as these.
                assert (row, faults) == ({"a": base64.b64encode(text).decode(), "b": "{}"}, [])
            else:
                assert (row, faults) == (None, [(None, "not valid Protobuf")])


def test_avro_record_that_is_nested_without_end_is_a_bad_one() -> None:
    node = record(("id", "string"), ("next", ["null", "Node"]), name="Node")
    source = avro(node, {"id": "string", "next": "string"})
    level = b"\2a\2"
    shallow, deeper, deep = read(source, level * 50 + b"\2a\0", level * 150 + b"\2a\0", level * 100_000)
    assert shallow[0] is not None and shallow[0]["next"].count("id") == 50
    assert deeper == deep == (None, [(None, "not valid Avro")])


def test_type_that_is_used_twice_is_not_recursive() -> None:
    inner = record(("x", "int"), name="Inner")
    for kinds, recursive in (((inner, "Inner"), False), ((inner, {"type": "map", "values": "Outer"}), True)):
        named: dict[str, Any] = {}
        fastavro.parse_schema(record(*zip("ab", kinds, strict=True), name="Outer"), named)
        assert is_recursive(named) == recursive


@pytest.mark.parametrize(("data", "found"), [(b"\0x", ((0,), 1)), (b"\2\4", ((2,), 2)), (b"\4\2\x80\1", ((1, 64), 4))])
def test_message_indexes_are_zigzag_varints(data: bytes, found: Any) -> None:
    assert message_indexes(data) == found


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 1_000_000,
        b"\xfe\xff\xff\xff\x0f" + b"\0" * 1_000_000,
        b"\x01",
        b"\2" + b"\xff" * 1_000_000,
        b"\2\x7f",
        b"",
    ],
    ids=["endless number", "many indexes", "negative", "endless index", "no such message", "nothing"],
)
def test_protobuf_record_with_absurd_message_indexes_is_a_bad_one(payload: bytes) -> None:
    source = protobuf('syntax = "proto3"; message M { string id = 1; }', {"id": "string"}, framed=True)
    assert read(source, b"\0\0\0\0\1" + payload) == [(None, [(None, "not valid Protobuf of schema 1")])]


def test_workers_need_nothing_of_turnout(tmp_path: Path) -> None:
    import subprocess
    import sys

    from pyspark import cloudpickle

    from turnout.decode.decoder import merge
    from turnout.spark.read.bulk import carry_code
    from turnout.spark.read.task import read, write

    carry_code()
    proto = 'syntax = "proto3"; message M { string id = 1; }'
    sources = [
        shape({"id": "string", "price": "decimal(10,2)", "at": "timestamp"}, tombstones=True),
        shape(
            {"id": "string"},
            topic=1,
            form="avro",
            schemas={1: (json.dumps(record(("id", "string"))),)},
            framed=True,
        ),
        protobuf(proto, {"id": "string"}),
    ]
    values = [b'{"id":"a","price":1.5,"at":1}'] * 100 + [b"nope", b"\0\0\0\0\1\2a", b"\x0a\x01a"]
    batch = raw(values, topics=[0] * 101 + [1, 2])
    sources[2] = SourceShape("p", 2, "id", {"id": "string"}, False, "protobuf", sources[2].schemas)
    task = (open_decoder, write, merge, sources, batch)
    tmp_path.joinpath("code").write_bytes(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
    code = (
        "import sys; sys.modules['turnout'] = None\n"
        "import pickle, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "opened, write, merge, sources, batch = pickle.loads((folder / 'code').read_bytes())\n"
        "import pyarrow\n"
        "with pyarrow.OSFile(str(folder / 'rows'), 'wb') as sink:\n"
        "    write(merge([opened(sources)(batch)]), sink)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    decoded = read(tmp_path / "rows")
    assert [decoded.rows[number]["id"].to_pylist() for number in range(3)] == [["a"] * 100, ["a"], ["a"]]
    assert decoded.faults is not None and decoded.faults["reason"].to_pylist() == ["not valid JSON"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(b'{"a": 1}\n', '{"a": 1}\n'), (b"\0\0\0\0\1x", "base64:AAAAAAF4"), (b"\xff", "base64:/w=="), (b"", "base64:")],
)
def test_bad_record_is_shown_as_text_where_it_is_one(value: bytes, text: str) -> None:
    assert shown(value) == text
