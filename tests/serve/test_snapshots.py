"""Snapshots in parts: encoded when they are sent, and once for those who read at one pace."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from turnout.plan.position import Position
from turnout.serve.live import changes
from turnout.serve.live.changes import TableSnapshot, snapshot_part
from turnout.serve.reads import Reads
from turnout.store.database import Database
from turnout.store.identity import ROW
from turnout.store.query.window_rows import Order, TrackedWindow
from turnout.store.query.windows import Column, WindowResult


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the parts began that were encoded; a part has one row."""
    starts: list[int] = []

    def counted(tracked: TrackedWindow, reason: str, start: int) -> bytes:
        starts.append(start)
        return snapshot_part(tracked, reason, start)

    monkeypatch.setattr(changes, "SNAPSHOT_PART_ROWS", 1)
    monkeypatch.setattr(changes, "snapshot_part", counted)
    return starts


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[TableSnapshot]:
    database = Database.open(tmp_path)
    rows = pa.table({"n": [1, 2, 3, 4], ROW: ["a", "b", "c", "d"]})
    result = WindowResult("t", Position(1, 2), 4, (Column("n", "int64"),), rows.select(["n"]))
    tracked = TrackedWindow(result, rows, Order(("TRUE", ()), "", frozenset()))
    made = TableSnapshot("subscribed", Reads(database))
    made.tracked = tracked
    yield made
    database.close()


def test_part_is_encoded_when_it_is_asked_for(snapshot: TableSnapshot, encoded: list[int]) -> None:
    async def ask() -> None:
        parts = snapshot.parts("a")
        assert (len(parts), encoded) == (4, [])
        assert b'"rows":[[2]]' in await parts[1].make()
        assert b'"last":true' in await parts[3].make()

    asyncio.run(ask())
    assert encoded == [1, 3]


def test_part_is_encoded_once_for_those_who_read_together_and_again_for_who_lags(
    snapshot: TableSnapshot, encoded: list[int]
) -> None:
    async def ask() -> None:
        one, other, late = snapshot.parts("a"), snapshot.parts("b"), snapshot.parts("a")
        for number in range(4):
            sent = one[number].make()
            assert await sent == await other[number].make()
        await late[2].make()

    asyncio.run(ask())
    assert encoded == [0, 1, 2, 3, 2], "what nobody is being sent is not kept"
