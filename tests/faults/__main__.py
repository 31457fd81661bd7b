"""`python -m faults`: play faults and attacks, print what came of each.

Fails when something is lost, doubled or not recovered, or when ordinary viewers wait twice as long beside an attack of
low priority, or the server takes more memory for it than one client may have.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from faults import report
from faults.attacks.attackers import ATTACKS
from faults.attacks.play import Attacked, play, what
from faults.catalogue import FAULTS
from faults.stage import Fault, Played, Stage
from machine_speed import measure

DOCS = Path(__file__).resolve().parents[2] / "docs" / "topics" / "guarantees.md"


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    if options.list:
        for fault in FAULTS:
            console.print(f"{fault.name:18} {fault.what}")
        for name in ATTACKS:
            console.print(f"{name:18} {what(name)}")
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no process is left
    faults = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    attacks = [name for name in ATTACKS if not options.only or name in options.only]
    if options.attacks:
        faults = []
    good = [_play_faults(console, faults, options.write_docs)] if faults else []
    good += [_play_attacks(console, attacks, options.write_docs)] if attacks else []
    return 0 if all(good) else 1


def _play_faults(console: Console, faults: Sequence[Fault], write_docs: bool) -> bool:
    played: list[Played] = []
    measure()
    with tempfile.TemporaryDirectory(prefix="turnout-faults-") as folder, Stage(Path(folder)) as stage:
        for fault in faults:
            played.append(stage.play(fault))
            report.say(console, played[-1])
            if write_docs:
                report.write(DOCS, played)
    console.print(report.table(played))
    return all(one.good for one in played)


def _play_attacks(console: Console, names: Sequence[str], write_docs: bool) -> bool:
    played: list[Attacked] = []
    with tempfile.TemporaryDirectory(prefix="turnout-attacks-") as folder:
        for one in play(names, Path(folder)):
            ratios = f"{one.ratio(one.low):.2f} times the gap, {one.ratio(one.ordinary):.2f} at ordinary priority"
            console.print(f"{'ok' if one.good else 'FAILED':6} {one.name}: {ratios}", markup=False)
            played.append(one)
    console.print(report.attack_table(played))
    if write_docs:
        report.write_attacks(DOCS, played)
    return all(one.good for one in played)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    names = [*(fault.name for fault in FAULTS), *ATTACKS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="this fault or attack; may be repeated"
    )
    parser.add_argument("--attacks", action="store_true", help="only attacks, no faults")
    parser.add_argument("--list", action="store_true", help="name all, and play none")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/topics/guarantees.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
