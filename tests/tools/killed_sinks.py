"""Kill sinks at chosen points: `python killed_sinks.py ROUNDS BOOTSTRAP FOLDER=TOPIC=DELIVERY...`.

For each FOLDER and each point, ROUNDS times, a process writes random batches and swaps to a store with a sink. It kills
itself when the sink has reached the point a random number of times; the next process continues. FOLDER/shown.jsonl has
a line for each published state.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Imported here once instead of in each process: DuckDB imports it with the first table.
import pandas  # type: ignore[import-untyped]  # noqa: F401

from child_processes import end_with_parent
from filled_store import Filling
from lengths import LONG
from turnout.config import Delivery, KafkaSettings, SinkSettings
from turnout.plan.joins import Join
from turnout.serve.responses import json_rows
from turnout.sink.sink import Sinks
from turnout.sink.topic_channel import TopicWriter
from turnout.sink.topic_state import TopicState
from turnout.store.database import Database, scalar
from turnout.store.query.windows import Window, read_window

POINTS: dict[str, tuple[type, str, bool]] = {
    "opened": (TopicWriter, "open", True),
    "in_a_transaction": (TopicWriter, "_produce", True),
    # Written to Kafka, but not noted in the store yet.
    "written": (TopicWriter, "write", True),
    "known": (TopicState, "written", True),
    "read": (TopicState, "fold", True),
}
"""The class and method of each point, and whether the kill comes after the method."""


def arm(point: str, times: int) -> None:
    owner, method, after = POINTS[point]
    original: Callable[..., Any] = getattr(owner, method)
    left = [times]

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs) if after else None
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, hooked)


def shown(database: Database) -> tuple[tuple[int, int], list[dict[str, Any]]]:
    """Return the position and the rows of the published table."""
    found = read_window(database, Window("final_ui"))
    at = found.position
    return (at.generation, at.version), json.loads(json_rows(found.rows))


def take_up(filling: Filling, database: Database) -> None:
    """Continue with the published generation, as a start does; an unfinished generation is dropped."""
    filling._number = shown(database)[0][0]
    with database.write() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS g{filling._number + 1} CASCADE")
    filling.tables = filling._tables(Join.LEFT)
    filling._batch = filling.tables.progress().batch_id
    with database.read() as cursor:  # larger ids than any used before
        filling._offset = scalar(cursor, "SELECT max(_id) + 1000 FROM main.users_ui")


def user(number: int, age: int) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"n{number}", "email": None, "age": age}


def run(folder: Path, bootstrap: str, topic: str, delivery: str, seed: int) -> None:
    database = Database.open(folder / "store")
    chance = random.Random(seed)
    filling = Filling(database)
    if not (folder / "shown.jsonl").exists():
        filling.swap(users=[user(0, 0)])
    else:
        take_up(filling, database)
    kafka = KafkaSettings(bootstrap_servers=bootstrap)
    sinks = Sinks(database, kafka, None, lambda level, text: print(text, flush=True))
    sink = SinkSettings(table="final_ui", topic=topic, delivery=Delivery(delivery), max_waiting_rows=60)
    with (folder / "shown.jsonl").open("a") as file:
        file.write(json.dumps(shown(database)) + "\n")
        file.flush()
        sinks.change({"out": sink})
        for number in range(2_000):
            keys = [chance.randrange(40) for _ in range(chance.randrange(1, 8))]
            if number % 9 == 8:
                filling.swap(users=[user(key, number) for key in keys])
            elif chance.random() < 0.5:
                filling.batch(users=[user(key, number) for key in keys])
            else:
                accounts = [{"userId": f"u{key}", "accountType": "gold", "balance": float(number)} for key in keys]
                filling.batch(accounts=accounts)
            file.write(json.dumps(shown(database)) + "\n")
            file.flush()


def ended_at(point: str, times: int, work: Callable[[], None]) -> int:
    """Run `work` in a child process that kills itself at a point after `times` times; return its exit code.

    The child is a fork, because imports take longer than the work. No thread has been started before.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        end_with_parent()
        arm(point, times)
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # the point was not reached


def times_at(point: str, seed: int) -> int:
    """Return how many times a sink reaches a point before it is killed there.

    It is at least four for frequent points: the number of versions before an earlier kill depends on the machine.
    """
    often = point in ("in_a_transaction", "written", "known")
    return random.Random(seed).randrange(4, 30 if LONG else 10) if often else 1


if __name__ == "__main__":
    rounds, address, *stores = sys.argv[1:]
    for folder, name, delivery in (store.split("=") for store in stores):
        for number, where in enumerate(list(POINTS) * int(rounds)):
            work = functools.partial(run, Path(folder), address, name, delivery, number)
            if (code := ended_at(where, times_at(where, number), work)) != -signal.SIGKILL:
                sys.exit(f"at {where}, number {number}: ended with {code}")
