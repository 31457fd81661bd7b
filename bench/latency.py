"""Latency from produce to a subscriber: records contain their time (load.py); their age is measured at arrival."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import connect

import environments
import processors
from context import Bench
from environments import DEEPHAVENS, FAST_CYCLE, Unavailable
from load import Load
from processes import Peer, PeerFailed
from processors import Usage
from turnout.local.broker import free_port
from turnout.testing import create_topic, wait_until
from turnout_side import TurnoutSide, running

WARM_UP_SECONDS = 2.0
PER_SECOND = 200
FOLDER = Path(__file__).resolve().parent


def measure(bench: Bench) -> dict[str, Any]:
    """Return p50 and p99 of each run: Turnout, and each Deephaven with its default cycle (1 s) and with 100 ms.

    Turnout's first seconds are measured separately from the steady state after them.
    """
    runs, seconds = bench.sizes.runs, bench.sizes.seconds
    results: dict[str, Any] = {"per_second": PER_SECOND, "not_run": {}}
    usages: dict[str, list[Usage]] = {}
    topics = fresh_topics(bench.bootstrap, "latency")
    with (
        bench.own_folder("latency") as folder,
        running(folder, bench.bootstrap, topics, "latest") as side,
        Load(bench.bootstrap, topics, PER_SECOND).running(),
    ):
        wait_flowing(side)
        results["first_seconds"] = bench.sizes.first_seconds
        bench.say(f"latency: Turnout, its first {bench.sizes.first_seconds:g} s, then {runs} times {seconds:g} s")
        results["first"] = [quantiles(of_changes(side, bench.sizes.first_seconds, 0.0))]
        results["Turnout"], usages["Turnout"] = _several(side, seconds, runs)
    for version, (way, cycle, most) in product(DEEPHAVENS, (("", None, 3), (FAST_CYCLE, 100, 2))):
        name, runs = f"{version}{way}", min(most, bench.sizes.runs)
        bench.say(f"latency: {name}, {runs} times {seconds:g} s")
        try:
            ages, usages[name] = deephaven(bench, version, cycle, runs)
            results[name] = [quantiles(one) for one in ages]
        except (Unavailable, PeerFailed, RuntimeError) as error:
            results["not_run"][name] = str(error)
    load = f"latency, {PER_SECOND} records/s in each topic"
    results["processors"] = {load: {name: taken for name, taken in usages.items() if any(taken)}}
    return results


def _several(side: TurnoutSide, seconds: float, runs: int) -> tuple[list[dict[str, float]], list[Usage]]:
    taken, usages = [], []
    for _ in range(runs):
        before = processors.snapshot(side.pid)
        taken.append(quantiles(of_changes(side, seconds)))
        usages.append(processors.used(before, processors.snapshot(side.pid)))
    return taken, usages


def wait_flowing(side: TurnoutSide) -> None:
    """Wait until there are joined rows: the first batch of a process takes seconds and is not measured here."""
    wait_until(lambda: side.total("final_ui", where="balance is not null") > 0, 60, what="the first joined row")


def fresh_topics(bootstrap: str, name: str) -> tuple[str, str]:
    """Create two empty topics for a measure, and return their names."""
    topics = (f"{name}-users", f"{name}-accounts")
    for topic in topics:
        create_topic(bootstrap, topic, 2)
    return topics


def quantiles(ages: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and the number of ages."""
    if len(ages) < 100:
        raise RuntimeError(f"only {len(ages)} records were seen")
    cuts = statistics.quantiles(ages, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "seen": len(ages)}


def of_changes(
    side: TurnoutSide,
    seconds: float,
    warm_up: float = WARM_UP_SECONDS,
    *,
    table: str = "final_ui",
    ended: threading.Event | None = None,
) -> list[float]:
    """Return the ages of all records that a subscriber to changes receives for `seconds`, or until `ended` is set."""
    return asyncio.run(_follow_changes(side.live, warm_up, seconds, table, ended or threading.Event()))


