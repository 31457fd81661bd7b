"""Pathway: users left-joined with the latest account of each key.

It runs in a separate environment and prints one JSON object per line. Complete rows are counted inside Pathway, because
a Python callback for each row would dominate the measured time.
"""

import argparse
import json
import os
import sys
import threading
import time

import pathway as pw


class User(pw.Schema):
    userId: str  # noqa: N815 - a name of the records
    name: str
    email: str
    age: int


class Account(pw.Schema):
    userId: str  # noqa: N815
    accountType: str  # noqa: N815
    balance: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--users", required=True)
    parser.add_argument("--accounts", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--newest", required=True)
    options = parser.parse_args()
    started = time.monotonic()
    users, accounts = (read(options, options.users, User), read(options, options.accounts, Account))
    # `latest` would use the processing time, which is equal for all records of a commit.
    newest = accounts.groupby(accounts.userId).reduce(
        accounts.userId,
        account=pw.reducers.max(
            pw.make_tuple(pw.this._metadata["offset"].as_int(), accounts.accountType, accounts.balance)
        ),
    )
    newest = newest.select(pw.this.userId, accountType=pw.this.account[1], balance=pw.this.account[2])
    final = users.join_left(newest, users.userId == newest.userId).select(
        *[users.userId, users.name, users.email, users.age, newest.accountType, newest.balance]
    )
    complete = final.filter(pw.this.accountType == options.newest).reduce(rows=pw.reducers.count())

    def seen(key, row, time, is_addition) -> None:
        if is_addition and row["rows"] == options.records:
            threading.Thread(target=end).start()

    def end() -> None:
        say(event="cold", seconds=time.monotonic() - started)
        sys.stdin.readline()
        os._exit(0)  # the engine cannot be ended from outside

    pw.io.subscribe(complete, on_change=seen)
    started = time.monotonic()
    say(event="started", seconds=0.0)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def read(options: argparse.Namespace, topic: str, schema: type[pw.Schema]) -> pw.Table:
    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": f"bench-{time.time()}",
        "auto.offset.reset": "earliest",
    }
    return pw.io.kafka.read(settings, topic=topic, format="json", schema=schema, with_metadata=True)


if __name__ == "__main__":
    main()
