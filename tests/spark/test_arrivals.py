"""Which way records come in; and that a batch of the stream holds none that was read before."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from turnout.decode.decoder import Decoded
from turnout.decode.shape import RAW
from turnout.plan.offsets import EARLIEST, OFFSET_BITS, Offsets
from turnout.spark.read.arrivals import FEW_RECORDS, MANY_RECORDS, STEADY_RECORDS, KafkaReaders, Way, choose, unread
from turnout.spark.read.bulk import TASK_RECORDS, split


@pytest.mark.parametrize(
    ("records", "streamed", "before", "careful", "way"),
    [
        (1, True, 0, False, Way.STREAM),
        (MANY_RECORDS, True, STEADY_RECORDS, False, Way.STREAM),
        (MANY_RECORDS + 1, True, 0, False, Way.TASKS),
        (STEADY_RECORDS, True, MANY_RECORDS, False, Way.STREAM),
        (STEADY_RECORDS + 1, True, STEADY_RECORDS + 1, False, Way.TASKS),
        (FEW_RECORDS, False, 0, False, Way.SOURCE),
        (FEW_RECORDS + 1, False, 0, False, Way.TASKS),
        (1, False, 0, True, Way.TASKS),
        (1, True, 0, True, Way.TASKS),
    ],
)
def test_way_follows_from_how_many_records_there_are_and_who_asks(
    records: int, streamed: bool, before: int, careful: bool, way: Way
) -> None:
    assert choose(records, streamed=streamed, before=before, careful=careful) is way


@pytest.mark.parametrize(
    ("live", "batch", "most"),
    [
        (False, None, TASK_RECORDS.usual),
        (True, None, TASK_RECORDS.short),
        # A batch has nobody to make way for.
        (True, object(), TASK_RECORDS.usual),
    ],
)
def test_tasks_of_a_catch_up_are_short_while_small_batches_come(
    monkeypatch: pytest.MonkeyPatch, live: bool, batch: Any, most: int
) -> None:
    asked: list[int] = []

    def in_tasks(readers: KafkaReaders, start: Offsets, end: Offsets, most: int) -> Decoded:
        asked.append(most)
        return Decoded({})

    monkeypatch.setattr(KafkaReaders, "_in_tasks", in_tasks)
    monkeypatch.setattr("turnout.spark.read.arrivals.pool", lambda *_: nullcontext())
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(addJobTag=lambda _: None))
    decoder: Any = None
    readers = KafkaReaders(session, "g2", decoder, dict, dict, lambda: live)
    readers.read(Offsets({("t", 0): 0}), Offsets({("t", 0): 1_000_000}), batch)
    assert asked == [most]


def test_ranges_of_tasks_are_even_and_no_larger_than_asked() -> None:
    ranges = split(["t"], Offsets({("t", 0): 0}), Offsets({("t", 0): 120_000}), 2, TASK_RECORDS.short)
    assert [(one.start, one.end) for one in ranges] == [(0, 40_000), (40_000, 80_000), (80_000, 120_000)]


def test_records_before_the_start_of_their_partition_are_left_out() -> None:
    placed = [(0, 0, 4), (0, 0, 5), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 2, 7)]
    ids = [partition << OFFSET_BITS | offset for _, partition, offset in placed]
    columns = [[topic for topic, *_ in placed], ids, [0] * 6, [None] * 6, [b"{}"] * 6]
    records = pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)
    # Of accounts 2 all was read: it has no start.
    start = Offsets({("users", 0): 5, ("users", 1): EARLIEST, ("accounts", 0): 0})
    kept = unread(records, ["users", "accounts"], start)
    assert kept["_id"].to_pylist() == [ids[1], ids[2], ids[3], ids[4]]
