"""Growth: the time of a small batch and of a window with few and with many rows in the tables.

One process swaps from small topics to larger ones. A small batch is 50 accounts of random keys with the same time; it
ends when a subscriber's window shows that time. Nothing else is produced. The first read of a window uses a filter or
an order that was never used before; a repeated read uses the same order, with and without a batch in between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import orjson
from confluent_kafka import Producer
from websockets.sync.client import ClientConnection, connect

from context import Bench
from records import Pair
from turnout.testing import wait_until
from turnout_side import SHORT_LINGER, TurnoutSide, running, swap_seconds

BATCH = 50
TIMES = 15
_DROPPED = 5
"""The number of first values after a swap that are not counted, because caches are cold."""
_SORTED = {"limit": 50, "sort": "-balance", "where": "age>=30"}


def measure(bench: Bench) -> dict[str, Any]:
    """Return milliseconds by number of rows: of small batches to a subscriber, and of windows over HTTP."""
    results: dict[str, Any] = {}
    smallest = bench.pair(f"growth-{bench.sizes.growth[0]}", bench.sizes.growth[0])
    with (
        bench.own_folder("growth") as folder,
        running(folder, bench.bootstrap, smallest.topics, swap=SHORT_LINGER) as side,
    ):
        for rows in bench.sizes.growth:
            pair = bench.pair(f"growth-{rows}", rows)
            if pair is not smallest:
                bench.say(f"growth: moving to {rows:,} rows")
                swap_seconds(side, pair)
            wait_until(lambda: not side.status()["lingering"], 120, what="the generation before is retired")
            bench.say(f"growth: {TIMES} small batches and windows with {rows:,} rows")
            taken = _batches(side, pair) | {name: _windows(side, queries) for name, queries in _queries().items()}
            for name, milliseconds in taken.items():
                results.setdefault(name, {})[str(rows)] = milliseconds
    for rows in bench.sizes.growth:
        if rows != bench.sizes.records:  # the measure `viewers` uses these topics
            bench.drop(f"growth-{rows}")
    return results


def _queries() -> dict[str, Iterator[dict[str, Any]]]:
    """Return the queries of each kind, one for each repetition."""
    numbers = range(_DROPPED + TIMES)
    orders = permutations(("userId", "name", "email", "age"))
    return {
        "first_count_ms": ({"limit": 0, "where": f"age>={18 + n}"} for n in numbers),
        "first_filter_ms": ({"limit": 50, "where": f"age!={18 + n}"} for n in numbers),
        "first_sort_ms": ({"limit": 50, "sort": ",".join(("-balance", *next(orders)))} for _ in numbers),
        "first_sorted_window_ms": ({"limit": 50, "sort": "-balance", "where": f"age>={n}"} for n in numbers),
        "window_ms": ({"limit": 50} for _ in numbers),
        "sorted_window_ms": (_SORTED for _ in numbers),
    }


def _batches(side: TurnoutSide, pair: Pair) -> dict[str, list[float]]:
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0})
    window = {"type": "window", "id": "w", "table": "final_ui", "sort": "-balance", "limit": 10}
    taken, moved = [], []
    with connect(side.live, max_size=None, compression=None) as socket:
        socket.send(orjson.dumps(window).decode())
        for _ in range(_DROPPED + TIMES):
            time.sleep(0.3)
            moment = int(time.time() * 1000)
            began = time.monotonic()
            for _ in range(BATCH):
                key = random.randrange(pair.keys)
                producer.produce(
                    pair.accounts, b'{"userId":"user-%d","accountType":"small","balance":%d}' % (key, moment)
                )
            producer.flush(10)
            _until_shown(socket, moment)
            taken.append((time.monotonic() - began) * 1000)
            moved += _windows(side, iter([_SORTED]), dropped=0)
    return {"batch_ms": taken[_DROPPED:], "moved_window_ms": moved[_DROPPED:]}


def _until_shown(socket: ClientConnection, moment: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        message = orjson.loads(socket.recv(timeout=max(0.0, deadline - time.monotonic())))
        if message["type"] == "rows" and message["rows"]:
            balance = [column["name"] for column in message["columns"]].index("balance")
            if message["rows"][0][balance] == moment:
                return


def _windows(side: TurnoutSide, queries: Iterator[dict[str, Any]], dropped: int = _DROPPED) -> list[float]:
    taken = []
    for query in queries:
        began = time.monotonic()
        side.http.get("/api/tables/final_ui/rows", params=query).raise_for_status()
        taken.append((time.monotonic() - began) * 1000)
    return taken[dropped:]
