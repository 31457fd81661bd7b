"""The fast JSON reader: what it reads, what it leaves over, and that no record is lost or moved to another's row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turnout.spark.json_rows import LEFT_OVER, read_rows, unpack, worker

SCHEMA = pa.schema([("id", pa.string()), ("age", pa.int64()), ("balance", pa.float64()), ("on", pa.bool_())])
OTHER = pa.schema([("id", pa.string()), ("age", pa.string())])

ODD = [
    None,
    b"",
    b" ",
    b"[]",
    b"{} ",
    b'{"id":"a"}x}',
    b'{"id":"a"}{"id":"b"}',
    b'{"id":"a"}\n{"id":"b"}',
    b'{"id":"a","id":"b"}',
    b'{"id":1}',
    b'{"id":{"a":1}}',
    b'{"age":1.0}',
    b'{"age":9223372036854775808}',
    b'{"age":"1"}',
    b'{"balance":1e999}',
    b'{"balance":-0}',
    b'{"balance":-0.0}',
    b'{"balance":NaN}',
    b'{"other":NaN}',
    b'{"other":Infinity}',
    b'{"other":[-Inf]}',
    b'{"on":"true"}',
    b'{"id":"\xff"}',
    b'{"id":"x\ny"}',
    b'{"id":"\\ud800"}',
    b'{"id":"a"}\x00}',
    b'{"id":"a",}',
    b"{'id':'a'}",
    b'{"id":"}',
    b'{"id":{}',
    b'{"other":' + b"[" * 600 + b"]" * 600 + b"}",
    b'{"balance":0.' + b"0" * 1_500 + b"1}",
    b'{"id":"' + b"x" * 9_000 + b'"}',
]


def batch(values: list[bytes | None], topics: list[int] | None = None) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "_topic": pa.array(topics or [0] * count, pa.int32()),
            "_id": pa.array(range(count), pa.int64()),
            "_ts": pa.array(range(count), pa.timestamp("us", "UTC")),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def rows_of(values: list[bytes | None]) -> tuple[dict[int, dict[str, Any]], dict[int, bytes | None]]:
    """The rows and the records that were left over, each by its id."""
    found = read_rows(batch(values), [(0, SCHEMA)])
    rows = {row.pop("_id"): row for row in found[0].to_pylist()}
    left = {row["_id"]: row["value"] for row in found[LEFT_OVER].to_pylist()}
    assert rows.keys() | left.keys() == set(range(len(values)))
    assert not rows.keys() & left.keys()
    for number, row in rows.items():
        assert row.pop("_ts").microsecond == number
    return rows, left


def test_plain_records_become_rows() -> None:
    values: list[bytes | None] = [
        b'{"id":"a","age":1,"balance":2.5,"on":true,"other":[1,{"id":"x"}]}',
        b'{ "age" : -0,\n"id" : "\\u00e9\\ud83d\\ude00\\u0000",\r\n\t"balance": 7 }',
        b'{"id":null}',
        b"{}",
    ]
    rows, left = rows_of(values)
    assert not left
    nothing: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    assert rows == {
        0: {"id": "a", "age": 1, "balance": 2.5, "on": True},
        1: nothing | {"id": "é😀\x00", "age": 0, "balance": 7.0},
        2: nothing,
        3: nothing,
    }


@pytest.mark.parametrize("value", ODD)
def test_odd_records_are_left_over_and_nothing_else(value: bytes | None) -> None:
    values = [b'{"id":"first"}', value, b'{"id":"last"}'] * 150
    rows, left = rows_of(values)
    assert set(left.values()) >= {value}
    assert all(values[number] == kept for number, kept in left.items())
    assert all(row["id"] == ("first" if number % 3 == 0 else "last") for number, row in rows.items())


def test_one_odd_record_among_many_leaves_few_over() -> None:
    values: list[bytes | None] = [b'{"age":%d}' % i for i in range(5_000)]
    values[1_234] = b"nope}"
    values[4_321] = b'{"age":"x"}'
    rows, left = rows_of(values)
    assert len(left) <= 150
    assert all(row["age"] == number for number, row in rows.items())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.sampled_from(["id", "age", "balance", "on", "z"]), json_values, max_size=5)
texts = (
    objects.map(lambda o: json.dumps(o).encode())
    | objects.map(lambda o: json.dumps(o, ensure_ascii=False, indent=1).encode("utf-8", "replace"))
    | st.binary(max_size=12)
    | st.sampled_from(ODD)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(texts, max_size=12), st.integers(1, 60))
def test_every_record_is_read_as_python_reads_it_or_left_over(values: list[bytes | None], times: int) -> None:
    values = values * times
    rows, left = rows_of(values)
    for number, row in rows.items():
        value = values[number]
        assert value is not None
        expected = json.loads(value)
        assert row == {name: expected.get(name) for name in SCHEMA.names}, value
    assert all(values[number] == kept for number, kept in left.items())


def test_two_sources_of_one_topic_take_the_records_that_both_can_read() -> None:
    values: list[bytes | None] = [b'{"id":"a"}', b'{"id":"b","age":1}', b'{"id":"c","age":"1"}', b'{"id":"d"}'] * 300
    found = read_rows(batch(values), [(0, SCHEMA), (1, OTHER)])
    assert found[0]["_id"] == found[1]["_id"]
    assert set(found[0]["id"].to_pylist()) <= {"a", "d"}
    assert found[0].num_rows + found[LEFT_OVER].num_rows == len(values)


@pytest.mark.parametrize("in_files", [False, True])
def test_worker_packs_the_rows_of_each_source_and_gives_up_on_odd_topics(tmp_path: Path, in_files: bool) -> None:
    values: list[bytes | None] = [b'{"id":"a"}', b"nope"] * 3_000
    run = worker({0: (0, SCHEMA), 1: (5, OTHER)}, {}, str(tmp_path) if in_files else None)
    parts = [part for made in run([batch(values, [0, 7] * 3_000)] * 3) for part in [made]]
    found = unpack(pa.Table.from_batches(parts))
    assert bool(list(tmp_path.iterdir())) == in_files
    for file in tmp_path.iterdir():
        file.unlink()  # as the driver does it once they are unpacked
    assert found.keys() == {0, LEFT_OVER}
    assert found[0].num_rows == 9_000
    assert found[LEFT_OVER]["_topic"].unique().to_pylist() == [7]
    odd = unpack(pa.Table.from_batches(list(run([batch([b"nope"] * 3_000), batch([b'{"id":"a"}'])]))))
    assert odd.keys() == {LEFT_OVER}
    assert odd[LEFT_OVER].num_rows == 3_001
