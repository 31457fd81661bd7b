"""Kept rows: swaps that copy rows instead of reading them again, from the request to a subscriber.

One process has caught up on the large topics. The part "whole" is a swap that keeps nothing: with `"start": "earliest"`
it reads both topics again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import yaml

from context import Bench
from records import Pair
from turnout.config.settings import default_views
from turnout.testing import wait_until
from turnout_side import SHORT_LINGER, TurnoutSide, running, shown_seconds

JOINS = ("inner", "left")
"""The joins to alternate; a process starts with `left`. Each user has an account, so both have the same rows."""
PHASES = ("buildSeconds", "catchUpSeconds", "publishSeconds")
MOST_ROUNDS = 2
"""The maximum rounds of swaps that read: each round has two that read one topic, and two that read both."""

Results = dict[str, Any]


def measure(bench: Bench) -> Results:
    """Return for each part its seconds, its kept and read rows, and the seconds of its phases from the history."""
    large, other = (bench.pair(f"catch-up-{n}", bench.sizes.records, n) for n in (1, 5))
    small = bench.pair("swap-a", bench.sizes.swap_rows)
    results: Results = {"rows": large.records, "small_rows": small.records, "parts": {}}
    with (
        bench.own_folder("kept") as folder,
        running(folder, bench.bootstrap, large.topics, swap=SHORT_LINGER) as side,
    ):
        measured = _Parts(bench, side, results["parts"])
        _joins(measured, "join", large.records)
        _views(measured, large.records)
        _one_topic(measured, large, other)
        measured.swap("", small.records, usersTopic=small.users, accountsTopic=small.accounts, start="earliest")
        _joins(measured, "small join", small.records)
    return results


class _Parts:
    """A recorder that measures swaps of one process and stores them by the name of a part."""

    def __init__(self, bench: Bench, side: TurnoutSide, parts: Results) -> None:
        self.side = side
        self.runs = bench.sizes.runs
        self._bench = bench
        self._parts = parts

    def swap(self, part: str, rows: int, **message: Any) -> None:
        """Measure a swap by a control record; it is not stored if `part` is empty."""
        self.take(part, rows, lambda: self.side.ask(**message))

    def take(self, part: str, rows: int, begin: Callable[[], float], added: tuple[str, ...] = ()) -> None:
        """Measure the swap that `begin` requests; afterwards all tables, also `added` ones, must have `rows` rows."""
        wait_until(lambda: not self.side.status()["lingering"], 60, what="the generation before is retired")
        seconds = shown_seconds(self.side, begin, added, rows)
        if not part:
            return
        origins, phases = _history(self.side)
        self._bench.say(f"kept, {part}: {seconds:.2f} s ({_text(phases)}; {origins})")
        taken = self._parts.setdefault(part, {"seconds": [], "sources": [], "phases": []})
        for name, value in (("seconds", seconds), ("sources", origins), ("phases", phases)):
            taken[name].append(value)


def _joins(measured: _Parts, part: str, rows: int) -> None:
    """Change the join twice in each run: there and back."""
    for number in range(2 * measured.runs):
        measured.swap(part, rows, joinType=JOINS[number % 2])


def _views(measured: _Parts, rows: int) -> None:
    """Add another view beside `final_ui` in each run by an applied file, without the view of the previous run."""
    document = yaml.safe_load(measured.side.config.read_text())
    for number in range(measured.runs):
        table = f"accounts_first_{number}"
        views = default_views() | {table: {"left": "accounts", "right": "users", "on": "userId"}}
        text = yaml.safe_dump(document | {"views": views})
        measured.take("view", rows, partial(_apply, measured.side, text), (table,))
    _apply(measured.side, yaml.safe_dump(document))


def _one_topic(measured: _Parts, large: Pair, other: Pair) -> None:
    """Swap the users' topic and back: first with kept accounts, then reading everything."""
    for _ in range(min(MOST_ROUNDS, measured.runs)):
        for part, more in (("one topic", {}), ("whole", {"start": "earliest"})):
            for users in (other.users, large.users):
                measured.swap(part, large.records, usersTopic=users, **more)


def _apply(side: TurnoutSide, text: str) -> float:
    """Apply a file; return the time at which the request began."""
    began = time.monotonic()
    answer = side.put_config(text)
    answer.raise_for_status()
    if (outcome := answer.json()["outcome"]) != "applied":
        raise RuntimeError(f"the file was not applied: {outcome}")
    return began


def _history(side: TurnoutSide) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """Return the kept and read rows of each source in the newest swap, and the seconds of its phases."""
    [swap] = side.rows("swaps", where=f"generation = {side.status()['generation']}")
    return orjson.loads(swap["sources"]), {phase: swap[phase] for phase in PHASES}


def _text(phases: dict[str, float]) -> str:
    return ", ".join(f"{phase.removesuffix('Seconds')} {seconds:.2f}" for phase, seconds in phases.items())
