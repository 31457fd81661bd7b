"""The decoder over batches: no record is lost or moved to another's row, whatever its neighbours are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from decoded_records import found, raw, shape
from turnout.decode.decoder import Decoded, PlainReader, merge, open_decoder
from turnout.decode.exact_reader import ExactReader
from turnout.decode.shape import RAW
from turnout.spark.read.task import read, write
from turnout_client.arrow_columns import arrow_type

COLUMNS = {"id": "string", "age": "int64", "balance": "double", "on": "boolean"}
OTHER = {"id": "string", "age": "string"}
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS)

ODD = [
    None,
    b"",
    b" ",
    b"[]",
    b" {}",
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
]


class Watched:
    """How many records Arrow and the exact function read, while both go on as they do."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.plain = self.exact = self.attempts = 0
        attempt, one_by_one = PlainReader._attempt, ExactReader.read

        def watched_attempt(reader: PlainReader, joined: Any, start: int, stop: int) -> Any:
            result = attempt(reader, joined, start, stop)
            self.attempts += 1
            self.plain += stop - start if result[0] is not None else 0
            return result

        def watched_exact(reader: ExactReader, records: Any, faults: Any) -> Any:
            records = list(records)
            self.exact += len(records)
            return one_by_one(reader, records, faults)

        patched.setattr(PlainReader, "_attempt", watched_attempt)
        patched.setattr(ExactReader, "read", watched_exact)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_plain_records_become_rows_by_arrow(watched: Watched) -> None:
    values = [
        b'{"id":"a","age":1,"balance":2.5,"on":true,"other":[1,{"id":"x"}]}',
        b'{ "age" : -0,\n"id" : "\\u00e9\\ud83d\\ude00\\u0000",\r\n\t"balance": 7 }',
        b'{"id":null}',
        b'{"id":"Info: NaN"}\r\n',
        b"{}",
    ] * 100
    expected: list[Any] = [
        ({"id": "a", "age": 1, "balance": 2.5, "on": True}, []),
        (NOTHING | {"id": "é😀\x00", "age": 0, "balance": 7.0}, []),
        (NOTHING, []),
        (NOTHING | {"id": "Info: NaN"}, []),
        (NOTHING, []),
    ] * 100
    assert found(open_decoder([shape(COLUMNS)])(raw(values)), 500) == expected
    # That text looks as if it might hold a number that Arrow reads and JSON has not.
    assert (watched.plain, watched.exact) == (400, 100)


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("unknown", [b"", b',"other":1'])
def test_odd_record_is_read_as_if_it_were_alone(value: bytes | None, unknown: bytes) -> None:
    decode = open_decoder([shape(COLUMNS)])
    [alone] = found(decode(raw([value])), 1)
    first, last = b'{"id":"first"%s}' % unknown, b'{"id":"last"%s}' % unknown
    values = [*[first] * 150, value, *[last] * 150]
    results = found(decode(raw(values)), 301)
    assert results[150] == alone
    assert [row and row["id"] for row, _ in results[:150] + results[151:]] == ["first"] * 150 + ["last"] * 150


def test_few_odd_records_among_many_leave_the_rest_to_arrow(watched: Watched) -> None:
    values = [b'{"age":%d}' % i for i in range(20_000)]
    odd = {
        1_234: b"nope}",
        4_321: b'{"age":"x"}',
        4_400: b'{"age":1.0}',
        15_000: b'{"age":"\xff"}',
        15_001: b'{"age":2}\0',
    }
    for place, value in odd.items():
        values[place] = value
    results = found(open_decoder([shape(COLUMNS)])(raw(values)), len(values))
    assert all(row is not None and row["age"] == i for i, (row, _) in enumerate(results) if i not in odd)
    assert all(faults for i, (_, faults) in enumerate(results) if i in odd)
    assert watched.exact < 500


