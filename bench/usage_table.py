"""The table of processor seconds of each measure, by kind of thread and process. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from processors import COLLECTOR, COMPILER, ENDED, JVM, KINDS, OTHER, PYTHON, TASKS, WORKERS, Usage

TITLE = "Processor seconds"
NOTE = (
    "Medians, which other programs hardly change. Threads that ended meanwhile are known only by their process's sum. "
    "Turnout is three kinds of process (Spark's JVM, the driver with store and server, Spark's Python workers), "
    "Deephaven one, with the JVM inside Python."
)
_SHOWN = {
    "JVM: compiler": (COMPILER,),
    "collector": (COLLECTOR,),
    "Spark tasks": (TASKS,),
    "other threads": (JVM,),
    "ended or other": (ENDED, OTHER),
    "Python": (PYTHON,),
    "Python workers": (WORKERS,),
}
_MEASURES = ("catch-up", "latency", "sustained", "idle")
COLUMNS = ("measure", "system", "in", "all", *_SHOWN)


def rows(measures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each measure and system with processor times."""
    return [
        _row(name, system, usages)
        for measure in _MEASURES
        for name, systems in sorted(measures.get(measure, {}).get("processors", {}).items())
        for system, usages in systems.items()
    ]


def _row(name: str, system: str, usages: list[Usage]) -> tuple[str, ...]:
    return (
        name,
        system,
        f"{statistics.median(usage['wall'] for usage in usages):.1f} s",
        _middle(usages, KINDS),
        *(_middle(usages, kinds) for kinds in _SHOWN.values()),
    )


def _middle(usages: list[Usage], kinds: tuple[str, ...]) -> str:
    """Format the median of these kinds; empty if it is zero, because not every system has all kinds."""
    seconds = statistics.median(sum(usage[kind] for kind in kinds) for usage in usages)
    return f"{seconds:.2f}" if seconds else ""
