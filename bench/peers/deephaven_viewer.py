"""A Deephaven client that subscribes to the joined table and measures the age of each record at its arrival.

It runs in Deephaven's environment. `age` of a user and `balance` of an account are the produce time of the record in
milliseconds. It prints one JSON object per line: ready, then the ages.
"""

import argparse
import json
import time

from pydeephaven import Session
from pydeephaven_ticking.table_listener import TableListener, TableUpdate, listen


class Ages(TableListener):
    def __init__(self, begin_ms: float) -> None:
        self.begin_ms = begin_ms
        self.users: list[float] = []
        self.accounts: list[float] = []

    def on_update(self, update: TableUpdate) -> None:
        now = time.time() * 1000
        # One column at a time, because `added` does not accept a list of names.
        self.take(self.users, now, update.added("age"), "age")
        for rows in (update.added("balance"), update.modified("balance")):
            self.take(self.accounts, now, rows, "balance")

    def take(self, ages: list[float], now: float, rows, column: str) -> None:
        """Add the ages of a column, which is an Arrow array, or missing if there are no such rows."""
        moments = rows[column].to_pylist() if column in rows else []
        ages.extend(now - moment for moment in moments if moment is not None and moment > self.begin_ms)

    def on_error(self, error: Exception) -> None:
        print(json.dumps({"event": "error", "error": str(error)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    session = Session("127.0.0.1", options.port)
    table = session.open_table("final")
    ages = Ages((time.time() + options.warm_up) * 1000)
    handle = listen(table, ages)
    handle.start()
    print(json.dumps({"event": "ready", "seconds": 0}), flush=True)
    time.sleep(options.warm_up + options.seconds)
    print(json.dumps({"event": "ages", "users": ages.users, "accounts": ages.accounts}), flush=True)
    handle.stop()
    session.close()


if __name__ == "__main__":
    main()
