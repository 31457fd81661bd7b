"""Schemas on the driver: registries and files, and what is said of records and schemas. No Spark."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from decoded_records import found, raw, source
from turnout.config import Format, Settings, parse
from turnout.config.tables import source_table
from turnout.decode.decoder import open_decoder
from turnout.errors import ConfigError, TurnoutError
from turnout.plan.tables import SourceTable
from turnout.preflight.findings import check_records
from turnout.schemas.record_decoder import RecordDecoder
from turnout.schemas.registry import MOST_REFERENCES, RegisteredSchema
from turnout.schemas.source_schemas import RegistrySchemas, schemas_of

NOON = 1_767_355_200_000_000


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": of, "type": kind} for of, kind in fields]}


def encoded(schema: Any, value: Any, number: int | None = None, named: Any = None) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(schema, named), value)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + payload.getvalue()


@dataclass(frozen=True)
class Rows:
    """What became of records: the values of each column, whether each is a row, and what is wrong with it."""

    columns: dict[str, list[Any]]
    whole: list[bool]
    faults: list[list[tuple[str | None, str]] | None]


class Reading:
    """A driver's decoder of one source, with its results by record."""

    def __init__(self, source: SourceTable, schemas: Any) -> None:
        self.source = source
        self.decoder = RecordDecoder([source], {source.source: schemas})

    def read(self, values: Sequence[bytes | None]) -> Rows:
        results = found(self.decoder.decode(raw(values)), len(values))
        columns = {name: [row[name] if row else None for row, _ in results] for name in self.source.columns}
        return Rows(columns, [row is not None for row, _ in results], [faults or None for _, faults in results])


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
) -> tuple[Reading, FakeRegistry]:
    registry = FakeRegistry(schemas)
    of_form: Any = RegistrySchemas(registry, form)  # type: ignore[arg-type]
    return Reading(source(kinds, form.value), of_form), registry


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
    assert reasons[7].startswith("schema 4 cannot be used: ") and "nope" in reasons[7]
    assert reasons[8:] == [f"schema {number} is not in the registry" for number in (9, 2**32 - 1)]
    # A second look, and then not again for a while.
    decoder.read(values)
    assert registry.asked.count(9) == 2


def test_field_of_another_type_is_null_and_named() -> None:
    schema = record(("id", "string"), ("age", "string"))
    decoder, _ = by_registry({1: avro(schema)}, id="string", age="int64")
    rows = decoder.read([encoded(schema, {"id": "a", "age": "old"}, 1)])
    assert rows.columns == {"id": ["a"], "age": [None]}
    assert rows.faults == [[("age", 'expected int64, got "old"')]]


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
    assert rows.faults[1] == [(None, "schema 2 cannot be used: it refers to gone, which is not in the registry")]


def test_schema_that_refers_to_hundreds_is_of_no_use() -> None:
    others = [(f"n{number}", avro(record(name=f"N{number}"))) for number in range(MOST_REFERENCES + 1)]
    decoder, _ = by_registry({1: avro(record(("id", "string")), *others)}, id="string")
    reason = "schema 1 cannot be used: it refers to more than 200 others"
    assert decoder.read([b"\0\0\0\0\1"]).faults == [[(None, reason)]]


@pytest.mark.parametrize("name", ["", ".", "schema-1.proto/x", "x" * 300])
def test_name_of_a_reference_that_no_file_can_have_makes_bad_records(name: str) -> None:
    """It would fail anew with each batch, for all sources."""
    schema = RegisteredSchema("PROTOBUF", PROTO, ((name, RegisteredSchema("PROTOBUF", KINDS)),))
    decoder, _ = by_registry({1: schema}, Format.PROTOBUF, id="string")
    reason = f"schema 1 cannot be used: {name[:80]!r} is not a file name"
    assert decoder.read([b"\0\0\0\0\1"]).faults == [[(None, reason)]]


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


def test_array_of_nothing_is_of_no_use() -> None:
    schema = record(("id", "string"), ("a", ["null", {"type": "array", "items": "null"}]))
    decoder, _ = by_registry({1: avro(schema)}, id="string")
    [[(_, reason)]] = [fault or [] for fault in decoder.read([b"\0\0\0\0\1"]).faults]
    assert reason == "schema 1 cannot be used: it has an array whose items take no bytes, so it can have any length"


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
    assert reason.startswith("schema 2 cannot be used: schema-2.proto:1:")


def settings_of(folder: Path, **source: str) -> Settings:
    shared = {"topic": "t", "table": "t_ui", "key": "userId", "columns": KIND_COLUMNS}
    return parse({"views": {}, "sources": {"a": shared | source}}, folder, {})


