"""Formats besides JSON, without Spark: values of columns, Avro, Protobuf, and what is said of records and schemas."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from turnout.decoders import Decoder, RegistrySchemas, decoders_of, shown
from turnout.formats.avro import is_recursive
from turnout.formats.protobuf import message_indexes
from turnout.formats.rows import LEFT_OVER, opened
from turnout.formats.values import fit_of, text_of

from turnout.cli.diagnosis import judge
from turnout.columns import ColumnType
from turnout.config import Format, Settings, parse
from turnout.errors import ConfigError, TurnoutError
from turnout.registry import RegisteredSchema

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
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
    ("string", NOON, "2026-01-02T12:00:00+00:00"),
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
    ("decimal(38,0)", Decimal(10**38 - 1), Decimal(10**38 - 1)),
    ("date", date(2026, 1, 2), date(2026, 1, 2)),
    ("date", "2026-01-02", date(2026, 1, 2)),
    ("date", "2026-1-2", MISFIT),
    ("date", NOON, MISFIT),
    ("timestamp", NOON, NOON),
    ("timestamp", NOON.replace(tzinfo=None), NOON),
    ("timestamp", "2026-01-02T13:00:00+01:00", NOON),
    ("timestamp", "2026-01-02", NOON.replace(hour=0)),
    ("timestamp", "noon", MISFIT),
    ("timestamp", 1767355200000, MISFIT),
]


@pytest.mark.parametrize(("kind", "value", "fitting"), FITS)
def test_value_fits_its_column_or_is_none(kind: str, value: Any, fitting: Any) -> None:
    found = fit_of(kind)(value)
    assert (found, type(found)) == (fitting, type(fitting))


def test_text_of_a_value_is_that_of_json() -> None:
    assert text_of([1, 2.5, "a", None, True]) == '[1,2.5,"a",null,true]'


def columns(**kinds: str) -> dict[str, ColumnType]:
    return {name: ColumnType.parse(kind) for name, kind in kinds.items()}


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": of, "type": kind} for of, kind in fields]}


def encoded(schema: Any, value: Any, number: int | None = None, named: Any = None) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(schema, named), value)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + payload.getvalue()


class FakeRegistry:
    """Schemas by id, and how often each was asked for; without them it does not answer."""

    def __init__(self, schemas: dict[int, RegisteredSchema]) -> None:
        self.schemas: dict[int, RegisteredSchema] | None = schemas
        self.asked: list[int] = []

    def schema(self, number: int) -> RegisteredSchema | None:
        self.asked.append(number)
        if self.schemas is None:
            raise TurnoutError(code="registry_unreachable", message="away", status=503)
        return self.schemas.get(number)


def by_registry(
    schemas: dict[int, RegisteredSchema], form: Format = Format.AVRO, **kinds: str
) -> tuple[Decoder, FakeRegistry]:
    registry = FakeRegistry(schemas)
    of_form: Any = RegistrySchemas(registry, form)  # type: ignore[arg-type]
    return Decoder(form, columns(**kinds), of_form), registry


def avro(schema: Any, *references: tuple[str, RegisteredSchema]) -> RegisteredSchema:
    return RegisteredSchema("AVRO", json.dumps(schema), references)


ONE = record(("id", "string"), ("age", "int"))
TWO = record(("id", "string"), ("age", ["null", "long"]), ("more", {"type": "array", "items": "int"}))


def test_records_are_read_by_the_schemas_of_their_ids() -> None:
    decoder, registry = by_registry({1: avro(ONE), 2: avro(TWO)}, id="string", age="int64", more="string")
    values = [encoded(ONE, {"id": "a", "age": 1}, 1), encoded(TWO, {"id": "b", "age": None, "more": [1]}, 2)]
    for _ in range(2):
        rows = decoder.read(values)
        assert rows.columns == {"id": ["a", "b"], "age": [1, None], "more": [None, "[1]"]}
        assert (rows.whole, rows.faults) == ([True, True], [None, None])
    assert sorted(registry.asked) == [1, 2]


def test_records_that_are_none_say_why() -> None:
    text = avro("string")
    others = RegisteredSchema("PROTOBUF", "")
    decoder, registry = by_registry({1: avro(ONE), 2: text, 3: others, 4: avro("nope")}, id="string", age="int64")
    whole = encoded(ONE, {"id": "a", "age": 1}, 1)
    values = [b"", b"hello", whole[:4], whole[:-1], whole + b"x", encoded("string", "a", 2)]
    values += [number.to_bytes(5, "big") for number in (3, 4, 9, 2**32 - 1)]
    reasons = [fault[0][1] for fault in decoder.read(values).faults if fault]
    assert reasons[:7] == [
        *["no schema id: the first byte is not 0"] * 3,
        *["not valid Avro of schema 1"] * 2,
        "not an Avro record",
        "schema 3 is PROTOBUF, not AVRO",
    ]
    assert reasons[7].startswith("schema 4 is of no use: ") and "nope" in reasons[7]
    assert reasons[8:] == [f"schema {number} is not in the registry" for number in (9, 2**32 - 1)]
    # A second look, and then not again for a while.
    decoder.read(values)
    assert registry.asked.count(9) == 2


def test_field_of_another_type_is_null_and_named() -> None:
    schema = record(("id", "string"), ("age", "string"))
    decoder, _ = by_registry({1: avro(schema)}, id="string", age="int64")
    rows = decoder.read([encoded(schema, {"id": "a", "age": "old"}, 1)])
    assert rows.columns == {"id": ["a"], "age": [None]}
    assert rows.faults == [[("age", "expected int64, got old")]]


def test_registry_that_is_away_makes_no_record_bad() -> None:
    decoder, registry = by_registry({1: avro(ONE)}, id="string")
    schemas, registry.schemas = registry.schemas, None
    value = encoded(ONE, {"id": "a", "age": 1}, 1)
    with pytest.raises(TurnoutError, match="away"):
        decoder.read([value])
    registry.schemas = schemas
    assert decoder.read([value]).columns["id"] == ["a"]
    registry.schemas = None
    assert decoder.read([value]).columns["id"] == ["a"]


def test_schema_that_refers_to_others_is_read_with_them() -> None:
    inner = record(("x", "int"), name="shop.Inner")
    outer = record(("id", "string"), ("inner", "shop.Inner"), name="shop.Outer")
    schema = avro(outer, ("shop.Inner", avro(inner)))
    decoder, _ = by_registry({1: schema, 2: RegisteredSchema("AVRO", "{}", (), "gone")}, id="string", inner="string")
    named: dict[str, Any] = {}
    fastavro.parse_schema(inner, named)
    rows = decoder.read([encoded(outer, {"id": "a", "inner": {"x": 1}}, 1, named), b"\0\0\0\0\2"])
    assert rows.columns["inner"] == ['{"x":1}', None]
    assert rows.faults[1] == [(None, "schema 2 is of no use: it refers to gone, which is not in the registry")]


def test_record_that_is_nested_without_end_is_a_bad_one() -> None:
    node = record(("id", "string"), ("next", ["null", "Node"]), name="Node")
    pair = record(("left", node), ("right", "Node"), name="Pair")
    decoder, _ = by_registry({1: avro(node), 2: avro(pair)}, id="string", next="string", left="string")
    some = {"id": "a", "next": {"id": "b", "next": None}}
    values = [encoded(node, some, 1), encoded(pair, {"left": some, "right": some}, 2)]
    endless = (b"\0\0\0\0\1" + b"\0\2" * 100_000 + b"\0\0", b"\0\0\0\0\2" + b"\0\2" * 100_000)
    rows = decoder.read([*values, *endless])
    assert rows.columns["next"][0] == '{"id":"b","next":null}'
    assert rows.faults == [None, None, *([(None, f"not valid Avro of schema {number}")] for number in (1, 2))]


def test_type_that_is_used_twice_is_not_recursive() -> None:
    inner = record(("x", "int"), name="Inner")
    for kinds, recursive in (((inner, "Inner"), False), ((inner, {"type": "map", "values": "Outer"}), True)):
        named: dict[str, Any] = {}
        fastavro.parse_schema(record(*zip("ab", kinds, strict=True), name="Outer"), named)
        assert is_recursive(named) == recursive


def test_array_of_nothing_is_of_no_use() -> None:
    schema = record(("id", "string"), ("a", ["null", {"type": "array", "items": "null"}]))
    decoder, _ = by_registry({1: avro(schema)}, id="string")
    [[(_, reason)]] = [fault or [] for fault in decoder.read([b"\0\0\0\0\1"]).faults]
    assert reason == "schema 1 is of no use: it has an array of nothing, which can be of any length"


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "kinds.proto";
message Other { string id = 1; }
message User {
  message Inner { string id = 1; }
  string user_id = 1;
  int64 age = 2;
  optional string email = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.StringValue nick = 5;
  shop.Kind kind = 6;
  repeated int32 marks = 7;
  map<string, int32> counts = 8;
  Other other = 9;
  bytes raw = 10;
}
"""
KINDS = 'syntax = "proto3"; package shop; enum Kind { NONE = 0; GOLD = 1; }'
KIND_COLUMNS = {
    "userId": "string",
    "age": "int64",
    "email": "string",
    "at": "timestamp",
    "nick": "string",
    "kind": "string",
    "marks": "string",
    "counts": "string",
    "other": "string",
    "raw": "string",
    "absent": "string",
}
# user_id, age, at, nick, kind, marks, counts, other, raw by their numbers and wire types.
USER = (
    b"\x0a\x01a\x10\x05\x22\x06\x08\xc0\xe6\xde\xca\x06\x2a\x03\x0a\x01n\x30\x01\x3a\x02\x01\x02"
    b"\x42\x05\x0a\x01k\x10\x07\x4a\x03\x0a\x01o\x52\x01\xff"
)
READ = {
    "userId": "a",
    "age": 5,
    "email": None,
    "at": NOON,
    "nick": "n",
    "kind": "GOLD",
    "marks": "[1,2]",
    "counts": '{"k":7}',
    "other": '{"id":"o"}',
    "raw": "/w==",
    "absent": None,
}


