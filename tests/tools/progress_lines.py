"""The output of a test run: progress lines for each layer, failures at once, and the slowest tests at the end."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from layers import LAYERS, layer_of

EVERY_SECONDS = 15.0
SLOWEST = 10


@pytest.hookimpl(trylast=True)  # after the reporter is there
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # A worker sends its results to the process that started it, and prints nothing.
    if isinstance(reporter, TerminalReporter) and not hasattr(config, "workerinput") and reporter.verbosity == 0:
        reporter._show_progress_info = False
        reporter.showfspath = False
        config.pluginmanager.register(Progress(config, reporter), "progress-lines")


class Progress:
    """A plugin for the reporting process that counts the tests of each layer."""

    def __init__(self, config: pytest.Config, reporter: TerminalReporter) -> None:
        self._root = config.rootpath
        self._reporter = reporter
        self._began = self._told = time.monotonic()
        self._ended: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._failed = 0
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._found.update(layer_of(item.path) for item in session.items)

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._found:  # all workers collect the same
            self._found.update(map(self._layer, ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Suppress the dots, but keep the counts of the last line."""
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            return "passed", "", ""
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed += 1
            self._line(f"FAILED {report.nodeid} ({report.when})")
        if report.when == "teardown":
            layer = self._layer(report.nodeid)
            self._ended[layer] += 1
            over = self._ended[layer] == self._found[layer]
            if over or time.monotonic() - self._told > EVERY_SECONDS:
                self._tell(report.nodeid.partition("::")[0])

    def pytest_terminal_summary(self) -> None:
        self._reporter.section(f"slowest {SLOWEST} of {len(self._seconds):,} tests")
        for nodeid, seconds in sorted(self._seconds.items(), key=lambda one: -one[1])[:SLOWEST]:
            self._reporter.line(f"{seconds:7.1f} s  {nodeid}")

    def _layer(self, nodeid: str) -> str:
        return layer_of(self._root / Path(nodeid.partition("::")[0]))

    def _tell(self, file: str) -> None:
        self._told = time.monotonic()
        parts = [f"{name} {self._ended[name]:,}/{self._found[name]:,}" for name in LAYERS if self._found[name]]
        failed = f", {self._failed} failed" if self._failed else ""
        self._line(f"{'   '.join(parts)}{failed}   ({Path(file).name})")

    def _line(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        self._reporter.ensure_newline()
        self._reporter.line(f"{minutes:3}:{seconds:02}  {text}")
