"""A look at a topic: formats, fields, keys, and one clear line for each topic that is of no use."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from sampled_topics import example
from scripted_registry import scripted
from turnout.config import Format, Settings
from turnout.errors import TurnoutError
from turnout.example.topic_example import MOST_COLUMNS, TopicExample
from turnout.schemas.source_schemas import compiled


def kinds(found: TopicExample) -> dict[str, str]:
    return {column.name: column.kind for column in found.columns}


def test_fields_come_in_the_order_of_the_records() -> None:
    found = example("users", [{"b": 1, "a": "x"}, {"c": True, "a": "y"}])
    assert kinds(found) == {"b": "int64", "a": "string", "c": "boolean"}
    assert found.columns[0].evidence == "1 of 2 records, 1"
    assert found.format is Format.JSON


def test_records_that_are_no_rows_are_counted() -> None:
    found = example("users", [{"a": 1}, None, b"nonsense", b"[1]", b"\0\1"])
    assert found.tombstones == 1
    assert dict(found.bad) == {"null value": 1, "not valid JSON": 2, "not an object": 1}
    assert found.columns[0].records == 1


def test_fields_that_cannot_be_columns_are_left_out_with_a_reason() -> None:
    found = example("users", [{"_id": 1, "Name": "x", "name": "y", " ": 1, "a\nb": 2, "fine one": 3}])
    assert kinds(found) == {"Name": "string", "fine one": "int64"}
    assert set(found.left_out) == {"_id", "name", " ", "a\nb"}
    assert found.left_out["name"] == "differs from Name only in case"


def test_of_too_many_fields_the_most_frequent_are_kept() -> None:
    records = [{f"f{number}-{field}": 1 for field in range(100)} | {"id": number} for number in range(5)]
    found = example("wide", records)
    assert len(found.columns) == MOST_COLUMNS
    assert "id" in kinds(found)
    assert len(found.left_out) == 21
    assert "281 others" in found.left_out


def test_names_that_are_too_long_are_left_out() -> None:
    found = example("long", [{"x" * 100_000: 1, "id": 2}])
    assert kinds(found) == {"id": "int64"}
    assert max(map(len, found.left_out)) <= 200


@pytest.mark.parametrize(
    ("field", "values", "keys", "keyed"),
    [
        ("id", ["u1", "u2"], ["u1", "u2"], True),
        ("id", ["u1", "u2"], ["u1", None], True),
        ("id", ["u1", "u2"], ["u1", "u3"], False),
        ("id", ["u1", "u2"], [None, None], False),
        ("id", [1, 2], ["1", "2"], True),
        ("id", [1, 2], ["1", "02"], False),
        ("id", [1, 2], [b"\xff", "2"], False),
        ("id", [1.5, 2.5], ["1.5", "2.5"], False),
    ],
)
def test_column_is_kafkas_key_where_the_key_is_its_text(
    field: str, values: list[Any], keys: list[str | bytes | None], keyed: bool
) -> None:
    found = example("users", [{field: value, "other": "x"} for value in values], keys)
    assert ("id" in found.keyed_by) == keyed


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "topic 'users' has no records"),
        ([None, None], "topic 'users' has only tombstones"),
        ([b"\xff\xfe"] * 3, "none of the newest 3 records of topic 'users' can be read: not valid JSON (3x)"),
        ([b"[1]", None], "none of the newest 1 records of topic 'users' can be read: not an object (1x)"),
        ([{}], "no record of topic 'users' has a field"),
        ([b"\0\0\0\0\7abc"], "records of topic 'users' begin with the id of a schema, and no registry is known"),
    ],
)
def test_topic_of_no_use_is_one_line_with_a_remedy(values: list[Any], message: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        example("users", values)
    assert (caught.value.code, caught.value.message) == ("bad_example", message)
    assert caught.value.hint


FIRST = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "userId", "type": "string"},
        {"name": "age", "type": ["null", "int"]},
        {"name": "rate", "type": "float"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "huge", "type": {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "flag", "type": "boolean"},
    ],
}
SECOND = {**FIRST, "fields": [{"name": "age", "type": "long"}, {"name": "email", "type": "string"}]}


def framed(number: int, schema: Any, record: dict[str, Any]) -> bytes:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return b"\0" + number.to_bytes(4, "big") + payload.getvalue()


def of_registry(url: str) -> Settings:
    return Settings.model_validate({"schema_registry": {"url": url}})


def test_columns_of_avro_are_those_of_the_schemas() -> None:
    from datetime import UTC, date, datetime, time
    from decimal import Decimal

    record = {
        "userId": "u1",
        "age": 7,
        "rate": 0.5,
        "price": Decimal("1.50"),
        "huge": Decimal("2.00"),
        "born": date(2000, 1, 2),
        "seen": datetime(2026, 1, 1, tzinfo=UTC),
        "clock": time(12),
        "state": "ON",
        "tags": ["a"],
        "either": 1,
        "flag": True,
    }
    values = [framed(1, FIRST, record), framed(2, SECOND, {"age": 2**40, "email": "e"}), b"\0\0\0\0\1x"]
    answers = {f"/schemas/ids/{n}": (200, {"schema": json.dumps(one)}) for n, one in ((1, FIRST), (2, SECOND))}
    with scripted(answers) as registry:
        found = example("users", values, settings=of_registry(registry.url))
    assert found.format is Format.AVRO
    assert kinds(found) == {
        "userId": "string",
        "age": "int64",
        "rate": "float",
        "price": "decimal(10,2)",
        "huge": "string",
        "born": "date",
        "seen": "timestamp",
        "clock": "string",
        "state": "string",
        "tags": "string",
        "either": "string",
        "flag": "boolean",
        "email": "string",
    }
    assert dict(found.bad) == {"not valid Avro of schema 1": 1}
    evidence = {column.name: column.evidence for column in found.columns}
    assert evidence["age"] == "2 of 2 records, 7 to 1099511627776"
    assert evidence["born"] == "1 of 2 records, 2000-01-02"


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { string x = 1; }
message User {
  string user_id = 1; int32 age = 2; uint32 small = 3; uint64 large = 4; float rate = 5; double exact = 6;
  bool flag = 7; bytes raw = 8; google.protobuf.Timestamp seen = 9; google.protobuf.Int64Value maybe = 10;
  repeated string tags = 11; Other other = 12; enum State { ON = 0; } State state = 13;
}
"""


def test_columns_of_protobuf_are_those_of_the_message() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled({"user.proto": PROTO}, "user.proto")).file:
        pool.Add(file)
    user: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("User"))
    # The second message of its file: one index, which is 1, in zigzag.
    head = b"\0\0\0\0\5" + b"\2\2"
    values = [head + user(user_id=f"u{n}", age=n, large=2**64 - 1).SerializeToString() for n in range(3)]
    with scripted({"/schemas/ids/5": (200, {"schemaType": "PROTOBUF", "schema": PROTO})}) as registry:
        found = example("users", values, settings=of_registry(registry.url))
    assert found.format is Format.PROTOBUF
    assert kinds(found) == {
        "user_id": "string",
        "age": "int32",
        "small": "int64",
        "large": "decimal(20,0)",
        "rate": "float",
        "exact": "double",
        "flag": "boolean",
        "raw": "string",
        "seen": "timestamp",
        "maybe": "int64",
        "tags": "string",
        "other": "string",
        "state": "string",
    }


def test_schemas_that_turnout_does_not_read_are_named() -> None:
    with scripted({"/schemas/ids/7": (200, {"schemaType": "JSON", "schema": "{}"})}) as registry:
        with pytest.raises(TurnoutError, match=r"the schemas of topic 'users' \(ids 7\) are JSON"):
            example("users", [b'\0\0\0\0\7{"a": 1}'], settings=of_registry(registry.url))
        registry.answers = {"/schemas/ids/7": (404, {"error_code": 40403})}
        with pytest.raises(TurnoutError, match=r"\(ids 7\) are not in the registry"):
            example("users", [b'\0\0\0\0\7{"a": 1}'], settings=of_registry(registry.url))
