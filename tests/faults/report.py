"""What came of faults: on the terminal, and in the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from faults.attacks.attackers import ATTACKS
from faults.attacks.play import Attacked, what
from faults.catalogue import FAULTS
from faults.stage import Played

HEAD = ("fault", "recovered in", "rows compared", "lost", "doubled")
MARKS = ("<!-- faults -->", "<!-- /faults -->")
ATTACK_HEAD = (
    "attack",
    "gap without",
    "low priority",
    "ratio",
    "ordinary priority",
    "ratio",
    "slowest probe",
    "memory",
)
ATTACK_MARKS = ("<!-- attacks -->", "<!-- /attacks -->")


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
    rows = {one.fault.what: cells(one) for one in played}
    _put(file, MARKS, HEAD, rows, [fault.what for fault in FAULTS])


def attack_cells(attacked: Attacked) -> tuple[str, ...]:
    during = [
        text
        for seen in (attacked.low, attacked.ordinary)
        for text in (f"{seen.median * 1000:.0f} ms", f"{attacked.ratio(seen):.2f}")
    ]
    grown = f"+{attacked.grown_bytes // 1_000_000} MB"
    return (
        what(attacked.name),
        f"{attacked.without.median * 1000:.0f} ms",
        *during,
        f"{attacked.slowest_probe:.2f} s",
        grown,
    )


def attack_table(played: Sequence[Attacked]) -> Table:
    shown = Table()
    for number, name in enumerate(ATTACK_HEAD):
        shown.add_column(name, justify="right" if number else "left")
    for one in played:
        shown.add_row(*attack_cells(one), style=None if one.good else "red")
    return shown


def write_attacks(file: Path, played: Sequence[Attacked]) -> None:
    rows = {what(one.name): attack_cells(one) for one in played}
    _put(file, ATTACK_MARKS, ATTACK_HEAD, rows, [what(name) for name in ATTACKS])


def _put(
    file: Path,
    marks: tuple[str, str],
    head: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    order: Sequence[str],
) -> None:
    before, rest = file.read_text(encoding="utf-8").split(marks[0])
    old, after = rest.split(marks[1])
    # Rows of another head would stand below the wrong names.
    old = old if _line(head) in old else ""
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if line.startswith("| ")}
    lines |= {name: _line(row) for name, row in rows.items()}
    ruler = f"|---|{'---:|' * (len(head) - 1)}"
    shown = "\n".join([_line(head), ruler, *(lines[name] for name in order if name in lines)])
    file.write_text(f"{before}{marks[0]}\n{shown}\n{marks[1]}{after}", encoding="utf-8")


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"
