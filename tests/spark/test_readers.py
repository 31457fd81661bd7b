"""Which way records come in; and that a batch of the stream holds none that was read before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from turnout.decode.shape import RAW
from turnout.plan.offsets import EARLIEST, OFFSET_BITS, Offsets
from turnout.spark.read.readers import FEW_RECORDS, MANY_RECORDS, STEADY_RECORDS, Way, choose, unread


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


def test_records_before_the_start_of_their_partition_are_left_out() -> None:
    placed = [(0, 0, 4), (0, 0, 5), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 2, 7)]
    ids = [partition << OFFSET_BITS | offset for _, partition, offset in placed]
    columns = [[topic for topic, *_ in placed], ids, [0] * 6, [None] * 6, [b"{}"] * 6]
    records = pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)
    # Of accounts 2 all was read: it has no start.
    start = Offsets({("users", 0): 5, ("users", 1): EARLIEST, ("accounts", 0): 0})
    kept = unread(records, ["users", "accounts"], start)
    assert kept["_id"].to_pylist() == [ids[1], ids[2], ids[3], ids[4]]
