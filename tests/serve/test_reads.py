"""Reads of clients: places, shares, time limits, and what ends one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from http_server import SECONDS
from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.serve.reads import Reads, StoreRead
from turnout.store.database import Database

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = -1"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path)
    yield opened
    opened.close()


class Works:
    """Work that begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._go = threading.Event()

    def work(self, name: str) -> Callable[[StoreRead], str]:
        def wait(_: StoreRead) -> str:
            self.begun.append(name)
            assert self._go.wait(SECONDS)
            return name

        return wait

    def end(self) -> None:
        self._go.set()


Test = Callable[[Works], Awaitable[None]]


def endless(reading: StoreRead) -> None:
    with reading.read() as cursor:
        cursor.execute(ENDLESS).fetchall()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


def run(test: Test) -> None:
    """Run a test with its works, which end with it: threads that still wait would hold up a test that has failed."""

    async def bounded() -> None:
        works = Works()
        try:
            async with asyncio.timeout(SECONDS):
                await test(works)
        finally:
            works.end()

    asyncio.run(bounded())


def test_read_that_takes_too_long_is_ended_with_a_clear_error(database: Database) -> None:
    async def test(_: Works) -> None:
        reads = Reads(database, ServerSettings(query_timeout_seconds=0.2))
        with pytest.raises(TurnoutError) as caught:
            await reads.run(["a"], endless)
        assert (caught.value.code, caught.value.status) == ("query_timeout", 503)
        assert "0.2 s" in caught.value.message
        await until(lambda: reads.running == 0)

    run(test)


def test_read_that_nobody_waits_for_is_interrupted_and_keeps_its_place_until_it_has_ended(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=2, max_reads_per_client=2, query_timeout_seconds=SECONDS))
        abandoned = asyncio.ensure_future(reads.run(["a"], works.work("abandoned")))
        interrupted = asyncio.ensure_future(reads.run(["a"], endless))
        await until(lambda: works.begun == ["abandoned"] and reads.running == 2)
        waiting = asyncio.ensure_future(reads.run(["b"], works.work("waiting")))
        abandoned.cancel()
        await asyncio.sleep(0)
        assert reads.running == 2, "its thread works on"
        interrupted.cancel()
        await until(lambda: "waiting" in works.begun)
        works.end()
        assert await waiting == "waiting"
        await until(lambda: reads.running == 0)

    run(test)


def test_read_is_interrupted_in_each_of_its_statements(database: Database) -> None:
    def many(reading: StoreRead) -> None:
        with reading.read() as cursor:
            while True:
                cursor.execute("SELECT count(*) FROM range(100000)").fetchall()

    async def test(_: Works) -> None:
        with pytest.raises(TurnoutError, match="took longer"):
            await Reads(database, ServerSettings(query_timeout_seconds=0.1)).run(["a"], many)

    run(test)


def test_client_has_a_share_and_others_are_served_beside_it(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=4, max_reads_per_client=2))
        greedy = [asyncio.ensure_future(reads.run(["greedy"], works.work(f"g{number}"))) for number in range(6)]
        other = asyncio.ensure_future(reads.run(["other"], works.work("other")))
        await until(lambda: len(works.begun) >= 3)
        assert sorted(works.begun) == ["g0", "g1", "other"]
        works.end()
        assert await asyncio.gather(*greedy, other) == ["g0", "g1", "g2", "g3", "g4", "g5", "other"]

    run(test)


def test_large_reads_leave_most_places_to_all_others(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=8, max_reads_per_client=4))
        large = [
            asyncio.ensure_future(reads.run([f"c{number}"], works.work("large"), large=True)) for number in range(5)
        ]
        small = asyncio.ensure_future(reads.run(["c0"], works.work("small")))
        await until(lambda: len(works.begun) >= 3)
        assert sorted(works.begun) == ["large", "large", "small"]
        works.end()
        await asyncio.gather(*large, small)

    run(test)