def test_protobuf_of_a_registry_is_read_by_the_message_that_records_name() -> None:
    schema = RegisteredSchema("PROTOBUF", PROTO, (("kinds.proto", RegisteredSchema("PROTOBUF", KINDS)),))
    wrong = RegisteredSchema("PROTOBUF", "message {")
    decoder, _ = by_registry({1: schema, 2: wrong}, Format.PROTOBUF, **KIND_COLUMNS, id="string")
    first, user, inner = b"\0\0\0\0\1\0", b"\0\0\0\0\1\2\2", b"\0\0\0\0\1\4\2\0"
    values = [user + USER, first + b"\x0a\x01z", inner + b"\x0a\x01y", user + b"\x0a\xff", b"\0\0\0\0\1\2\x12"]
    rows = decoder.read([*values, user, b"\0\0\0\0\2"])
    assert {name: column[0] for name, column in rows.columns.items()} == READ | {"id": None}
    assert rows.columns["id"][1:3] == ["z", "y"]
    assert [fault and fault[0][1] for fault in rows.faults[:6]] == [
        *[None] * 3,
        *["not valid Protobuf of schema 1"] * 2,
        None,
    ]
    # What has no presence is there with its default.
    assert (rows.columns["userId"][5], rows.columns["age"][5], rows.columns["email"][5]) == ("", 0, None)
    [(_, reason)] = rows.faults[6] or []
    assert reason.startswith("schema 2 is of no use: schema-2.proto:1:")