def by_settings(settings: Settings) -> Reading:
    return Reading(source_table("a", settings.sources["a"], "t"), schemas_of(settings)["a"])


def test_schema_of_a_file_reads_records_without_an_id(tmp_path: Path) -> None:
    schema = record(("userId", "string"), ("age", "int"))
    tmp_path.joinpath("a.avsc").write_text(json.dumps(schema))
    rows = by_settings(settings_of(tmp_path, format="avro", schema_file="a.avsc")).read(
        [encoded(schema, {"userId": "a", "age": 5}), b"\xff"]
    )
    assert (rows.columns["userId"], rows.columns["age"]) == (["a", None], [5, None])
    assert rows.faults == [None, [(None, "not valid Avro")]]


def test_message_of_a_file_reads_records_without_an_id(tmp_path: Path) -> None:
    tmp_path.joinpath("user.proto").write_text(PROTO)
    tmp_path.joinpath("kinds.proto").write_text(KINDS)
    settings = settings_of(tmp_path, format="protobuf", schema_file="user.proto", message="shop.User")
    rows = by_settings(settings).read([USER])
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
        schemas_of(settings_of(tmp_path, **source))
    [fault] = caught.value.faults
    assert fault.startswith("sources.a.schema_file: ") and said in fault


def test_file_that_is_no_schema_is_not_repeated(tmp_path: Path) -> None:
    key = {"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----hunter2"}
    words = ("hunter2", "PRIVATE", "private_key", "service_account")
    texts = [
        json.dumps(key),
        json.dumps([key]),
        json.dumps("hunter2"),
        json.dumps(record(("a", "hunter2"))),
        json.dumps(key) + "hunter2",
        "hunter2: yes",
        'syntax = "proto3"; message A { hunter2 private_key = 1; }',
        'syntax = "hunter2";',
        'import "hunter2";',
    ]
    for text, form in itertools.product(texts, ("avro", "protobuf")):
        tmp_path.joinpath("sa.json").write_text(text)
        with pytest.raises(ConfigError) as caught:
            schemas_of(settings_of(tmp_path, format=form, schema_file="sa.json"))
        fault = str(caught.value)
        assert f"{tmp_path}/sa.json: " in fault and not any(word in fault for word in words), fault


def test_schema_file_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.proto")
    tmp_path.joinpath("large").write_text(" " * 1_000_001)
    for file, why in (
        ("pipe.proto", "not a regular file"),
        ("/dev/zero", "not a regular"),
        ("large", "1,000,000 bytes"),
    ):
        with pytest.raises(ConfigError, match=why):
            schemas_of(settings_of(tmp_path, format="avro", schema_file=file))
    tmp_path.joinpath("user").write_text(PROTO)
    tmp_path.joinpath("kinds.proto").write_text(KINDS)
    assert schemas_of(settings_of(tmp_path, format="protobuf", schema_file="user", message="shop.User"))


def test_workers_leave_records_of_schemas_that_are_not_known_yet() -> None:
    reading, _ = by_registry({1: avro(ONE), 2: avro(ONE)}, id="string", age="int64")
    good, later = (encoded(ONE, {"id": "a", "age": 1}, number) for number in (1, 2))
    reading.read([good])
    [known] = reading.decoder.for_workers()
    decoded = open_decoder([known])(raw([good, None, b"hello", later, good[:-1], good]))
    assert decoded.rows[0]["_id"].to_pylist() == [0, 5]
    assert decoded.faults is not None and decoded.left_over is not None
    reasons = ["null value", "no schema id: the first byte is not 0", "not valid Avro of schema 1"]
    assert decoded.faults["reason"].to_pylist() == reasons
    assert decoded.left_over["_id"].to_pylist() == [3]
    assert decoded.records == 5
    last = reading.decoder.decode(decoded.left_over)
    assert (last.rows[0]["id"].to_pylist(), last.faults, last.left_over) == (["a"], None, None)


def test_check_judges_records_by_their_format(tmp_path: Path) -> None:
    schema = record(("userId", "string"), ("age", "string"))
    tmp_path.joinpath("a.avsc").write_text(json.dumps(schema))
    settings = settings_of(tmp_path, format="avro", schema_file="a.avsc")
    schemas, source = schemas_of(settings)["a"], settings.sources["a"]
    warned = check_records("source a", source, [encoded(schema, {"userId": "a", "age": "x"})], schemas)
    assert warned.level == "warning" and 'age: expected int64, got "x"' in warned.text
    failed = check_records("source a", source, [b"\xff"], schemas)
    assert (failed.level, failed.text) == ("fault", "0 of the newest 1 records fit: not valid Avro (1x)")