def test_short_select_does_not_wait_behind_the_long_ones_of_its_client(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.reads._SLICE_SECONDS", 0.2)

    async def test(_: Works) -> None:
        reads = Reads(database, ServerSettings(query_timeout_seconds=SECONDS))
        reads._unspent.spend("a", 1000)  # it has read for long
        long = [asyncio.ensure_future(reads.run(["a"], endless, large=True, sliced=True)) for _ in range(5)]
        await until(lambda: reads.running > 0)
        assert await reads.run(["a"], lambda _: "short", large=True, sliced=True) == "short"
        assert not any(read.done() for read in long)
        for read in long:
            read.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    run(test)


def test_select_that_is_not_done_in_its_slice_is_done_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.reads._SLICE_SECONDS", 0.1)

    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads_per_client=2, query_timeout_seconds=SECONDS))
        first = asyncio.ensure_future(reads.run(["a"], works.work("first"), large=True))
        begun: list[str] = []

        def second(reading: StoreRead) -> str:
            begun.append("second")
            if len(begun) == 1:
                endless(reading)
            return "done"

        later = asyncio.ensure_future(reads.run(["a"], second, large=True, sliced=True))
        await until(lambda: len(begun) == 1 and reads.running == 1)
        assert not later.done()
        works.end()
        assert list(await asyncio.gather(first, later)) == ["first", "done"]
        assert len(begun) == 2

    run(test)


def test_time_of_waiting_is_not_the_time_of_the_read_and_has_its_own_error(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=1, max_reads_per_client=1, query_timeout_seconds=0.5))
        first = asyncio.ensure_future(reads.run(["a"], works.work("first")))
        await until(lambda: works.begun == ["first"])
        with pytest.raises(TurnoutError) as caught:
            await reads.run(["a"], works.work("second"), large=True, sliced=True)
        assert (caught.value.code, works.begun) == ("query_timeout", ["first"])
        assert "waited 0.5 s for a place" in caught.value.message and "1 of them of this client" in caught.value.message
        works.end()
        await asyncio.gather(first, return_exceptions=True)
        assert await reads.run(["a"], works.work("third"), large=True, sliced=True) == "third"

    run(test)


def test_read_for_several_clients_counts_for_the_one_with_least_to_do(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=4, max_reads_per_client=1))
        busy = [asyncio.ensure_future(reads.run(["busy"], works.work("busy"))) for _ in range(3)]
        shared = asyncio.ensure_future(reads.run(["busy", "quiet"], works.work("shared")))
        await until(lambda: "shared" in works.begun)
        works.end()
        await asyncio.gather(*busy, shared)

    run(test)


def test_small_reads_of_a_client_that_has_read_for_long_do_not_wait_behind_its_long_ones(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(query_timeout_seconds=SECONDS))
        reads._unspent.spend("a", 1000)  # it has read for long
        long = asyncio.ensure_future(reads.run(["a"], works.work("long"), large=True, sliced=True))
        await until(lambda: works.begun == ["long"])
        assert await reads.run(["a"], lambda _: "small") == "small"
        assert not long.done()
        works.end()
        assert await long == "long"

    run(test)


def test_client_that_reads_all_the_time_has_one_place_and_rests(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.reads._LONG_SECONDS", 0.0)

    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=4, max_reads_per_client=4))
        reads._unspent.spend("a", 1000)
        first = asyncio.ensure_future(reads.run(["a"], works.work("first")))
        second = asyncio.ensure_future(reads.run(["a"], works.work("second")))
        other = asyncio.ensure_future(reads.run(["b"], works.work("other")))
        await until(lambda: {"first", "other"} <= set(works.begun))
        assert "second" not in works.begun
        works.end()
        assert list(await asyncio.gather(first, second, other)) == ["first", "second", "other"]

    run(test)


def test_read_that_leaves_while_it_waits_takes_no_place(database: Database) -> None:
    async def test(works: Works) -> None:
        reads = Reads(database, ServerSettings(max_reads=1, max_reads_per_client=1))
        first = asyncio.ensure_future(reads.run(["a"], works.work("first")))
        gone = asyncio.ensure_future(reads.run(["b"], works.work("gone")))
        stays = asyncio.ensure_future(reads.run(["c"], works.work("stays")))
        await until(lambda: works.begun == ["first"])
        gone.cancel()
        await asyncio.sleep(0)
        works.end()
        assert list(await asyncio.gather(first, stays)) == ["first", "stays"]
        assert works.begun == ["first", "stays"]

    run(test)
