"""A row as JSON in SQL: the same as over HTTP, whatever is in it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lengths import LONG
from turnout.plan.times import FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from turnout.serve.responses import json_rows
from turnout.store.row_json import record_key_sql, record_value_sql
from turnout_client.arrow_columns import arrow_type
from turnout_client.column_types import ColumnType

ROWS = 20_000 if LONG else 2_000
KINDS = {
    "text": "string",
    'qu"ote': "string",
    "apos'trophe": "string",
    "yes": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "decimal": "decimal(20,3)",
    "moment": "timestamp",
    "day": "date",
}
COLUMNS = {name: ColumnType.parse(kind) for name, kind in KINDS.items()}


def values(chance: random.Random) -> dict[str, Callable[[], Any]]:
    """What each type may hold, odd ones often."""

    def number() -> float:
        odd = (float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1e16, float(chance.randrange(10**17)))
        return chance.choice([*odd, chance.random(), chance.uniform(-1e20, 1e20)])

    def moment() -> int:
        near, far = chance.randrange(0, 2 * 10**15), chance.randrange(FIRST_MICROSECOND, LAST_MICROSECOND)
        return chance.choice([near, far, chance.randrange(-62_200_000_000_000_000, 253_403_000_000_000_000)])

    def text() -> str:
        return "".join(chr(chance.choice([0, 1, 10, 34, 65, 92, 127, 233, 0x2028, 0x1F600])) for _ in range(4))

    return {
        "string": text,
        "boolean": lambda: chance.random() < 0.5,
        "int32": lambda: chance.randrange(-(2**31), 2**31),
        "int64": lambda: chance.randrange(-(2**63), 2**63),
        "float": number,
        "double": number,
        "decimal(20,3)": lambda: Decimal(chance.randrange(-(10**19), 10**19)).scaleb(-3),
        "timestamp": moment,
        "date": lambda: chance.choice([chance.randrange(-LAST_DAY, LAST_DAY), chance.randrange(-720_000, 2_940_000)]),
    }


def column(kind: str, made: Callable[[], Any], chance: random.Random) -> pa.Array:
    found = [None if chance.random() < 0.05 else made() for _ in range(ROWS)]
    if kind == "float":
        return pa.array(found, pa.float64()).cast(pa.float32(), safe=False)
    if kind == "timestamp":
        return pa.array(found, pa.int64()).cast(arrow_type(kind))
    return pa.array(found, pa.int32()).cast(arrow_type(kind)) if kind == "date" else pa.array(found, arrow_type(kind))


@pytest.mark.parametrize("seed", range(3))
def test_value_is_the_row_as_http_shows_it(seed: int) -> None:
    chance = random.Random(seed)
    made = values(chance)
    rows = pa.table({name: column(kind, made[kind], chance) for name, kind in KINDS.items()})
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        texts = connection.execute(f"SELECT {record_value_sql(COLUMNS)} FROM rows").fetchall()
        connection.execute("SET TimeZone = 'UTC'")
        shown = json.loads(json_rows(connection.sql("FROM rows").to_arrow_table()))
    # By their texts: 0.0 and -0.0 differ, and so do 1 and 1.0.
    assert [repr(json.loads(text)) for (text,) in texts] == [repr(row) for row in shown]


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("string", "'u\"1'", '{"key":"u\\"1","id":"7"}'),
        ("int64", "9007199254740993", '{"key":9007199254740993,"id":"7"}'),
        ("decimal(10,2)", "1.5::DECIMAL(10,2)", '{"key":"1.50","id":"7"}'),
        ("date", "DATE '2026-01-31'", '{"key":"2026-01-31","id":"7"}'),
        ("string", "NULL::VARCHAR", '{"key":null,"id":"7"}'),
    ],
)
def test_key_has_the_key_and_the_id_of_the_row(kind: str, value: str, key: str) -> None:
    sql = f"SELECT {record_key_sql('k', ColumnType.parse(kind))} FROM (SELECT {value} AS k, '7' AS _row)"
    assert duckdb.execute(sql).fetchall() == [(key,)]
