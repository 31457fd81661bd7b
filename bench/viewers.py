"""Viewers: different windows of a large table that changes all the time.

The `balance` of a record is its produce time, and every window is sorted by it: each batch changes each window, which
is the worst case. The age of the newest row in a message is the time from produce to push.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import Queue
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer
from websockets.asyncio.client import connect

from context import Bench
from turnout_side import TurnoutSide, running

WARM_UP_SECONDS = 4.0
CHANGES_A_SECOND = 5_000
_ROWS = 50
_TURNS_A_SECOND = 50


@dataclass(slots=True)
class Load:
    """A load of accounts for random users at a steady rate, produced by a thread."""

    bootstrap: str
    topic: str
    users: int
    per_second: int
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "acks": 1})
        each, turn, started = self.per_second // _TURNS_A_SECOND, 0, time.monotonic()
        while not self._stopped.is_set():
            for _ in range(each):
                key = random.randrange(self.users)
                producer.produce(
                    self.topic,
                    orjson.dumps({"userId": f"user-{key}", "accountType": "live", "balance": time.time() * 1000}),
                )
            producer.poll(0)
            turn += 1
            self._stopped.wait(max(0.0, started + turn / _TURNS_A_SECOND - time.monotonic()))
        producer.flush(10)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()


def measure(bench: Bench) -> dict[str, Any]:
    """Measure several numbers of viewers of one table; the first is zero."""
    name = f"growth-{bench.sizes.records}"  # the additional accounts of `growth` make no difference
    pair = bench.pair(name, bench.sizes.records)
    results = []
    with (
        bench.own_folder("viewers") as folder,
        running(folder, bench.bootstrap, pair.topics) as side,
        Load(bench.bootstrap, pair.accounts, pair.keys, CHANGES_A_SECOND).running(),
    ):
        for viewers, stalled in ((0, False), (1, False), (50, False), (50, True), (200, False)):
            bench.say(f"viewers: {viewers}{', one more that reads nothing' if stalled else ''}")
            results.append({**_measure(side, viewers, bench.sizes.seconds, stalled), "stalled": float(stalled)})
    return {"rows": pair.records, "per_second": CHANGES_A_SECOND, "viewers": results}


def _measure(side: TurnoutSide, viewers: int, seconds: float, stalled: bool = False) -> dict[str, float]:
    """Measure a number of viewers: ages at arrival in milliseconds, and the load of the server."""
    context = get_context("spawn")
    answers: Queue[list[float]] = context.Queue()
    process = context.Process(target=_view, args=(side.live, viewers, seconds, stalled, answers))
    server = psutil.Process(side.pid)
    memory_before = server.memory_info().rss / 2**20
    process.start()
    time.sleep(WARM_UP_SECONDS)
    before, started = cpu_seconds(server), time.monotonic()
    time.sleep(max(0.0, seconds - 1))
    memory = server.memory_info().rss / 2**20  # while the viewers are connected
    ages = answers.get(timeout=seconds + 60)
    used, lasted = cpu_seconds(server) - before, time.monotonic() - started
    process.join()
    return {
        "viewers": viewers,
        "p50_ms": statistics.median(ages) if ages else 0.0,
        "p99_ms": statistics.quantiles(ages, n=100)[98] if len(ages) > 1 else 0.0,
        "messages_per_second": len(ages) / seconds,
        "server_cores": used / lasted,
        "server_mb": memory,
        "added_mb": memory - memory_before,
    }


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of the server process, without Spark's JVM."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _view(address: str, viewers: int, seconds: float, stalled: bool, answers: Queue[list[float]]) -> None:
    """Run the viewers, in a separate process so that reading does not slow down the server."""
    answers.put(asyncio.run(_view_all(address, viewers, seconds, stalled)))


async def _view_all(address: str, viewers: int, seconds: float, stalled: bool) -> list[float]:
    ages: list[float] = []
    end = time.monotonic() + WARM_UP_SECONDS + seconds
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(WARM_UP_SECONDS + seconds))
        if stalled:
            group.create_task(_stall(address, end))
        for number in range(viewers):
            group.create_task(_view_one(address, number, end, end - seconds, ages))
    return ages


async def _view_one(address: str, number: int, end: float, begin: float, ages: list[float]) -> None:
    async with connect(address, max_size=None, compression=None) as socket:
        await socket.send(orjson.dumps(_window(number)).decode())
        while (left := end - time.monotonic()) > 0:
            try:
                message = orjson.loads(await asyncio.wait_for(socket.recv(), left))
            except TimeoutError:
                return
            if message["type"] == "rows" and message["rows"] and time.monotonic() > begin:
                balance = [column["name"] for column in message["columns"]].index("balance")
                ages.append(time.time() * 1000 - message["rows"][0][balance])


async def _stall(address: str, end: float) -> None:
    """Run a viewer that subscribes to all changes and reads nothing."""
    async with connect(address, max_size=None, compression=None, max_queue=1) as socket:
        await socket.send(orjson.dumps({"type": "changes", "id": "c", "table": "final_ui"}).decode())
        await asyncio.sleep(max(0.0, end - time.monotonic()))


def _window(number: int) -> dict[str, Any]:
    """Return the window of a viewer; all viewers have different ones."""
    where = f"age >= {number % 60}, balance > {1000 + number}"
    return {"type": "window", "id": "w", "table": "final_ui", "where": where, "sort": "-balance", "limit": _ROWS}