def test_where_most_records_are_odd_arrow_is_not_tried_again_and_again(watched: Watched) -> None:
    decode = open_decoder([shape(COLUMNS)])
    odd, plain = raw([b'{"id":{}}'] * 1_000), raw([b'{"id":"a"}'] * 1_000)
    assert sum(decode(odd).rows[0].num_rows for _ in range(30)) == 30_000
    assert (watched.plain, watched.exact) == (0, 30_000)
    assert watched.attempts < 60
    # When records are plain again, that is found out.
    for _ in range(60):
        decode(plain)
    assert watched.plain > 20_000


def test_times_as_numbers_are_read_by_arrow_too(watched: Watched) -> None:
    columns = {"id": "string", "at": "timestamp"}
    values = [b'{"id":"a","at":%d}' % i for i in range(5_000)] + [b'{"at":"1970-01-01T00:00:01Z"}'] * 5_000
    results = found(open_decoder([shape(columns)])(raw(values)), len(values))
    assert [row and row["at"] for row, _ in results] == [i * 1_000_000 for i in range(5_000)] + [1_000_000] * 5_000
    assert watched.plain > 9_000


def test_whole_numbers_in_text_columns_are_read_by_arrow_too(watched: Watched) -> None:
    texts = ["0", "7", "-12", "9223372036854775807", "-9223372036854775808"] * 1_000
    texts[2_500:2_503] = ["-0", "12.50", "9223372036854775808"]
    values = [b'{"id":%s}' % text.encode() for text in texts] + [b'{"id":"0%d"}' % i for i in range(5_000)]
    results = found(open_decoder([shape(COLUMNS)])(raw(values)), len(values))
    assert [row and row["id"] for row, _ in results] == [*texts, *(f"0{i}" for i in range(5_000))]
    assert watched.plain > 9_000


def test_two_sources_of_one_topic_each_read_all_of_it() -> None:
    values = [b'{"id":"a"}', b'{"id":"b","age":1}', b'{"id":"c","age":"1"}', None, b'{"id":"d"}'] * 300
    decoded = open_decoder([shape(COLUMNS), shape(OTHER, name="o", tombstones=True)])(raw(values, [b"x"] * 1500))
    one, other = found(decoded, 1500), found(decoded, 1500, 1)
    assert [row and row["age"] for row, _ in one[:5]] == [None, 1, None, None, None]
    assert [faults for _, faults in one[:5]] == [
        [],
        [],
        [("age", 'expected int64, got "1"')],
        [(None, "null value")],
        [],
    ]
    assert [row and row["age"] for row, _ in other[:5]] == [None, "1", "1", None, None]
    assert [row and row["_deleted"] for row, _ in other[:5]] == [False, False, False, True, False]
    assert one == one[:5] * 300 and other == other[:5] * 300
    assert decoded.records == 1500


def test_topics_that_no_source_reads_are_ignored_and_sources_without_records_are_empty() -> None:
    sources = [shape(COLUMNS), shape(OTHER, topic=5)]
    decoded = open_decoder(sources)(raw([b'{"id":"a"}', b"nope"] * 200, topics=[0, 7] * 200))
    assert decoded.faults is None
    assert [table.num_rows for table in decoded.rows.values()] == [200, 0]
    assert [table.schema for table in decoded.rows.values()] == [source.schema for source in sources]


def test_records_come_in_any_form_of_arrow() -> None:
    batch = raw([b'{"id":"%d"}' % i for i in range(1_000)])
    table = pa.Table.from_batches([batch.slice(0, 300), batch.slice(300, 0), batch.slice(300)])
    large = table.cast(pa.schema([(f.name, pa.large_binary() if f.type == pa.binary() else f.type) for f in RAW]))
    more = table.append_column("extra", pa.nulls(1_000))
    for given in (batch, table, large, more, batch.slice(0), pa.table(table.columns[::-1], RAW.names[::-1])):
        ids = open_decoder([shape(COLUMNS)])(given).rows[0].sort_by("_id")["id"].to_pylist()
        assert ids == [str(i) for i in range(1_000)]
    half = open_decoder([shape(COLUMNS)])(batch.slice(500)).rows[0]
    assert half["id"].to_pylist() == [str(i) for i in range(500, 1_000)]
    assert open_decoder([shape(COLUMNS)])(batch.slice(0, 0)).records == 0