async def _follow_changes(
    address: str, warm_up: float, seconds: float, table: str, ended: threading.Event
) -> list[float]:
    ages: list[float] = []
    begin, end = (time.time() + warm_up) * 1000, time.monotonic() + warm_up + seconds
    async with connect(address, max_size=None, compression=None) as socket:
        await socket.send(orjson.dumps({"type": "changes", "id": "c", "table": table}).decode())
        names: list[str] = []
        while (left := end - time.monotonic()) > 0 and not ended.is_set():
            try:
                message = orjson.loads(await asyncio.wait_for(socket.recv(), left))
            except TimeoutError:
                break
            now = time.time() * 1000
            if message["type"] == "error":
                raise RuntimeError(f"the subscription ended: {message['error']}")
            if message["type"] == "snapshot":
                names = [column["name"] for column in message["columns"]]
            elif message["type"] == "changes":
                ages += _ages(message, names.index("age"), names.index("balance"), begin, now)
    return ages


def _ages(message: dict[str, Any], age: int, balance: int, begin: float, now: float) -> list[float]:
    """Return the ages in a message: a new row has its user's time and maybe its account's, a changed row the latter."""
    inserted, updated = message["insert"]["rows"], message["update"]["rows"]
    moments = [row[age] for row in inserted] + [row[balance] for row in (*inserted, *updated)]
    return [now - moment for moment in moments if moment is not None and moment > begin]


def of_window(side: TurnoutSide, seconds: float, warm_up: float = WARM_UP_SECONDS) -> list[float]:
    """Return ages as `of_changes`, for rates at which records cannot be sent one by one.

    A window of the newest account shows with each message the time up to which records have arrived. Records produced
    between the times of two messages arrive with the second one; there is one age for each millisecond in between.
    """
    return asyncio.run(_follow_window(side.live, warm_up, seconds))


async def _follow_window(address: str, warm_up: float, seconds: float) -> list[float]:
    ages: list[float] = []
    begin, end = (time.time() + warm_up) * 1000, time.monotonic() + warm_up + seconds
    window = {"type": "window", "id": "w", "table": "final_ui", "sort": "-balance", "limit": 1}
    async with connect(address, max_size=None, compression=None) as socket:
        await socket.send(orjson.dumps(window).decode())
        seen = begin
        while (left := end - time.monotonic()) > 0:
            try:
                message = orjson.loads(await asyncio.wait_for(socket.recv(), left))
            except TimeoutError:
                break
            now = time.time() * 1000
            if message["type"] == "error":
                raise RuntimeError(f"the subscription ended: {message['error']}")
            if message["type"] != "rows" or not message["rows"]:
                continue
            newest = message["rows"][0][[column["name"] for column in message["columns"]].index("balance")] or 0.0
            ages += [now - moment for moment in range(int(seen), int(newest))]
            seen = max(seen, newest)
        # Records that have not arrived at the end are at least this old.
        now = time.time() * 1000
        ages += [now - moment for moment in range(int(seen), int(now))] if now - seen > 1000 else []
    return ages


def deephaven(bench: Bench, version: str, cycle_ms: int | None, runs: int) -> tuple[list[list[float]], list[Usage]]:
    """Return the ages at a subscriber of Deephaven's joined table, measured by Deephaven's Python client."""
    bootstrap, seconds = bench.bootstrap, bench.sizes.seconds
    interpreter = str(environments.python(version))
    topics = fresh_topics(bootstrap, f"latency-{version.replace(' ', '-')}-{cycle_ms or 'shipped'}")
    command = [interpreter, str(FOLDER / "peers" / "deephaven_join.py"), "serve", "--bootstrap", bootstrap]
    command += ["--users", topics[0], "--accounts", topics[1], "--port", str(free_port())]
    command += ["--cycle-ms", str(cycle_ms)] if cycle_ms else []
    results, usages = [], []
    with Peer(command) as server, Load(bootstrap, topics, PER_SECOND).running():
        port = server.wait("serving", 90)["port"]
        # The same time as for Turnout, minus the start of the client.
        time.sleep(max(0.0, bench.sizes.first_seconds - 5))
        for _ in range(runs):
            viewer = [interpreter, str(FOLDER / "peers" / "deephaven_viewer.py"), "--port", str(port)]
            viewer += ["--warm-up", str(WARM_UP_SECONDS), "--seconds", str(seconds)]
            with Peer(viewer) as client:
                client.wait("ready", 60)
                before = processors.snapshot(server.pid)
                said = client.wait("ages", WARM_UP_SECONDS + seconds + 60)
                usages.append(processors.used(before, processors.snapshot(server.pid)))
                results.append([*said["users"], *said["accounts"]])
    return results, usages
