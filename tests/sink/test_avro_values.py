"""Rows as Avro: what a table's schema is, and that values of any year and size are read back by it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from scripted_registry import scripted
from turnout.config import RegistrySettings
from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.schemas.registry import SchemaRegistry
from turnout.sink.avro_values import AvroValues, schema_of
from turnout.sink.records import PublishedTable
from turnout_client.column_types import ColumnType
from turnout_client.iso_times import parse_date, parse_moment

KINDS = {
    "id": "string",
    "yes": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "amount": "decimal(20,3)",
    "day": "date",
    "at": "timestamp",
}
COLUMNS = {name: ColumnType.parse(kind) for name, kind in KINDS.items()}
SHOWN = PublishedTable(Position(1, 2), "t", "id", COLUMNS, "{}", None)
SUBJECT = "/subjects/out-value/versions"


def encoded(row: str | None) -> tuple[bytes | None, list[Any]]:
    with scripted({SUBJECT: (200, {"id": 258})}) as registry:
        values = AvroValues(SchemaRegistry(RegistrySettings(url=registry.url)), "out")
        value, headers = values.encoder(SHOWN)(row, 17)
        assert value is None or isinstance(value, bytes)
        return value, headers


def read(value: bytes, *, logical: bool = True) -> Any:
    return fastavro.schemaless_reader(
        BytesIO(value[5:]), fastavro.parse_schema(schema_of("t", COLUMNS, logical=logical)), None
    )


def test_value_is_read_back_by_the_schema_of_the_table() -> None:
    row = (
        '{"id":"x","yes":true,"int":-5,"long":9007199254740993,"float":0.5,"double":1e300,'
        '"amount":"-12345678901234567.891","day":"2026-01-31","at":"2026-01-31T12:00:00.123456Z"}'
    )
    value, headers = encoded(row)
    assert value is not None
    assert value[:5] == b"\0\0\0\1\2"
    assert headers == [("turnout.fingerprint", "17")]
    assert read(value) == {
        "id": "x",
        "yes": True,
        "int": -5,
        "long": 9007199254740993,
        "float": 0.5,
        "double": 1e300,
        "amount": Decimal("-12345678901234567.891"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    }


def test_nulls_and_years_that_python_does_not_have_are_written() -> None:
    nulls = dict.fromkeys(KINDS)
    value, _ = encoded(
        '{"id":null,"yes":null,"int":null,"long":null,"float":null,"double":null,"amount":null,"day":null,"at":null}'
    )
    assert value is not None
    assert read(value) == nulls
    far = '"day":"+058844-02-03","at":"-000020-01-01T00:00:00.000000Z"}'
    value, _ = encoded('{"id":"x","yes":null,"int":null,"long":null,"float":null,"double":null,"amount":"0.000",' + far)
    assert value is not None
    found = read(value, logical=False)
    assert (found["day"], found["at"]) == (parse_date("+058844-02-03"), parse_moment("-000020-01-01T00:00:00Z"))


def test_row_that_is_gone_has_no_value() -> None:
    assert encoded(None) == (None, [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((409, {"error_code": 409, "message": "incompatible"}), "refused the schema of out-value (409)"),
        ((403, {"error_code": 40301}), "does not let Turnout register schemas (403)"),
        ((200, {"no": "id"}), "gave no id for the schema of subject 'out-value'"),
    ],
)
def test_registry_that_does_not_take_the_schema_is_told_with_what_to_do(answer: tuple[int, Any], said: str) -> None:
    with scripted({SUBJECT: answer}) as registry:
        values = AvroValues(SchemaRegistry(RegistrySettings(url=registry.url)), "out")
        with pytest.raises(TurnoutError) as caught:
            values.encoder(SHOWN)
    assert said in caught.value.message
    assert caught.value.hint
