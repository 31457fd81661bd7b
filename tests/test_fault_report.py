"""The table of faults in the documentation."""

from __future__ import annotations

from pathlib import Path

from faults import report
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
