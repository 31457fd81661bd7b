"""`python -m faults`: play faults, print what came of each; fails when something is lost, doubled or not recovered."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from faults import report
from faults.catalogue import FAULTS
from faults.stage import Played, Stage
from patience import measure

DOCS = Path(__file__).resolve().parents[2] / "docs" / "topics" / "guarantees.md"


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    if options.list:
        for fault in FAULTS:
            console.print(f"{fault.name:18} {fault.what}")
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no process is left
    wanted = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    played: list[Played] = []
    measure()
    with tempfile.TemporaryDirectory(prefix="turnout-faults-") as folder, Stage(Path(folder)) as stage:
        for fault in wanted:
            played.append(stage.play(fault))
            report.say(console, played[-1])
            if options.write_docs:
                report.write(DOCS, played)
    console.print(report.table(played))
    return 0 if all(one.good for one in played) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this fault; may be repeated")
    parser.add_argument("--list", action="store_true", help="name all faults, and play none")
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/topics/guarantees.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
