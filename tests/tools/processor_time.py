"""The option `--cpu`: the processor time of files, tests and fixtures, with all processes that they start.

On a machine with two cores it determines the length of a run, while the duration of a test also contains waits. The
time of a shared process (the broker, Spark's JVM) counts for the test that its worker runs meanwhile.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.terminal import TerminalReporter

from layers import layer_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PROPERTY = "processor seconds"
_BEGAN = pytest.StashKey[float]()
_SHOWN = 60
_LEAST = 0.1


class _Process(NamedTuple):
    parent: int
    began: str
    seconds: float
    """The processor seconds of the process and its ended children."""


class Tree:
    """The processor seconds of this process and all its descendants, also of those whose parents have ended."""

    def __init__(self) -> None:
        self._looked = 0.0
        self._orphans: dict[int, _Process] = {}
        self._lost = 0.0
        self._known: dict[int, _Process] = {}

    def seconds(self) -> float:
        began = time.process_time()
        ended, descendants = _of_ended(), self._of_descendants()
        while (now := _of_ended()) != ended:  # another thread has reaped a child, which may be in neither sum
            ended, descendants = now, self._of_descendants()
        total = began - self._looked + ended + descendants
        self._looked += time.process_time() - began
        return total

    def knows(self, pid: int) -> bool:
        """Whether a process runs now and is counted."""
        self.seconds()
        return pid in self._known

    def _of_descendants(self) -> float:
        running = {int(path.name): found for path in Path("/proc").glob("[0-9]*") if (found := _process(path))}
        children = defaultdict(list)
        for pid, process in running.items():
            children[process.parent].append(pid)
        for pid, process in self._known.items():
            now = running.get(pid)
            if now is not None and now.began == process.began and now.parent != process.parent:
                self._orphans[pid] = now
        for pid, orphan in list(self._orphans.items()):
            now = running.get(pid)
            if now is None or now.began != orphan.began:
                self._lost += self._orphans.pop(pid).seconds
            else:
                self._orphans[pid] = now
        self._known = {}
        waiting = [*children[os.getpid()], *self._orphans]
        while waiting:
            pid = waiting.pop()
            if pid not in self._known:
                self._known[pid] = running[pid]
                waiting += children[pid]
        return self._lost + sum(process.seconds for process in self._known.values())


def _of_ended() -> float:
    """Return the processor seconds of ended children and their descendants."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _process(folder: Path) -> _Process | None:
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has just ended
        return None
    return _Process(int(fields[1]), fields[19], sum(map(int, fields[11:15])) / _TICKS)


class Measuring:
    """A plugin for processes that run tests; it adds the processor time of each test to its report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tree = Tree()
        self._inner = [0.0]
        self.fixtures: defaultdict[str, float] = defaultdict(float)
        self.collected = 0.0

    def pytest_collection_finish(self) -> None:
        self.collected = self._tree.seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_BEGAN] = self._tree.seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, self._tree.seconds() - item.stash[_BEGAN]))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with self._fixture(f"{fixturedef.baseid or 'conftest.py'}::{fixturedef.argname}"):
            return (yield)

    @contextmanager
    def _fixture(self, name: str) -> Iterator[None]:
        began = self._tree.seconds()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = self._tree.seconds() - began
            self.fixtures[name] += took - self._inner.pop()
            self._inner[-1] += took

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["processor"] = {
                "fixtures": dict(self.fixtures),
                "collected": self.collected,
                "all": self._tree.seconds(),
            }


class Table:
    """A plugin for the reporting process; it adds up the times of the workers, or of this process."""

    def __init__(self, config: pytest.Config, reporter: TerminalReporter, own: Measuring | None) -> None:
        self._config, self._reporter, self._own = config, reporter, own
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._fixtures: defaultdict[str, float] = defaultdict(float)
        self._collected = self._all = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += sum(
            float(str(value)) for name, value in report.user_properties if name == _PROPERTY
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._add(**getattr(node, "workeroutput", {}).get("processor", {"fixtures": {}, "collected": 0.0, "all": 0.0}))

    def _add(self, fixtures: dict[str, float], collected: float, **rest: float) -> None:
        self._collected += collected
        self._all += rest["all"]
        for name, seconds in fixtures.items():
            self._fixtures[name] += seconds

    def pytest_terminal_summary(self) -> None:
        if self._own is not None:
            self._add(dict(self._own.fixtures), self._own.collected, all=self._own._tree.seconds())
        files: defaultdict[str, float] = defaultdict(float)
        layers: defaultdict[str, float] = defaultdict(float)
        for nodeid, seconds in self._tests.items():
            file = nodeid.partition("::")[0]
            files[file] += seconds
            layers[layer_of(self._config.rootpath / file)] += seconds
        rest = {"imports and collection": self._collected, "all": self._all}
        self._show("layers", {**layers, **rest})
        self._show("files", files)
        self._show("fixtures of more than one test, also counted in their files", self._fixtures)
        self._show("tests", self._tests)

    def _show(self, title: str, seconds: dict[str, float]) -> None:
        self._reporter.section(f"processor seconds: {title}")
        for name, one in sorted(seconds.items(), key=lambda pair: -pair[1])[:_SHOWN]:
            if one >= _LEAST:
                self._reporter.line(f"{one:8.1f}  {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="show which files, tests and fixtures take processor time")


@pytest.hookimpl(trylast=True)  # after the reporter is there
def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--cpu"):
        return
    runs = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    own = Measuring(config) if runs else None
    if own is not None:
        config.pluginmanager.register(own, "processor-measuring")
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, TerminalReporter) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(config, reporter, own), "processor-table")
