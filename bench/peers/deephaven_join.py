"""Deephaven with the original design: two append tables, users natural-joined with the last account of each key.

It runs in a separate environment (see environments.py), so it imports nothing of the bench. It prints one JSON object
per line; `catch-up` builds the tables twice in one process (cold, then warm), `serve` serves them to subscribers.
"""

import argparse
import json
import sys
import time

ANONYMOUS = "-DAuthHandlers=io.deephaven.auth.AnonymousAuthenticationHandler"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["catch-up", "serve"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--users", required=True)
    parser.add_argument("--accounts", required=True)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--newest", default="", help="the account type of each key's newest account")
    parser.add_argument("--heap", default="6g")
    parser.add_argument("--cycle-ms", type=int, help="the update cycle and the push interval; default: Deephaven's own")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    start_server(options)
    say(event="started", seconds=time.monotonic() - started)
    if options.command == "serve":
        serve(options)
    else:
        for event in ("cold", "warm"):
            kept.append(catch_up(options, event))
            sys.stdin.readline()  # wait until the bench has measured memory and processor time


kept = []
"""The scopes and tables in use; Deephaven closes unreferenced ones."""


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def start_server(options: argparse.Namespace) -> None:
    from deephaven_server import Server

    arguments = [f"-Xmx{options.heap}", ANONYMOUS]
    if options.cycle_ms:
        arguments += [
            f"-DPeriodicUpdateGraph.targetCycleDurationMillis={options.cycle_ms}",
            f"-Dbarrage.minUpdateInterval={options.cycle_ms}",
        ]
    server = Server(port=options.port, jvm_args=arguments)
    server.start()
    kept.append(server)
    # Loading these modules is part of the start.
    import deephaven.stream.kafka.consumer
    import deephaven.update_graph  # noqa: F401


def build(options, earliest):
    """Build the tables of one generation in a new liveness scope, which the caller must keep."""
    from deephaven import dtypes as dt
    from deephaven.liveness_scope import LivenessScope
    from deephaven.stream.kafka import consumer as kc

    columns = {
        options.users: {"userId": dt.string, "name": dt.string, "email": dt.string, "age": dt.int64},
        options.accounts: {"userId": dt.string, "accountType": dt.string, "balance": dt.double},
    }
    scope = LivenessScope()
    with scope.open():
        users, accounts = (
            kc.consume(
                {"bootstrap.servers": options.bootstrap},
                topic,
                offsets=kc.ALL_PARTITIONS_SEEK_TO_BEGINNING if earliest else kc.ALL_PARTITIONS_SEEK_TO_END,
                key_spec=kc.KeyValueSpec.IGNORE,
                value_spec=kc.json_spec(list(spec.items())),
                table_type=kc.TableType.append(),
            )
            for topic, spec in columns.items()
        )
        final = users.view(list(columns[options.users])).natural_join(
            accounts.view(list(columns[options.accounts])).last_by("userId"), on="userId"
        )
    return scope, users, accounts, final


def catch_up(options: argparse.Namespace, event: str):
    """Measure the time until every user row has its key's newest account, and return the tables.

    The size of a natural join is always that of its left side. So the time ends when all records are read in the same
    cycle; then the joined rows are counted, outside the measured time.
    """
    from deephaven.update_graph import shared_lock

    started = time.monotonic()
    tables = build(options, earliest=True)
    _, users, accounts, final = tables
    while True:
        if users.size >= options.records and accounts.size >= options.records:
            with shared_lock(final):
                seconds = time.monotonic() - started
                joined = final.where(f"accountType == `{options.newest}`").size
            if joined == options.records:
                say(event=event, seconds=seconds, joined=joined)
                return tables
        time.sleep(0.02)


def serve(options: argparse.Namespace) -> None:
    tables = build(options, earliest=False)
    kept.append(tables)
    import __main__

    __main__.final = tables[3]
    say(event="serving", port=kept[0].port)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
