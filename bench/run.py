"""Run `make bench`: one machine, one broker, the same records for all systems. See bench/README.md."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "tools")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import beginning  # noqa: E402
import capacity  # noqa: E402
import catch_up  # noqa: E402
import chart  # noqa: E402
import cluster  # noqa: E402
import during_build  # noqa: E402
import environments  # noqa: E402
import growth  # noqa: E402
import idle  # noqa: E402
import kept  # noqa: E402
import latency  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import starved  # noqa: E402
import summaries  # noqa: E402
import sustained  # noqa: E402
import swaps  # noqa: E402
import timeline  # noqa: E402
import usage_table  # noqa: E402
import viewers  # noqa: E402
from context import QUICK, Bench, Sizes  # noqa: E402
from turnout.local.broker import EmbeddedBroker  # noqa: E402

RESULTS = ROOT / "bench" / "results.json"
TRIAL = ROOT / "bench" / "out" / "results.json"
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "topics" / "performance.md"
MARKS = ("<!-- bench -->", "<!-- /bench -->")

MEASURES: dict[str, Callable[[Bench], Any]] = {
    "catch-up": catch_up.measure,
    "latency": latency.measure,
    "sustained": sustained.measure,
    "swap": swaps.measure,
    "kept": kept.measure,
    "beside": during_build.measure,
    "growth": growth.measure,
    "viewers": viewers.measure,
    "summaries": summaries.measure,
    "start": beginning.measure,
    "idle": idle.measure,
    "starved": starved.measure,
    "cluster": cluster.measure,
    "capacity": capacity.measure,
    "timeline": timeline.measure,
}


BY_NAME_ONLY = ("capacity", "timeline")
"""The measures that run only by name, because a whole run must end within half an hour."""


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 180)
    if options.markdown or options.write_docs:
        return _show(options, console)
    sizes, names = _sizes(options), _names(options)
    full = sizes == Sizes() and not options.peers
    file = RESULTS if full else TRIAL
    document = json.loads(file.read_text()) if file.exists() and _some(options) else {"measures": {}}
    document.setdefault("took_seconds", {})
    document |= machine.describe() | {"sizes": sizes.to_json(), "written": datetime.now(UTC).isoformat("T", "seconds")}
    with console.status("Installing missing peers ..."):
        environments.install(names)
    if options.install:
        return 0

    def keep() -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n")

    failed = _measure(options, document, keep, console)
    _print(document, console)
    if full:
        chart.write(document, ROOT / "bench" / "chart.svg", console)
    for name, reason in failed.items():
        console.print(f"[red]{name} failed:[/] {reason}", highlight=False)
    console.print(f"written: {file.relative_to(ROOT)}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        choices=list(MEASURES),
        help="run these measures; the others keep their results",
    )
    parser.add_argument(
        "--peers", nargs="+", choices=catch_up.ALL_PEERS, default=[], help="the peers of catch-up; default: all"
    )
    parser.add_argument("--starved", action="store_true", help="the same as --only starved")
    parser.add_argument("--records", type=int, help="records in each of the two topics (1,000,000)")
    parser.add_argument("--runs", type=int, help="runs of the short measures; medians are shown (3)")
    parser.add_argument(
        "--seconds", type=float, help="the duration of each latency measure and of each number of viewers (10)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the bench; the results mean nothing")
    parser.add_argument("--install", action="store_true", help="install the peers, measure nothing")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table of bench/results.json, measure nothing"
    )
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="write the tables to README.md and docs/topics/performance.md, measure nothing",
    )
    return parser.parse_args()


def _some(options: argparse.Namespace) -> list[str]:
    """Return the measures that were requested by name."""
    return [*options.only, *(["starved"] if options.starved and "starved" not in options.only else [])]


def _names(options: argparse.Namespace) -> list[str]:
    return _some(options) or [name for name in MEASURES if name not in BY_NAME_ONLY]


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    given = {
        name: getattr(options, name) for name in ("records", "runs", "seconds") if getattr(options, name) is not None
    }
    return replace(sizes, **given)


def _measure(
    options: argparse.Namespace, document: dict[str, Any], keep: Callable[[], None], console: Console
) -> dict[str, str]:
    """Run each measure on one broker; a failure does not end the others. Return the reasons of failures."""
    failed = {}
    # Records and stores are large, so they are not put in /tmp, which may be in memory.
    out = ROOT / "bench" / "out"
    out.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=out, prefix="run-") as folder,
        EmbeddedBroker(Path(folder) / "broker", java_options=["-Xmx1g"]) as broker,
    ):
        bench = Bench(_sizes(options), Path(folder), broker.bootstrap_servers, console, options.peers)
        for name in _names(options):
            began = time.monotonic()
            console.rule(name)
            try:
                document["measures"][name] = MEASURES[name](bench)
                document["took_seconds"][name] = time.monotonic() - began
                keep()
            except Exception as error:
                traceback.print_exc()
                failed[name] = str(error) or type(error).__name__
            console.print(f"{name}: {time.monotonic() - began:.0f} s", highlight=False)
    return failed


def _print(document: dict[str, Any], console: Console) -> None:
    table = Table(title="Turnout beside its peers")
    for column in report.COLUMNS:
        table.add_column(column, overflow="fold")
    for row in report.rows(document["measures"]):
        style = {True: "green", False: "red", None: ""}[row.met]
        table.add_row(*row.cells, style=style)
    console.print(table)
    if usages := usage_table.rows(document["measures"]):
        console.print(_usages(usages))
    console.print(report.describe(document), highlight=False)


def _usages(usages: list[tuple[str, ...]]) -> Table:
    table = Table(title=usage_table.TITLE, caption=usage_table.NOTE)
    for place, column in enumerate(usage_table.COLUMNS):
        table.add_column(column, overflow="fold", justify="left" if place < 2 else "right")
    for usage in usages:
        table.add_row(*usage)
    return table


def _show(options: argparse.Namespace, console: Console) -> int:
    if not RESULTS.exists():
        console.print("[red]bench/results.json does not exist:[/] run `make bench` first")
        return 1
    document = json.loads(RESULTS.read_text())
    if options.markdown:
        print(report.markdown(document))
    if options.write_docs:
        return _write(PERFORMANCE, report.markdown(document), console) or _write(
            README, report.headlines(document), console
        )
    return 0


def _write(page: Path, text: str, console: Console) -> int:
    """Write the text between the marks of a page; return the exit code."""
    before, mark, rest = page.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        console.print(f"[red]{page.name} has no block {MARKS[0]} ... {MARKS[1]}:[/] add it where the table belongs")
        return 1
    page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")
    return 0


if __name__ == "__main__":
    # Convert SIGTERM to an exception, so that started processes are ended.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
