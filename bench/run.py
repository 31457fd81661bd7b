"""`make bench`: one run, one broker, the same records for everyone; a table, and bench/out/results.json."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from catch_up import accounts, fill, raw_consumption_seconds, turnout_catch_up, users  # noqa: E402
from turnout.broker import EmbeddedBroker  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records in each of the two topics")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measure; medians are shown")
    options = parser.parse_args()
    console = Console()
    count, results = options.records, []
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker", heap="1g") as broker:
        bootstrap = broker.bootstrap_servers
        fill(bootstrap, "users", users(count), count)
        fill(bootstrap, "accounts", accounts(count), count)
        for run in range(options.runs):
            console.print(f"run {run + 1} of {options.runs}")
            raw = raw_consumption_seconds(bootstrap, ["users", "accounts"], 2 * count)
            measured = turnout_catch_up(Path(folder) / f"run{run}", bootstrap, ("users", "accounts"), count)
            results.append({"raw_seconds": raw, **measured})
            console.print(results[-1])
    show(console, count, results)


def show(console: Console, count: int, results: list[dict[str, float]]) -> None:
    table = Table(title=f"Catch-up, {count:,} + {count:,} records, medians of {len(results)} runs")
    for column in ("measure", "median", "least", "most", "x raw consumption"):
        table.add_column(column)
    raw = statistics.median(result["raw_seconds"] for result in results)
    for name in results[0]:
        values = [result[name] for result in results]
        middle = statistics.median(values)
        ratio = f"{raw / middle:.2f}" if name.endswith("seconds") else ""
        table.add_row(name, f"{middle:,.1f}", f"{min(values):,.1f}", f"{max(values):,.1f}", ratio)
    console.print(table)
    out = ROOT / "bench" / "out"
    out.mkdir(exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    (out / "results.json").write_text(json.dumps({"records": count, "runs": results, **machine}, indent=2))


if __name__ == "__main__":
    main()
