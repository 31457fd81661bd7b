"""Kill alerts at chosen points: `python killed_alerts.py ROUNDS BOOTSTRAP FOLDER TOPIC`.

For each point, ROUNDS times, a process writes random batches and swaps to a store with an alert to a topic. It kills
itself when the alert has reached the point a random number of times; the next process continues.
"""

from __future__ import annotations

import functools
import random
import signal
import sys
from pathlib import Path

# Imported here once instead of in each process: DuckDB imports it with the first table.
import pandas  # type: ignore[import-untyped]  # noqa: F401

from filled_store import Filling
from killed_sinks import POINTS, ended_at, take_up, user
from turnout.alert import events
from turnout.alert.alerts import Alerts
from turnout.alert.events import Events
from turnout.alert.watched_rows import WatchedRows
from turnout.config import AlertSettings, KafkaSettings
from turnout.store.database import Database
from turnout.testing import wait_until

del POINTS["known"]
POINTS |= {
    # Inside the transaction of the store, and right after it.
    "changed": (WatchedRows, "_write", True),
    "kept": (WatchedRows, "_move", True),
    "noted": (Events, "delivered", True),
}


def settings_of(topic: str) -> AlertSettings:
    return AlertSettings.model_validate({"table": "final_ui", "where": "balance > 1", "to": {"topic": topic}})


def watching(database: Database, bootstrap: str, topic: str) -> Alerts:
    """Run the alert with all its events retained, so that they can be compared."""
    events.MAX_WAITING = events.MAX_EVENTS = 1_000_000
    alerts = Alerts(database, KafkaSettings(bootstrap_servers=bootstrap), lambda level, text: print(text, flush=True))
    alerts.start({"large": settings_of(topic)})
    return alerts


def begun(database: Database) -> bool:
    with database.read() as cursor:
        return bool(cursor.execute("FROM turnout.alert_positions").fetchall())


def run(folder: Path, bootstrap: str, topic: str, seed: int) -> None:
    new = not folder.exists()
    database, chance = Database.open(folder), random.Random(seed)
    filling = Filling(database)
    filling.swap(users=[user(0, 0)]) if new else take_up(filling, database)
    watching(database, bootstrap, topic)
    wait_until(lambda: begun(database), what="the alert has begun")
    for number in range(2_000):
        keys = [chance.randrange(20) for _ in range(chance.randrange(1, 6))]
        accounts = [{"userId": f"u{key}", "accountType": "gold", "balance": chance.choice([0.0, 5.0])} for key in keys]
        if number % 9 == 8:
            filling.swap(users=[user(key, number) for key in keys], accounts=accounts)
        elif chance.random() < 0.3:
            filling.batch(users=[user(key, number) for key in keys])
        else:
            filling.batch(accounts=accounts)


def times_at(point: str, seed: int) -> int:
    """Return how many times an alert reaches a point before it is killed there."""
    return 1 if point in ("opened", "read") else random.Random(seed).randrange(3, 10)


if __name__ == "__main__":
    rounds, address, store, name = sys.argv[1:]
    # Events must be written before they can be read.
    order = [*(point for point in POINTS if point != "read"), "read"]
    for number, where in enumerate(order * int(rounds)):
        work = functools.partial(run, Path(store), address, name, number)
        if (code := ended_at(where, times_at(where, number), work)) != -signal.SIGKILL:
            sys.exit(f"at {where}, number {number}: ended with {code}")