@pytest.fixture
def some() -> Decoded:
    columns = COLUMNS | {"price": "decimal(10,2)", "day": "date", "at": "timestamp", "ratio": "float", "small": "int32"}
    value = b'{"id":"a","price":1.5,"day":"2026-01-02","at":1,"ratio":0.5,"small":1}'
    sources = [
        shape(columns, tombstones=True),
        shape(OTHER, name="o", topic=1),
        shape({"id": "string"}, name="p", topic=2, form="avro", framed=True, complete=False),
    ]
    values = [value, b"nope", None, b'{"age":"x"}', b'{"id":"z"}', b"\0\0\0\0\1x"]
    return open_decoder(sources)(raw(values, topics=[0, 0, 0, 0, 1, 2]))


def same(one: Decoded, other: Decoded) -> bool:
    return (
        one.rows.keys() == other.rows.keys()
        and all(table.equals(other.rows[number]) for number, table in one.rows.items())
        and (one.faults, one.left_over, one.records) == (other.faults, other.left_over, other.records)
    )


def written(decoded: Decoded) -> bytes:
    sink = pa.BufferOutputStream()
    write(decoded, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_packed_results_come_back_as_they_were(some: Decoded, tmp_path: Path) -> None:
    assert some.left_over is not None and some.left_over["_id"].to_pylist() == [5]
    assert same(read(written(some)), some)
    tmp_path.joinpath("file").write_bytes(written(some))
    mapped = read(tmp_path / "file")
    tmp_path.joinpath("file").unlink()
    assert same(mapped, some)
    empty = Decoded({})
    assert same(read(written(empty)), empty)


def test_merged_results_have_the_records_of_all(some: Decoded) -> None:
    both = merge([some, Decoded({}), read(written(some))])
    assert both.records == 2 * some.records
    assert {number: table.num_rows for number, table in both.rows.items()} == {0: 6, 1: 2, 2: 0}
    assert both.faults is not None and both.left_over is not None
    assert (both.faults.num_rows, both.left_over.num_rows) == (4, 2)
    assert same(merge([]), Decoded({}))


def test_arrow_types_of_columns() -> None:
    kinds = ["string", "boolean", "int32", "int64", "float", "double", "decimal(10,2)", "date", "timestamp"]
    types = [pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2)]
    assert [arrow_type(kind) for kind in kinds] == [*types, pa.date32(), pa.timestamp("us", "UTC")]


def test_values_above_the_bound_are_faults_of_all_sources_of_their_topic_and_are_cut() -> None:
    fits, large = b'{"id":"%s"}' % (b"a" * 90), b'{"id":"%s"}' % (b"a" * 5_000)
    sources = [shape(COLUMNS), shape(OTHER), shape(COLUMNS, topic=1)]
    decoded = open_decoder(sources, len(fits))(raw([fits, large, None, fits], keys=[b"k"] * 4))
    assert [rows.num_rows for rows in decoded.rows.values()] == [2, 2, 0]
    assert decoded.records == 4
    assert decoded.faults is not None
    told = [fault for fault in decoded.faults.to_pylist() if fault["_id"] == 1]
    assert [fault["source"] for fault in told] == [0, 1]
    for fault in told:
        assert fault["reason"].startswith("record too large: 5,009 bytes, more than kafka.max_record_megabytes")
        assert (fault["key"], fault["value"], fault["text"]) == (b"k", large[:1_000], large[:1_000].decode())


def test_large_record_with_many_wrong_fields_is_not_kept_once_for_each() -> None:
    """Twenty records of a megabyte with fifty such fields were a gigabyte of faults."""
    columns = {"id": "string"} | {f"n{number}": "int64" for number in range(50)}
    fields = ",".join(f'"n{number}":"x"' for number in range(50))
    value = f'{{{fields},"id":"{"a" * 1_000_000}"}}'
    decoded = open_decoder([shape(columns)])(raw([value.encode()]))
    assert decoded.faults is not None and decoded.faults.num_rows == 50
    first, *others = decoded.faults["text"].to_pylist()
    assert first == value
    assert others == [value[:10_000] + "... (cut; the row before has all of it)"] * 49
