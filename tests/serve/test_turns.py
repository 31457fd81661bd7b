"""Many windows at a time: one question for all of them, in turn, and the fault of one is nobody else's."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from turnout.serve.live import shared
from turnout.serve.live.shared import WindowChanges, WindowMerger
from turnout.store.feed import Delta
from turnout.store.query.window_rows import DeltaQueries, Order, Sifted

DELTA = Delta(pa.table({}), pa.table({}))


class Asked:
    """Stands where the calculations are, and notes how many windows each question was about."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.numbers: list[int] = []
        self._fault = fault

    def sift(self, delta: Delta, orders: Sequence[Order]) -> object:
        self.numbers.append(len(orders))
        if self._fault:
            raise self._fault
        return delta


def order(number: int) -> Order:
    return Order(("TRUE", (number,)), "key", frozenset())


def merge(asked: Asked, *dues: WindowChanges[str] | None) -> list[Any]:
    async def all_at_once() -> list[Any]:
        merger: WindowMerger[str] = WindowMerger(cast(DeltaQueries, asked))
        return await asyncio.gather(*(merger.merge(lambda due=due: due) for due in dues), return_exceptions=True)  # type: ignore[misc]

    return asyncio.run(all_at_once())


def due(number: int, deltas: int = 1) -> WindowChanges[str]:
    return WindowChanges(order(number), [DELTA] * deltas, lambda sifted: f"{number}: {len(sifted)}")


def test_windows_that_ask_together_are_one_question() -> None:
    asked = Asked()
    assert merge(asked, due(1), due(2, deltas=2), due(3)) == ["1: 1", "2: 2", "3: 1"]
    assert len(asked.numbers) == 1


def test_windows_are_merged_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_WINDOWS", 2)
    asked = Asked()
    assert merge(asked, *map(due, range(5))) == [f"{number}: 1" for number in range(5)]
    assert asked.numbers == [2, 2, 1]


def test_window_without_known_changes_is_to_be_read() -> None:
    assert merge(Asked(), None, due(2)) == [None, "2: 1"]


def test_window_with_a_fault_is_alone_with_it() -> None:
    def broken(_: Sequence[Sifted]) -> str:
        raise ValueError("its own")

    answers = merge(Asked(), due(1), WindowChanges(order(2), [DELTA], broken), due(3))
    assert [answers[0], str(answers[1]), answers[2]] == ["1: 1", "its own", "3: 1"]


def test_windows_are_told_of_a_turn_that_fails_and_the_next_is_taken() -> None:
    async def two_turns() -> list[Any]:
        merger: WindowMerger[str] = WindowMerger(cast(DeltaQueries, Asked()))
        failed = await asyncio.gather(merger.merge(broken), merger.merge(lambda: due(1)), return_exceptions=True)
        return [*map(str, failed), await merger.merge(lambda: due(2))]

    def broken() -> WindowChanges[str]:
        raise ValueError("no turn")

    assert asyncio.run(two_turns()) == ["no turn", "no turn", "2: 1"]


def test_windows_are_read_where_a_change_cannot_be_merged(caplog: pytest.LogCaptureFixture) -> None:
    assert merge(Asked(ValueError("no such thing")), due(1), due(2)) == [None, None]
    assert "changes cannot be merged into 2 windows" in caplog.text


def test_window_that_waits_takes_what_came_meanwhile() -> None:
    async def two_turns() -> list[str | None]:
        merger: WindowMerger[str] = WindowMerger(cast(DeltaQueries, Asked()))
        known = 1
        first = asyncio.ensure_future(merger.merge(lambda: due(1)))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(merger.merge(lambda: due(2, deltas=known)))
        known = 3
        return [await first, await second]

    assert asyncio.run(two_turns()) == ["1: 1", "2: 3"]


def test_window_that_leaves_while_it_waits_is_forgotten() -> None:
    async def leave() -> str | None:
        merger: WindowMerger[str] = WindowMerger(cast(DeltaQueries, Asked()))
        gone = asyncio.ensure_future(merger.merge(lambda: due(1)))
        stays = asyncio.ensure_future(merger.merge(lambda: due(2)))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(leave()) == "2: 1"
