"""What came of a soak: whether the figures stayed flat, on the terminal and in the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from soak.sampling import Sample

MARKS = ("<!-- soak -->", "<!-- /soak -->")
HEAD = ("measure", "at first", "at last", "ratio", "flat up to")


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of the samples, and by how much its median may grow from first to last."""

    name: str
    unit: str
    allowed: float
    of: Callable[[Sample], float | None]


MEASURES = (
    Measure("memory of the process tree", "MB", 1.15, lambda sample: sample.memory_mb),
    Measure("memory of Turnout's own process", "MB", 1.15, lambda sample: sample.own_mb),
    Measure("threads", "", 1.10, lambda sample: sample.threads),
    Measure("open files", "", 1.15, lambda sample: sample.files),
    Measure("data folder on disk, without logs", "MB", 1.30, lambda sample: sample.disk_mb),
    Measure("latency, record written to row at a viewer", "ms", 1.30, lambda sample: sample.latency_ms),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure, as medians of the first and of the last part after the warm-up."""

    measure: Measure
    first: float
    last: float

    @property
    def ratio(self) -> float:
        return self.last / self.first if self.first else 1.0

    @property
    def flat(self) -> bool:
        return self.ratio <= self.measure.allowed

    @property
    def cells(self) -> tuple[str, ...]:
        unit = f" {self.measure.unit}" if self.measure.unit else ""
        values = [f"{value:,.0f}{unit}" for value in (self.first, self.last)]
        return (self.measure.name, *values, f"{self.ratio:.2f}", f"{self.measure.allowed:.2f}")


def figures(samples: Sequence[Sample], warm_up_seconds: float, round_seconds: float = 0.0) -> list[Figure]:
    """The figures; those without samples in the first or the last part are left out.

    A part is about a third, in whole rounds of the faults where it is longer than one: a process that is killed in
    each round grows until the next, and parts that see it at other ages would tell of that alone.
    """
    warm = [sample for sample in samples if sample.seconds >= warm_up_seconds]
    if not warm:
        return []
    begin, end = warm[0].seconds, warm[-1].seconds
    part = (end - begin) / 3
    if 0 < round_seconds <= part:
        part = round(part / round_seconds) * round_seconds
    found = []
    for measure in MEASURES:
        values = [(sample.seconds, value) for sample in warm if (value := measure.of(sample)) is not None]
        first = [value for seconds, value in values if seconds <= begin + part]
        last = [value for seconds, value in values if seconds >= end - part]
        if first and last:
            found.append(Figure(measure, statistics.median(first), statistics.median(last)))
    return found


def show(console: Console, found: Sequence[Figure], lines: Sequence[str]) -> None:
    table = Table()
    for number, name in enumerate(HEAD):
        table.add_column(name, justify="right" if number else "left")
    for figure in found:
        table.add_row(*figure.cells, style=None if figure.flat else "red")
    console.print(table)
    for line in lines:
        console.print(line, markup=False)


def write(file: Path, found: Sequence[Figure], lines: Sequence[str]) -> None:
    """Put the table and the lines between the marks."""
    before, rest = file.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    rows = [HEAD, *(figure.cells for figure in found)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    table.insert(1, "|---|---:|---:|---:|---:|")
    shown = "\n".join([*table, "", *(f"- {line}" for line in lines)])
    file.write_text(f"{before}{MARKS[0]}\n{shown}\n{MARKS[1]}{after}", encoding="utf-8")
