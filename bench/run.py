"""`make bench`: one machine, one broker, the same records for everyone; tables, and bench/out/results.json."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from catch_up import accounts, default_sources, fill, raw_consumption_seconds, turnout_catch_up, users  # noqa: E402
from running import RunningTurnout  # noqa: E402
from turnout.broker import EmbeddedBroker  # noqa: E402
from viewers import Load, measure  # noqa: E402

TOPICS = ("users", "accounts")


def main() -> None:
    measures: dict[str, Callable[[Bench], Any]] = {"catch-up": bench_catch_up, "viewers": bench_viewers}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records in each of the two topics")
    parser.add_argument("--runs", type=int, default=3, help="runs of the catch-up; medians are shown")
    parser.add_argument("--seconds", type=int, default=20, help="how long each number of viewers looks")
    parser.add_argument("--only", choices=list(measures), help="one measure instead of all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker", heap="1g") as broker:
        bench = Bench(options, Path(folder), broker.bootstrap_servers)
        for topic, values in zip(TOPICS, (users, accounts), strict=True):
            fill(bench.bootstrap, topic, values(options.records), options.records)
        results = {name: run(bench) for name, run in measures.items() if options.only in (None, name)}
    save(options.records, results)


class Bench:
    """What a measure needs."""

    def __init__(self, options: argparse.Namespace, folder: Path, bootstrap: str) -> None:
        self.options = options
        self.folder = folder
        self.bootstrap = bootstrap
        self.console = Console()


def bench_catch_up(bench: Bench) -> list[dict[str, float]]:
    """From earliest to the complete join, beside raw consumption."""
    count, results = bench.options.records, []
    for run in range(bench.options.runs):
        bench.console.print(f"catch-up, run {run + 1} of {bench.options.runs}")
        raw = raw_consumption_seconds(bench.bootstrap, list(TOPICS), 2 * count)
        measured = turnout_catch_up(bench.folder / f"run{run}", bench.bootstrap, TOPICS, count)
        results.append({"raw_seconds": raw, **measured})
    table = Table(title=f"Catch-up, {count:,} + {count:,} records, medians of {len(results)} runs")
    for column in ("measure", "median", "least", "most", "x raw consumption"):
        table.add_column(column)
    raw = statistics.median(result["raw_seconds"] for result in results)
    for name in results[0]:
        values = [result[name] for result in results]
        middle = statistics.median(values)
        ratio = f"{raw / middle:.2f}" if name.endswith("seconds") else ""
        table.add_row(name, f"{middle:,.1f}", f"{min(values):,.1f}", f"{max(values):,.1f}", ratio)
    bench.console.print(table)
    return results


def bench_viewers(bench: Bench) -> list[dict[str, float]]:
    """Sorted and filtered windows, no two the same, while 5,000 rows change in a second."""
    count, seconds, rate = bench.options.records, bench.options.seconds, 5_000
    sources = default_sources(TOPICS)
    results = []
    turnout = RunningTurnout(bench.folder / "viewers", bench.bootstrap, start="earliest", sources=sources)
    turnout.start(ready=False)
    turnout.wait_ready(timeout=600)
    with contextlib.closing(turnout), Load(bench.bootstrap, TOPICS[1], count, rate).running():
        for viewers, stalled in ((0, False), (1, False), (10, False), (50, False), (50, True), (200, False)):
            bench.console.print(f"{viewers} viewers{', one more that reads nothing' if stalled else ''}")
            results.append({**measure(turnout, viewers, seconds, stalled), "stalled": float(stalled)})
    table = Table(title=f"Viewers of {count:,} rows, {rate:,} of which change in a second, for {seconds} s each")
    headings = ("viewers", "push p50 ms", "p99 ms", "messages/s", "server cores", "MB", "cores a viewer", "MB a viewer")
    for heading in headings:
        table.add_column(heading, justify="right")
    nobody = results[0]
    for result in results:
        name = f"{result['viewers']:.0f}{' + 1 stalled' if result['stalled'] else ''}"
        figures = [f"{result[key]:,.0f}" for key in ("p50_ms", "p99_ms", "messages_per_second")]
        cost = [
            f"{(result[key] - nobody[key]) / result['viewers']:.3f}" if result["viewers"] else ""
            for key in ("server_cores", "server_mb")
        ]
        table.add_row(name, *figures, f"{result['server_cores']:.2f}", f"{result['server_mb']:,.0f}", *cost)
    bench.console.print(table)
    return results


def save(records: int, results: dict[str, Any]) -> None:
    out = ROOT / "bench" / "out"
    out.mkdir(exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    (out / "results.json").write_text(json.dumps({"records": records, **results, **machine}, indent=2))


if __name__ == "__main__":
    main()
