"""`python -m faults.attacks.served FOLDER`: a server over a table of many rows that changes all the time.

Prints its address when it can be used, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fake_orchestrator import FakeOrchestrator
from filled_store import Filling
from turnout.serve.app import Server, Services, create_app
from turnout.serve.connections import OpenConnections, allow_open_files
from turnout.store.database import Database

ROWS = 200_000
ROWS_AT_ONCE = 50_000
BATCHES_A_SECOND = 5
BATCH_ROWS = 20


def main() -> None:
    database = Database.open(Path(sys.argv[1]))
    filling = Filling(database)
    numbers = random.Random(1)
    filling.generation()
    for start in range(0, ROWS, ROWS_AT_ONCE):
        filling.batch(users=[_user(numbers, start + number) for number in range(ROWS_AT_ONCE)])
    filling.publish()
    allow_open_files(1000)
    server = Server(create_app(Services(database, FakeOrchestrator())), "127.0.0.1", 0, OpenConnections())
    stopped = threading.Event()
    writing = threading.Thread(target=_write, args=(filling, numbers, stopped))
    ending = threading.Thread(target=_stop_with_input, args=(server,), daemon=True)
    try:
        ending.start()
        writing.start()
        asyncio.run(server.run_until_stop(lambda _: print(server.url, flush=True)))
    finally:
        stopped.set()
        writing.join()
        database.close()


def _stop_with_input(server: Server) -> None:
    sys.stdin.read()
    server.stop()


def _write(filling: Filling, numbers: random.Random, stopped: threading.Event) -> None:
    """A batch so many times a second, or as soon as the last one is written."""
    due, count = time.monotonic(), ROWS
    while not stopped.wait(max(0.0, due - time.monotonic())):
        due = max(due + 1 / BATCHES_A_SECOND, time.monotonic())
        filling.batch(users=[_user(numbers, count + number) for number in range(BATCH_ROWS)])
        count += BATCH_ROWS


def _user(numbers: random.Random, number: int) -> dict[str, Any]:
    name = f"user {number} {numbers.random():.12f}"
    return {"userId": f"u{number}", "name": name, "email": f"{name}@example.com", "age": numbers.randrange(90)}


if __name__ == "__main__":
    main()
