"""Summaries: fifty viewers with different summaries of a large table that changes all the time.

The `balance` of a record is its produce time, so the largest `max(balance)` of a summary is the time of its newest
record: its age at arrival is the time from produce to push. Ages count after all viewers have their first answer; that
time is measured separately. The age of a window, without and with summaries, shows their effect on batches.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from math import inf
from multiprocessing import get_context
from multiprocessing.queues import Queue
from typing import Any

import orjson
import psutil
from websockets.asyncio.client import connect

from context import Bench
from turnout_side import TurnoutSide, running
from viewers import CHANGES_A_SECOND, WARM_UP_SECONDS, Load, cpu_seconds

VIEWERS = 50
FIRST_SECONDS = 120.0
"""The time limit for all first answers, each of which reads the whole table."""

_WINDOW = {"type": "window", "id": "w", "table": "final_ui", "columns": "balance", "sort": "-balance", "limit": 1}

Seen = dict[str, list[float]]
"""The ages of summaries and of the window at arrival, and the time between two messages of a summary."""


def measure(bench: Bench) -> dict[str, Any]:
    """Measure a table without summaries, then with fifty."""
    name = f"growth-{bench.sizes.records}"  # the topics of the measure `viewers`, which keeps them
    pair = bench.pair(name, bench.sizes.records)
    results = []
    with (
        bench.own_folder("summaries") as folder,
        running(folder, bench.bootstrap, pair.topics) as side,
        Load(bench.bootstrap, pair.accounts, pair.keys, CHANGES_A_SECOND).running(),
    ):
        for viewers in (0, VIEWERS):
            bench.say(f"summaries: {viewers}")
            results.append(_measure(side, viewers, bench.sizes.seconds))
    bench.drop(name)
    return {"rows": pair.records, "per_second": CHANGES_A_SECOND, "summaries": results}


def _measure(side: TurnoutSide, viewers: int, seconds: float) -> dict[str, float]:
    context = get_context("spawn")
    answers: Queue[Seen] = context.Queue()
    process = context.Process(target=_view, args=(side.live, viewers, seconds, answers))
    server = psutil.Process(side.pid)
    process.start()
    first = answers.get(timeout=FIRST_SECONDS)["first"]
    time.sleep(WARM_UP_SECONDS)
    before, started = cpu_seconds(server), time.monotonic()
    seen = answers.get(timeout=seconds + 60)
    used, lasted = cpu_seconds(server) - before, time.monotonic() - started
    process.join()
    return {
        "summaries": viewers,
        "p50_ms": _part(seen["summary"], 50),
        "p99_ms": _part(seen["summary"], 99),
        "between_p50_ms": _part(seen["between"], 50),
        "between_p99_ms": _part(seen["between"], 99),
        "window_p50_ms": _part(seen["window"], 50),
        "window_p99_ms": _part(seen["window"], 99),
        "messages_per_second": len(seen["summary"]) / seconds,
        "server_cores": used / lasted,
        "first_answers_ms": max(first),
    }


def _part(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


def _view(address: str, viewers: int, seconds: float, answers: Queue[Seen]) -> None:
    """Run the viewers, in a separate process so that reading does not slow down the server."""
    answers.put(asyncio.run(_view_all(address, viewers, seconds, answers)))


@dataclass(slots=True)
class Viewing:
    """The results of all viewers. Ages count from some seconds after the last viewer has its first answer."""

    seconds: float
    waiting: int
    begin: float = inf
    seen: Seen = field(default_factory=lambda: {"summary": [], "window": [], "between": []})
    first: list[float] = field(default_factory=list)

    @property
    def left(self) -> float:
        return FIRST_SECONDS if self.waiting else self.begin + self.seconds - time.monotonic()

    def answered(self, began: float) -> None:
        """Note that one more viewer has its first answer."""
        self.first.append((time.monotonic() - began) * 1000)
        self.waiting -= 1
        if not self.waiting:
            self.begin = time.monotonic() + WARM_UP_SECONDS


async def _view_all(address: str, viewers: int, seconds: float, answers: Queue[Seen]) -> Seen:
    viewing = Viewing(seconds, viewers + 1)
    async with asyncio.TaskGroup() as group:
        for asked in (_WINDOW, *map(_summary, range(viewers))):
            group.create_task(_view_one(address, asked, viewing, answers))
    return viewing.seen


async def _view_one(address: str, asked: dict[str, Any], viewing: Viewing, answers: Queue[Seen]) -> None:
    last: float | None = None
    began, answered = time.monotonic(), False
    async with connect(address, max_size=None, compression=None) as socket:
        await socket.send(orjson.dumps(asked).decode())
        while (left := viewing.left) > 0:
            try:
                message = orjson.loads(await asyncio.wait_for(socket.recv(), left))
            except TimeoutError:
                return
            now = time.monotonic()
            newest = _newest(message)
            if newest is None:
                continue
            if not answered:
                answered = True
                viewing.answered(began)
                if not viewing.waiting:
                    answers.put({"first": viewing.first})
            if now < viewing.begin:
                continue
            viewing.seen[asked["type"]].append(time.time() * 1000 - newest)
            if asked["type"] == "summary":
                viewing.seen["between"] += [] if last is None else [(now - last) * 1000]
                last = now


def _newest(message: dict[str, Any]) -> float | None:
    """Return the produce time of the newest record in a message; None if the message has no rows or groups."""
    if message["type"] not in ("rows", "summary"):
        return None
    column = [column["name"] for column in message["columns"]].index(
        "balance" if message["type"] == "rows" else "max(balance)"
    )
    found = [row[column] for row in message["rows" if message["type"] == "rows" else "groups"]]
    return max((moment for moment in found if moment is not None), default=None)


def _summary(number: int) -> dict[str, Any]:
    """Return the summary of a viewer; all viewers have different ones."""
    by = ("accountType", f"age:{2 + number}", f"age:{2 + number},accountType", "")[number % 4]
    values = ("count,max(balance)", "count,sum(balance),max(balance)", "count,avg(age),max(balance)")[number % 3]
    asked = {"type": "summary", "id": "s", "table": "final_ui", "by": by, "values": values}
    return {**asked, "where": f"balance > {1000 + number}"}