@pytest.mark.parametrize(("data", "found"), [(b"\0x", ((0,), 1)), (b"\2\4", ((2,), 2)), (b"\4\2\x80\1", ((1, 64), 4))])
def test_message_indexes_are_zigzag_varints(data: bytes, found: Any) -> None:
    assert message_indexes(data) == found


def test_workers_read_what_is_plain_and_leave_the_rest() -> None:
    import pyarrow as pa

    decoder, _ = by_registry({1: avro(ONE)}, id="string", age="int64")
    good = encoded(ONE, {"id": "a", "age": 1}, 1)
    decoder.read([good])
    values = [good, None, b"hello", b"\0\0\0\0\2x", good]
    batch = pa.record_batch({"_id": range(5), "_ts": [NOON] * 5, "value": values})
    parts = opened([decoder.wanted(3)])(batch)
    assert parts[3].to_pylist() == [{"id": "a", "age": 1, "_id": place, "_ts": NOON} for place in (0, 4)]
    assert parts[LEFT_OVER]["_id"].to_pylist() == [1, 2, 3]


def test_workers_need_nothing_of_turnout(tmp_path: Path) -> None:
    import turnout.spark.bulk  # noqa: F401 - it says what is sent by value
    from pyspark import cloudpickle

    schema = RegisteredSchema("PROTOBUF", 'syntax = "proto3"; message M { string id = 1; }')
    decoders = [by_registry({1: avro(ONE)}, id="string")[0], by_registry({1: schema}, Format.PROTOBUF, id="string")[0]]
    values = [encoded(ONE, {"id": "a", "age": 1}, 1), b"\0\0\0\0\1\0\x0a\x01a"]
    for decoder, value in zip(decoders, values, strict=True):
        decoder.read([value])
        dumped = cloudpickle.dumps((opened, [decoder.wanted(0)], value))  # type: ignore[no-untyped-call]
        tmp_path.joinpath("code").write_bytes(dumped)
        code = (
            "import sys; sys.modules['turnout'] = None\n"
            "import pickle, pathlib, pyarrow as pa\n"
            f"opened, wanted, value = pickle.loads(pathlib.Path({str(tmp_path / 'code')!r}).read_bytes())\n"
            "batch = pa.record_batch({'_id': [0], '_ts': [0], 'value': [value]})\n"
            "print(opened(wanted)(batch)[0]['id'].to_pylist())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == "['a']\n", done.stderr


def settings_of(folder: Path, **source: str) -> Settings:
    shared = {"topic": "t", "table": "t_ui", "key": "userId", "columns": KIND_COLUMNS}
    return parse({"views": {}, "sources": {"a": shared | source}}, folder, {})


def test_schema_of_a_file_reads_records_without_an_id(tmp_path: Path) -> None:
    schema = record(("userId", "string"), ("age", "int"))
    tmp_path.joinpath("a.avsc").write_text(json.dumps(schema))
    decoder = decoders_of(settings_of(tmp_path, format="avro", schema_file="a.avsc"))["a"]
    rows = decoder.read([encoded(schema, {"userId": "a", "age": 5}), b"\xff"])
    assert (rows.columns["userId"], rows.columns["age"]) == (["a", None], [5, None])
    assert rows.faults == [None, [(None, "not valid Avro")]]


def test_message_of_a_file_reads_records_without_an_id(tmp_path: Path) -> None:
    tmp_path.joinpath("user.proto").write_text(PROTO)
    tmp_path.joinpath("kinds.proto").write_text(KINDS)
    settings = settings_of(tmp_path, format="protobuf", schema_file="user.proto", message="shop.User")
    rows = decoders_of(settings)["a"].read([USER])
    assert {name: column[0] for name, column in rows.columns.items()} == READ


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"format": "avro", "schema_file": "none"}, "No such file or directory; correct it or name another"),
        ({"format": "avro", "schema_file": "bad"}, "Expecting value"),
        ({"format": "protobuf", "schema_file": "bad"}, "bad:1:"),
        ({"format": "protobuf", "schema_file": "kinds", "message": "X"}, "has no message X (has: Other)"),
    ],
)
def test_file_without_a_schema_is_a_fault_of_the_configuration(tmp_path: Path, source: Any, said: str) -> None:
    tmp_path.joinpath("bad").write_text("nothing")
    tmp_path.joinpath("kinds").write_text('syntax = "proto3"; message Other { string id = 1; }')
    with pytest.raises(ConfigError) as caught:
        decoders_of(settings_of(tmp_path, **source))
    [fault] = caught.value.faults
    assert fault.startswith("sources.a.schema_file: ") and said in fault


def test_check_judges_records_by_their_format(tmp_path: Path) -> None:
    schema = record(("userId", "string"), ("age", "string"))
    tmp_path.joinpath("a.avsc").write_text(json.dumps(schema))
    settings = settings_of(tmp_path, format="avro", schema_file="a.avsc")
    decoder, source = decoders_of(settings)["a"], settings.sources["a"]
    warned = judge("source a", source, [encoded(schema, {"userId": "a", "age": "x"})], decoder)
    assert warned.level == "warning" and "age: expected int64, got x" in warned.text
    failed = judge("source a", source, [b"\xff"], decoder)
    assert (failed.level, failed.text) == ("fault", "0 of the newest 1 records fit: not valid Avro (1x)")


@pytest.mark.parametrize(
    ("value", "text"),
    [(b'{"a": 1}\n', '{"a": 1}\n'), (b"\0\0\0\0\1x", "base64:AAAAAAF4"), (b"\xff", "base64:/w=="), (b"", "base64:")],
)
def test_bad_record_is_shown_as_text_where_it_is_one(value: bytes, text: str) -> None:
    assert shown(value) == text
