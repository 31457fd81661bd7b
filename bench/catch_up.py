"""Catch-up: the time to read all records and complete the left join, cold and warm, compared with the peers.

Cold is a new process, from the moment it begins to read; its start is measured separately. Warm is the same again in
the same process: for Turnout a swap, from the control message to a subscriber that has all tables.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import environments
import processors
import raw
from context import Bench
from environments import Unavailable
from processes import Peer, PeerFailed
from processors import Usage
from records import NEWEST, Pair
from turnout.java import jars
from turnout.testing import wait_until
from turnout_side import SHORT_LINGER, first_build, running, swap_seconds

PEERS = Path(__file__).resolve().parent / "peers"
START_SECONDS = 90
CATCH_UP_SECONDS = 300
ALL_PEERS = ("raw", *environments.DEEPHAVENS, "Kafka Streams", "PySpark stateful", "Pathway", "Flink SQL")
VARIANTS = {"1 record a key": 1, "5 updates a key": 5}

Results = dict[str, Any]


def measure(bench: Bench) -> Results:
    """Return seconds by variant and system, memory at the complete join, and the peers that could not run."""
    pairs = {name: bench.pair(f"catch-up-{n}", bench.sizes.records, n) for name, n in VARIANTS.items()}
    results: Results = {"records": bench.sizes.records, "not_run": {}, "memory_mb": {}, "start_up": {}}
    results["variants"] = {name: {} for name in VARIANTS}
    results["processors"] = {}
    # The maximum number of runs for each variant: slow peers run only once, to limit the duration.
    systems: list[tuple[str, tuple[int, int], Callable[[Bench, Results, str, Pair], None]]] = [
        ("raw", (3, 3), _raw),
        *((name, (3, 2), partial(_deephaven, name)) for name in environments.DEEPHAVENS),
        ("Kafka Streams", (1, 1), _kafka_streams),
        ("PySpark stateful", (1, 0), _spark),
        ("Pathway", (1, 0), _pathway),
        ("Flink SQL", (1, 0), _flink),
    ]
    _turnout(bench, results, pairs)
    for system, most, run in systems:
        if not bench.peers or system in bench.peers:
            _several(bench, results, pairs, system, most, run)
    return results


def _several(
    bench: Bench,
    results: Results,
    pairs: dict[str, Pair],
    system: str,
    most: tuple[int, int],
    run: Callable[[Bench, Results, str, Pair], None],
) -> None:
    """Run one system several times on each variant; if it cannot run, note the reason."""
    for (variant, pair), times in zip(pairs.items(), most, strict=True):
        runs = min(times, bench.sizes.runs)
        for number in range(runs):
            bench.say(f"catch-up, {variant}: {system}, run {number + 1} of {runs}")
            try:
                run(bench, results, variant, pair)
            except (Unavailable, PeerFailed, TimeoutError) as error:
                bench.say(f"{system}: {error}")
                results["not_run"][f"{system}, {variant}"] = str(error)
                break


def _note(results: Results, variant: str, name: str, seconds: float) -> None:
    results["variants"][variant].setdefault(name, []).append(seconds)


def _note_usage(results: Results, variant: str, way: str, name: str, usage: Usage) -> None:
    if usage:
        measure = f"catch-up, {variant}, {way}"
        results["processors"].setdefault(measure, {}).setdefault(name, []).append(usage)


def _turnout(bench: Bench, results: Results, pairs: dict[str, Pair]) -> None:
    """Run Turnout cold on the first variant, then warm on the other and the first; finally once cold on the other."""
    first, other = pairs
    turns = [(first, [other, first])] * bench.sizes.runs + [(other, [])]
    for number, (cold, warm) in enumerate(turns):
        bench.say(f"catch-up, {cold} cold{', then both warm' if warm else ''}: Turnout, {number + 1} of {len(turns)}")
        with (
            bench.own_folder(f"catch-up-{number}") as folder,
            running(folder, bench.bootstrap, pairs[cold].topics, ready=False, swap=SHORT_LINGER) as side,
        ):
            built = first_build(side, pairs[cold])
            _note(results, cold, "Turnout cold", built.seconds)
            _note(results, cold, "Turnout cold, as polled", built.seen_seconds)
            _note_usage(results, cold, "start before it", "Turnout", built.start_usage)
            _note_usage(results, cold, "cold", "Turnout", built.usage)
            _remember(results, cold, "Turnout", built.memory_mb, built.start_up_seconds, built.peak_mb)
            for variant in warm:
                wait_until(lambda: not side.status()["lingering"], 60, what="the generation before is retired")
                before = processors.snapshot(side.pid)
                _note(results, variant, "Turnout warm", swap_seconds(side, pairs[variant]))
                _note_usage(results, variant, "warm", "Turnout", processors.used(before, processors.snapshot(side.pid)))
                if not side.complete(pairs[variant]):
                    raise RuntimeError("the swap was published before it was complete")


def _remember(results: Results, variant: str, name: str, memory: float, start_up: float, peak: float = 0.0) -> None:
    results["start_up"].setdefault(name, []).append(start_up)
    if variant == next(iter(VARIANTS)):
        results["memory_mb"].setdefault(name, []).append(memory)
        if peak:
            results["memory_mb"].setdefault(f"{name}, peak", []).append(peak)


def _raw(bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    _note(results, variant, "raw", raw.seconds(bench.bootstrap, pair.topics, 2 * pair.records))


def _peer(results: Results, variant: str, name: str, command: list[str], *, warm: bool = False, **more: str) -> None:
    began = time.monotonic()
    with Peer(command, more) as peer:
        peer.wait("started", START_SECONDS)
        started, before = time.monotonic() - began, processors.snapshot(peer.pid)
        cold = peer.wait("cold", CATCH_UP_SECONDS)["seconds"]
        after = processors.snapshot(peer.pid)
        _note(results, variant, f"{name} cold", cold)
        _remember(results, variant, name, peer.memory_mb, started)
        if warm:
            nothing = processors.Snapshot(began)
            _note_usage(results, variant, "start before it", name, processors.used(nothing, before))
            _note_usage(results, variant, "cold", name, processors.used(before, after))
            peer.go_on()
            _note(results, variant, f"{name} warm", peer.wait("warm", CATCH_UP_SECONDS)["seconds"])
            _note_usage(results, variant, "warm", name, processors.used(after, processors.snapshot(peer.pid)))
        peer.go_on()


def _topics(bench: Bench, pair: Pair) -> list[str]:
    return ["--bootstrap", bench.bootstrap, "--users", pair.users, "--accounts", pair.accounts, "--newest", NEWEST]


def _deephaven(name: str, bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    command = [str(environments.python(name)), str(PEERS / "deephaven_join.py"), "catch-up"]
    command += [*_topics(bench, pair), "--records", str(pair.records)]
    _peer(results, variant, name, command, warm=True)


def _kafka_streams(bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    _java(bench, results, variant, pair, ("Kafka Streams", "kafka-streams", "StreamsJoin.java"))


def _flink(bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    _java(bench, results, variant, pair, ("Flink SQL", "flink", "FlinkJoin.java"))


def _java(bench: Bench, results: Results, variant: str, pair: Pair, peer: tuple[str, str, str]) -> None:
    name, set_name, source = peer
    command = environments.java_command(PEERS / source, set_name)
    command += [bench.bootstrap, *pair.topics, str(pair.keys), NEWEST, f".{pair.updates - 1}"]
    _peer(results, variant, name, command)


def _spark(bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    command = [sys.executable, str(PEERS / "spark_stateful.py"), *_topics(bench, pair), "--keys", str(pair.keys)]
    command += ["--last-name", f".{pair.updates - 1}", "--jars", ",".join(map(str, jars.resolve("spark-kafka")))]
    _peer(results, variant, "PySpark stateful", command)


def _pathway(bench: Bench, results: Results, variant: str, pair: Pair) -> None:
    command = [str(environments.python("pathway")), str(PEERS / "pathway_join.py"), *_topics(bench, pair)]
    command += ["--records", str(pair.records)]
    _peer(results, variant, "Pathway", command, PATHWAY_THREADS="2")
