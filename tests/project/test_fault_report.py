"""The table of faults in the documentation."""

from __future__ import annotations

from pathlib import Path

from faults import report
from faults.attacks.attackers import ATTACKS
from faults.attacks.play import Attacked, what
from faults.attacks.viewers import Seen
from faults.catalogue import FAULTS
from faults.stage import Played
from faults.world import Comparison


def test_report_keeps_the_rows_of_faults_that_were_not_played(tmp_path: Path) -> None:
    file = tmp_path / "guarantees.md"
    file.write_text("# Title\n\n<!-- faults -->\n<!-- /faults -->\nmore\n")
    first, second = FAULTS[:2]
    report.write(file, [Played(second, 9.0, Comparison(1200, 0, 0, (), 2.25))])
    report.write(file, [Played(first, 9.0, trouble="no")])
    assert file.read_text() == (
        "# Title\n\n<!-- faults -->\n"
        "| fault | recovered in | rows compared | lost | doubled |\n|---|---:|---:|---:|---:|\n"
        f"| {first.what} | not | - | - | - |\n| {second.what} | 2.2 s | 1,200 | 0 | 0 |\n"
        "<!-- /faults -->\nmore\n"
    )


def test_attacks_are_told_at_both_priorities_with_their_memory(tmp_path: Path) -> None:
    file = tmp_path / "guarantees.md"
    name = next(iter(ATTACKS))
    file.write_text(f"<!-- attacks -->\n| attack | gap |\n| {what(name)} | 1 ms |\n<!-- /attacks -->\n")
    without, low = Seen([0.2], 0.1, 500_000_000), Seen([0.3], 0.3, 700_000_000)
    good, bad = (Attacked(name, without, low, Seen([0.6], 0.2, size)) for size in (800_000_000, 1_600_000_000))
    assert (good.good, bad.good) == (True, False)
    report.write_attacks(file, [good])
    row = f"| {what(name)} | 200 ms | 300 ms | 1.50 | 600 ms | 3.00 | 0.30 s | +300 MB |"
    assert file.read_text().splitlines()[1:4] == [report._line(report.ATTACK_HEAD), "|---|" + "---:|" * 7, row]
