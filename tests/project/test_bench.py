"""The bench's own arithmetic: processor seconds by kind, and from results to rows."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import report
import usage_table
from processors import JVM, KINDS, OTHER, PYTHON, WORKERS, Snapshot, snapshot, used

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
ENDS_A_CHILD = f"""
import subprocess, sys
input()
subprocess.run([sys.executable, "-c", {BUSY.format(seconds=0.3)!r}], check=True)
{BUSY.format(seconds=0.3)}
print("done", flush=True)
input()
"""


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_processor_seconds_hold_what_ended_children_used() -> None:
    with started(ENDS_A_CHILD) as process:
        assert process.stdin is not None and process.stdout is not None
        before = snapshot(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
        usage = used(before, snapshot(process.pid))
    assert usage[PYTHON] > 0.2
    assert usage[OTHER] > 0.2


def test_processor_seconds_of_threads_and_of_those_that_ended_are_all_of_the_process() -> None:
    before, after = Snapshot(10.0), Snapshot(14.0)
    before.by_process.update({JVM: 10.0, WORKERS: 1.0})
    before.threads.update({(1, 1): ("JVM compiler", 4.0), (2, 1): (JVM, 3.0), (3, 1): ("Spark tasks", 3.0)})
    after.by_process.update({JVM: 20.0, WORKERS: 1.5})
    # Thread 2 has ended, and its number is another's now.
    after.threads.update({(1, 1): ("JVM compiler", 5.0), (2, 9): ("JVM collector", 2.0), (3, 1): ("Spark tasks", 6.0)})
    usage = used(before, after)
    assert usage == dict.fromkeys(KINDS, 0.0) | {
        "JVM compiler": 1.0,
        "JVM collector": 2.0,
        "Spark tasks": 3.0,
        "JVM, threads that ended": 4.0,
        "Python workers": 0.5,
        "wall": 4.0,
    }


def test_processor_seconds_of_a_process_that_is_gone_are_none() -> None:
    with started("input()") as process:
        before = snapshot(process.pid)
    assert not psutil.pid_exists(process.pid)
    assert used(before, snapshot(process.pid)) == {}


def test_a_row_tells_whether_its_target_is_met() -> None:
    latency = {"p50_ms": 140.0, "p99_ms": 410.0}
    results = {
        "latency": {
            "per_second": 200,
            "not_run": {"Deephaven 42.7": "no network"},
            "Turnout": [latency],
            "first": [{"p50_ms": 200.0, "p99_ms": 900.0}],
            "first_seconds": 30.0,
            "processors": {"latency": {"Turnout": [dict.fromkeys(KINDS, 0.5) | {"wall": 10.0}]}},
        }
    }
    met = {row.measure: row.cells[-1] for row in report.rows(results) if row.target}
    assert met == {
        "latency, 200 records/s in each topic, p50": "yes",
        "latency, 200 records/s in each topic, p99": "no",
        "latency, cores": "yes",
        "latency in the first 30 s after the first row, p50": "yes",
        "latency in the first 30 s after the first row, p99": "no",
    }


def test_rows_of_a_starved_machine_are_ratios_to_itself_alone() -> None:
    alone = {"latency": [{"p50_ms": 100.0, "p99_ms": 200.0}], "latest": [0.3, 0.4, 0.5], "earliest": [2.0]}
    starved = {"latency": [{"p50_ms": 250.0, "p99_ms": 900.0}], "latest": [0.8], "earliest": [9.0]}
    results = {"starved": {"loops": 2, "rows": 100_000, "alone": alone, "starved": starved}}
    assert [(row.ratio, row.met) for row in report.rows(results)] == [
        ("2.50 x", True),
        ("4.50 x", False),
        ("2.00 x", True),
        ("4.50 x", False),
    ]


def test_rows_of_kept_swaps_tell_what_was_read_again() -> None:
    kept = {"users": {"kept": 1_000, "read": 0}, "accounts": {"kept": 1_000, "read": 0}}
    parts = {
        "join": {"seconds": [2.0, 2.2, 2.6], "sources": [kept] * 3},
        "small join": {"seconds": [0.9], "sources": [kept]},
        "view": {"seconds": [2.0, 2.0], "sources": [kept, kept | {"users": {"read": 1_000}}]},
        "one topic": {"seconds": [3.5]},
        "whole": {"seconds": [6.0, 5.0]},
    }
    rows = report.rows({"kept": {"rows": 1_000, "small_rows": 100, "parts": parts}})
    assert [(row.turnout, row.ratio, row.target, row.met) for row in rows] == [
        ("2.20 s (2.00-2.60)", "", "under 2.5 s", True),
        ("0", "", "0", True),
        ("0.90 s (1 run)", "", "under 0.8 s", False),
        ("0", "", "0", True),
        ("2.00 s (2 runs, 2.00-2.00)", "", "under 2.5 s", True),
        ("1,000", "", "0", False),
        ("3.50 s (1 run)", "0.64 x", "at most 0.6 x", False),
    ]


def test_the_table_of_processor_seconds_has_medians_of_all_runs() -> None:
    usages = [dict.fromkeys(KINDS, 0.0) | {PYTHON: seconds, JVM: 1.0, "wall": 10.0} for seconds in (1.0, 2.0, 9.0)]
    results = {"latency": {"processors": {"latency": {"Turnout": usages}}}, "swap": {"latest": [0.1]}}
    [row] = usage_table.rows(results)
    shown = dict(zip(usage_table.COLUMNS, row, strict=True))
    assert {name: value for name, value in shown.items() if value} == {
        "measure": "latency",
        "system": "Turnout",
        "in": "10.0 s",
        "all": "3.00",
        "other threads": "1.00",
        "Python": "2.00",
    }


def marked(page: str) -> str:
    """What a page has between its marks of the bench."""
    [found] = re.findall(
        r"<!-- bench -->\n(.*?)\n<!-- /bench -->", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    )
    return str(found)


def test_pages_have_the_tables_of_the_results() -> None:
    assert marked("docs/topics/performance.md") == report.markdown(RESULTS)
    assert report.headlines(RESULTS) in marked("README.md")


def test_page_of_capacity_has_the_figures_of_the_results() -> None:
    page = (ROOT / "docs" / "topics" / "capacity.md").read_text(encoding="utf-8")
    assert [text for text in capacity_figures(RESULTS["measures"]) if text not in page] == []


def capacity_figures(measures: report.Results) -> Iterator[str]:
    """The figures of the page, as its tables write them."""
    catch_up, cluster, viewers = measures["catch-up"], measures["cluster"], measures["viewers"]["viewers"]
    for way in ("cold", "warm"):
        seconds = round(statistics.median(catch_up["variants"]["1 record a key"][f"Turnout {way}"]), 1)
        yield f"| {seconds} s: {round(2 * catch_up['records'] / seconds, -3):,.0f} records/s |"
    yield f"| {statistics.median(catch_up['memory_mb']['Turnout']):,.0f} MB; "
    yield f"| {statistics.median(cluster['seconds']['1']):.1f} s: "
    for part in ("executors", "driver, JVM", "driver, store and server"):
        means = [statistics.mean(run[part] for run in runs) for runs in cluster["cpu_seconds"].values()]
        yield f"| {' | '.join(f'{mean:.1f} s' for mean in means)} |"
    sustained = measures["sustained"]
    yield f"{sustained['asked_per_second']:,} records/s: lag bounded, p99 {sustained['p99_ms'] / 1000:.1f} s"
    fifty, most = (
        next(one for one in viewers if one["viewers"] == count and not one["stalled"]) for count in (50, 200)
    )
    yield f"| 50: p99 {fifty['p99_ms'] / 1000:.2f} s; 200: p99 {most['p99_ms'] / 1000:.2f} s |"
    yield f"| {(most['added_mb'] - viewers[0]['added_mb']) / most['viewers']:.2f} MB |"
