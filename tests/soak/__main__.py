"""`python -m soak`: load, swaps, viewers and faults for so long; then all is compared, and the figures are shown."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import oracle
from faults.kafkas import OneBroker
from faults.world import Comparison, World
from machine_speed import measure
from soak import report
from soak.events import Faults, Swaps
from soak.sampling import Sampler
from soak.viewers import Probe, Viewers
from turnout.testing import patience, wait_until
from turnout_client import ChangesSubscription

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "topics" / "guarantees.md"
OUT = ROOT / "bench" / "out"
PER_SECOND = 300
MOST_KEYS = 2_000
VIEWERS = 10
SWAP_SECONDS, FAULT_SECONDS, SAMPLE_SECONDS = 20.0, 60.0, 5.0
ROUND_SECONDS = 5 * FAULT_SECONDS
"""After that long each kind of fault was played once."""
WARM_UP_SECONDS = 180.0
JUDGED_MINUTES = 15
"""Below that there are too few samples to say whether anything grows: the figures are shown, and judge nothing."""
EXTRA_SECONDS = 360
"""For the start, the end, and a fault at the last moment; after that the run is over, whatever it does."""


@dataclass(slots=True)
class Soak:
    """One run over a world that is at work."""

    world: World
    kafka: OneBroker
    console: Console
    seconds: float
    kills: bool

    def run(self, samples: Path) -> tuple[Sampler, Comparison, list[str], list[str]]:
        """The samples, the tables against Kafka, what was done, and what went wrong."""
        url = f"http://127.0.0.1:{self.world.process.port}"
        swaps, faults = Swaps(self.world), Faults(self.world, self.kafka, kills=self.kills)
        viewers = Viewers(url, VIEWERS)
        probe = Probe(url, self.world.bootstrap, lambda: self.world.topics.users)
        sampler = Sampler(self.world.process, probe.latency_ms, samples, SAMPLE_SECONDS)
        began = time.monotonic()
        try:
            self.world.producer.resume()
            probe.start()
            sampler.start()
            swaps.start(SWAP_SECONDS)
            self._go_on(faults, viewers)
            took = time.monotonic() - began
            swaps.stop()
            sampler.stop()
            probe.stop()
            found = self.world.recover(time.monotonic())
            troubles = viewers.troubles + swaps.troubles + copies_differ(self.world, viewers)
        finally:
            viewers.close()
        done = [
            f"{took / 60:.0f} minutes at {PER_SECOND} records/s, swaps: {counted(swaps.outcomes)}",
            f"faults: {counted(faults.played)}; {viewers.came} viewers came and were sent {viewers.events:,} messages",
            f"rows and messages compared at the end: {found.rows:,}; lost: {found.lost}, doubled: {found.doubled}",
        ]
        return sampler, found, done, troubles

    def _go_on(self, faults: Faults, viewers: Viewers) -> None:
        began = time.monotonic()
        # A short run has each kind at least once too.
        every = min(FAULT_SECONDS, self.seconds / 6)
        next_fault = began + every / 2
        while (now := time.monotonic()) < began + self.seconds:
            viewers.tick()
            if now >= next_fault:
                name = faults.next()
                self.console.print(f"{now - began:5.0f} s  {name}", markup=False)
                next_fault += every
            time.sleep(0.25)


def copies_differ(world: World, viewers: Viewers) -> list[str]:
    """Viewers whose copy is not the table, although nothing is written any more."""
    found = []
    for subscription in viewers.copies():
        same = partial(is_copy, world, subscription)
        try:
            wait_until(same, interval=0.5, what=f"the copy of {subscription!r}")
        except TimeoutError as error:
            found.append(str(error))
    return found


def is_copy(world: World, subscription: ChangesSubscription) -> bool:
    return oracle.bag(subscription.mirror.rows.values()) == oracle.bag(world.read(subscription.table))


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items()) or "none"


def bounded(seconds: float) -> None:
    """End with an error after so long, whatever happens; everything that was started is then closed."""

    def over(*_: object) -> None:
        raise TimeoutError(f"the soak did not end within {seconds:.0f} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(int(seconds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long (30)")
    parser.add_argument("--write-docs", action="store_true", help=f"write the figures to {DOCS.relative_to(ROOT)}")
    parser.add_argument("--no-kills", action="store_true", help="one process all the time, so that what it leaks shows")
    options = parser.parse_args()
    console = Console()
    measure()
    bounded(options.minutes * 60 + patience(EXTRA_SECONDS))
    OUT.mkdir(parents=True, exist_ok=True)
    samples = OUT / "soak.csv"
    with tempfile.TemporaryDirectory(prefix="turnout-soak-") as folder, ExitStack() as opened:
        kafka = opened.enter_context(OneBroker(Path(folder) / "kafka"))
        home = Path(folder) / "soak"
        home.mkdir()
        world = opened.enter_context(World(home, kafka, per_second=PER_SECOND, most_keys=MOST_KEYS))
        soak = Soak(world, kafka, console, options.minutes * 60, kills=not options.no_kills)
        try:
            sampler, found, done, troubles = soak.run(samples)
        except BaseException:
            console.print(world.turnout.log(), markup=False)
            raise
    shown = report.figures(sampler.samples, min(WARM_UP_SECONDS, options.minutes * 60 / 5), ROUND_SECONDS)
    report.show(console, shown, [*done, f"samples: {samples.relative_to(ROOT)}"])
    if options.write_docs:
        report.write(DOCS, shown, done)
    troubles += list(found.details)
    if options.minutes >= JUDGED_MINUTES:
        troubles += [f"not flat: {figure.measure.name}" for figure in shown if not figure.flat]
    for trouble in troubles:
        console.print(f"FAILED {trouble}", markup=False, style="red")
    return int(bool(troubles))


if __name__ == "__main__":
    sys.exit(main())
