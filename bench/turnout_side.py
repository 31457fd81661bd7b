"""Turnout as users start it: `turnout run` with the default configuration, on topics of the bench."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer
from websockets.sync.client import ClientConnection, connect

import processors
from processes import tree_mb
from processors import Usage
from records import NEWEST, Pair
from turnout.config.settings import default_sources
from turnout.testing import create_topic, wait_until
from turnout_process import RunningTurnout

TABLES = ("users_ui", "accounts_ui", "final_ui")
BUILD_SECONDS = 300
SHORT_LINGER = {"linger_seconds": 1}
"""A setting that shortens the wait until a replaced generation is retired, without changing the measure."""

_numbers = itertools.count(1)


class TurnoutSide(RunningTurnout):
    """A Turnout process with its own folder and control topic, on the topics of a pair."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topics: tuple[str, str],
        start: str = "earliest",
        **sections: Any,
    ) -> None:
        number = next(_numbers)
        self.bootstrap = bootstrap
        self.control = f"bench-control-{number}"
        create_topic(bootstrap, self.control, 1)
        sources = default_sources()
        for source, topic in zip(("users", "accounts"), topics, strict=True):
            sources[source]["topic"] = topic
        own = {"control": {"topic": self.control}, "sources": sources, "start": start, "spark": {}}
        super().__init__(folder / f"turnout-{number}", bootstrap, **own | sections)

    @property
    def live(self) -> str:
        return f"ws://127.0.0.1:{self.port}/api/live"

    @property
    def memory_mb(self) -> float:
        return tree_mb(self.pid)

    def ask(self, **message: Any) -> float:
        """Produce a control message; return the time at which it began."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        producer.list_topics(self.control, timeout=10)  # connect before the time is taken
        began = time.monotonic()
        producer.produce(self.control, orjson.dumps(message))
        producer.flush(10)
        return began

    def complete(self, pair: Pair) -> bool:
        """Whether every user row of a pair is joined with its key's newest account, as read over HTTP."""
        return self.total("final_ui", where=f"accountType = {NEWEST}") == pair.records

    def close(self) -> None:
        """End the process, by force if necessary, and all processes that it started."""
        family = [] if self._process is None else _family(self._process.pid)
        try:
            super().close()
        except subprocess.TimeoutExpired:
            self.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)


@contextmanager
def running(
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    start: str = "earliest",
    *,
    ready: bool = True,
    **sections: Any,
) -> Iterator[TurnoutSide]:
    """Run Turnout during a `with` block; `ready` waits for the first generation, `sections` go into its file."""
    side = TurnoutSide(folder, bootstrap, topics, start, **sections)
    try:
        side.start(ready=False)
        if ready:
            side.wait_ready()
        yield side
    finally:
        side.close()


def swap_seconds(side: TurnoutSide, pair: Pair, **more: Any) -> float:
    """Return the seconds from the control message to a subscriber that has all tables of the new generation."""
    return shown_seconds(side, lambda: side.ask(usersTopic=pair.users, accountsTopic=pair.accounts, **more))


def shown_seconds(
    side: TurnoutSide, begin: Callable[[], float], added: tuple[str, ...] = (), rows: int | None = None
) -> float:
    """Return the seconds from the time that `begin` returns to a subscriber that has all tables of a new generation.

    `added` are tables that only the new generation has: the subscriber requests them when it has the others. If `rows`
    is given, raise RuntimeError if a table has another number of rows.
    """
    shown = side.status()["generation"]
    with connect(side.live, max_size=None, compression=None) as socket:
        _subscribe(socket, TABLES)
        _until_generation(socket, TABLES, lambda generation: generation == shown)
        began = begin()
        totals = _until_generation(socket, TABLES, lambda generation: generation > shown)
        _subscribe(socket, added)
        totals |= _until_generation(socket, added, lambda generation: generation > shown)
        seconds = time.monotonic() - began
    if rows is not None and (wrong := {table: total for table, total in totals.items() if total != rows}):
        raise RuntimeError(f"the new generation has other than {rows:,} rows: {wrong}")
    return seconds


def _subscribe(socket: ClientConnection, tables: tuple[str, ...]) -> None:
    for table in tables:
        socket.send(orjson.dumps({"type": "window", "id": table, "table": table, "limit": 10}).decode())


def _until_generation(
    socket: ClientConnection, tables: tuple[str, ...], wanted: Callable[[int], bool]
) -> dict[str, int]:
    """Read until each table has arrived with a wanted generation; return their numbers of rows."""
    totals: dict[str, int] = {}
    deadline = time.monotonic() + BUILD_SECONDS
    while len(totals) < len(tables):
        message = orjson.loads(socket.recv(timeout=max(0.0, deadline - time.monotonic())))
        if message["type"] == "error":
            raise RuntimeError(f"the subscription ended: {message['error']}")
        if message["type"] == "rows" and message["id"] in tables and wanted(message["generation"]):
            totals[message["id"]] = message["total"]
    return totals


@dataclass(frozen=True, slots=True)
class FirstBuild:
    """A cold catch-up: its seconds by the history of swaps, and measures from outside."""

    seconds: float
    seen_seconds: float
    start_up_seconds: float
    memory_mb: float
    peak_mb: float
    start_usage: Usage
    """Processor seconds from the start of the process to the start of the build; empty if the build began unseen."""
    usage: Usage


def first_build(side: TurnoutSide, pair: Pair) -> FirstBuild:
    """Measure the first build of a process that was just started."""
    started, building, peak = time.monotonic(), 0.0, 0.0
    nothing = begin = processors.Snapshot(started)
    while side.answer("/readyz") != 200:
        if time.monotonic() > started + BUILD_SECONDS:
            raise TimeoutError(f"no first generation within {BUILD_SECONDS} s; log:\n{side.log()}")
        peak = max(peak, side.memory_mb)
        if not building and side.answer("/healthz") == 200 and side.status().get("progress"):
            building, begin = time.monotonic(), processors.snapshot(side.pid)
        time.sleep(0.1)
    ready = time.monotonic()
    wait_until(lambda: side.complete(pair), BUILD_SECONDS, what="the complete join")
    seen, end = time.monotonic(), processors.snapshot(side.pid)
    swap = side.rows("swaps")[0]
    seconds = swap["buildSeconds"] + swap["catchUpSeconds"] + swap["publishSeconds"]
    building = building or ready - seconds  # the build was too fast to be seen
    return FirstBuild(
        seconds=seconds,
        seen_seconds=seen - building,
        start_up_seconds=building - started,
        memory_mb=side.memory_mb,
        peak_mb=max(peak, side.memory_mb),
        start_usage=processors.used(nothing, begin),
        usage=processors.used(begin, end) if begin is not nothing else {},
    )


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []
