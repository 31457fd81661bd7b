"""What came of faults: on the terminal, and in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from faults.catalogue import FAULTS
from faults.stage import Played

HEAD = ("fault", "recovered in", "rows compared", "lost", "doubled")
MARKS = ("<!-- faults -->", "<!-- /faults -->")


def cells(played: Played) -> tuple[str, ...]:
    """One row of the table."""
    found = played.comparison
    if found is None:
        return (played.fault.what, "not", "-", "-", "-")
    seconds = f"{found.seconds:.1f} s" if found.equal else "not"
    return (played.fault.what, seconds, f"{found.rows:,}", f"{found.lost:,}", f"{found.doubled:,}")


def say(console: Console, played: Played) -> None:
    """One line as soon as it is known, and what went wrong."""
    words = "ok" if played.good else "FAILED"
    console.print(f"{words:6} {played.fault.name} ({played.seconds:.0f} s in all)", markup=False)
    details = played.comparison.details if played.comparison else ()
    for line in (*details, *filter(None, [played.trouble])):
        console.print(f"       {line}", markup=False)


def table(played: Sequence[Played]) -> Table:
    shown = Table()
    for number, name in enumerate(HEAD):
        shown.add_column(name, justify="right" if number else "left")
    for one in played:
        shown.add_row(*cells(one), style=None if one.good else "red")
    return shown


def write(file: Path, played: Sequence[Played]) -> None:
    """Put the rows between the marks; rows of faults that were not played now stay as they are."""
    before, rest = file.read_text(encoding="utf-8").split(MARKS[0])
    old, after = rest.split(MARKS[1])
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if line.startswith("| ")}
    rows |= {one.fault.what: _line(cells(one)) for one in played}
    lines = [_line(HEAD), "|---|---:|---:|---:|---:|", *(rows[f.what] for f in FAULTS if f.what in rows)]
    shown = "\n".join(lines)
    file.write_text(f"{before}{MARKS[0]}\n{shown}\n{MARKS[1]}{after}", encoding="utf-8")


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"
