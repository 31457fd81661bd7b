"""`check`: everything that must be right before `run`, looked at, with a remedy for each fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.app import ConfigOption, JsonOption, app, cell, console, print_json

if TYPE_CHECKING:
    from turnout.cli.diagnosis import Finding

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@app.command(epilog="Example:  turnout check -c turnout.yaml")
def check(config: ConfigOption = "turnout.yaml", json: JsonOption = False) -> None:
    """Validate the file, reach Kafka, look at topics, records, Java and folders; say what is wrong.

    Exit code 1 when something would stop `turnout run` from working.
    """
    from turnout.cli.diagnosis import diagnose

    findings = diagnose(Path(config))
    failed = any(finding.level == "fault" for finding in findings)
    if json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings, config, failed)
    if failed:
        raise typer.Exit(1)


def _print(findings: Sequence[Finding], config: str, failed: bool) -> None:
    from rich.table import Table

    screen = console()
    shown = Table("", "what", "found", "what to do", header_style="bold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        shown.add_row(cell(mark, style), cell(finding.subject), cell(finding.text), cell(finding.hint))
    screen.print(shown)
    faults = sum(finding.level == "fault" for finding in findings)
    closing = f"{faults} fault{'s' if faults > 1 else ''}" if failed else f"All well. Next: turnout run -c {config}"
    screen.print(cell(closing, "bold red" if failed else "bold green"))
