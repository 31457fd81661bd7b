"""The layers of the test suite, by folder, and the order of their files: long files first.

A pytest worker runs whole files; with long files first the workers end at about the same time. Every worker imports all
files, but starts at a different file, so that workers share compiled byte code.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LAYERS = {
    "live": "real Spark, real brokers, real processes",
    "browser": "a real browser, and what Node builds",
    "fast": "no broker, no Spark, no browser",
}
"""The layers with their descriptions, in the order of a run."""

LONGEST = (
    "live/test_secured.py",
    "live/test_swaps.py",
    "live/test_cluster.py",
    "live/test_applies.py",
    "live/test_demo.py",
    "live/test_process_faults.py",
    "live/test_kill.py",
    "browser/test_page.py",
    "browser/test_web.py",
    "live/test_chains.py",
    "live/test_sink_faults.py",
    "live/test_tutorial.py",
    "live/test_faults.py",
    "browser/test_page_charts.py",
    "browser/test_page_sql.py",
    "serve/test_changed_columns.py",
    "serve/test_ask_api.py",
    "serve/test_summaries.py",
    "store/test_sql.py",
    "live/test_fault_suite.py",
    "live/test_sinks.py",
    "live/test_broker.py",
    "live/test_catching_up.py",
    "live/test_three_sources.py",
    "live/test_subscribers.py",
    "live/test_leaks.py",
    "live/test_formats.py",
    "serve/test_live.py",
    "browser/test_widget.py",
    "browser/test_page_example.py",
    "decode/test_json_plain.py",
    "serve/test_openapi.py",
    "serve/test_limits.py",
    "serve/test_connections.py",
)
"""The files that take long, with the longest first. A missing file costs at most a minute at the end.

Files with much SQL, which has a low priority, take minutes on a busy machine.
"""

STARTED = {"spark", "broker"}
"""The fixtures that start programs; only layers with these programs may use them."""


@cache
def layer_of(path: Path) -> str:
    """Return the layer of a test file."""
    folder = path.relative_to(TESTS).parts[0]
    return folder if folder in LAYERS else "fast"


@cache
def place_in_order(path: Path) -> tuple[int, int, str]:
    name = path.relative_to(TESTS).as_posix()
    long = LONGEST.index(name) if name in LONGEST else len(LONGEST)
    return long, list(LAYERS).index(layer_of(path)), name


def pytest_configure(config: pytest.Config) -> None:
    for name, what in LAYERS.items():
        config.addinivalue_line("markers", f"{name}: {what}; every test of its folder has it")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Rotate the files of a folder, so that each worker starts its imports at a different file; tests are sorted later.

    A fresh clone has no byte code, and workers that started with the same file would all compile every file.
    """
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and report.result and isinstance(collector, pytest.Dir):
        first = len(report.result) * int(worker[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(layer_of(item.path))
    items.sort(key=lambda item: place_in_order(item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if layer_of(item.path) == "fast":
        given = getattr(getattr(item, "callspec", None), "params", {})
        started = STARTED.intersection(getattr(item, "fixturenames", ())).difference(given)
        if started:
            pytest.fail(f"the fast layer has no {' and no '.join(sorted(started))}: put the test into tests/live")
