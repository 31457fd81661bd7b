"""`check`: look at everything that must be right before `run`, and say for each fault what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from turnout.cli.app import ConfigOption, JsonOption, app, cell, console, print_json
from turnout.errors import TurnoutError

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; a warning does not stop `run`."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    text: str
    hint: str = ""

    @classmethod
    def of_error(cls, subject: str, error: TurnoutError) -> Finding:
        return cls(subject, "fault", error.message, error.hint)


@app.command(epilog="Example:  turnout check -c turnout.yaml")
def check(config: ConfigOption = "turnout.yaml", json: JsonOption = False) -> None:
    """Validate the file, reach Kafka, look at topics, records, Java and folders; say what is wrong.

    Exit code 1 when something would stop `turnout run` from working.
    """
    from turnout.cli.checks import check_all

    findings = check_all(Path(config))
    faults = sum(finding.level == "fault" for finding in findings)
    if json:
        print_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
        end = f"{faults} fault{'s' if faults > 1 else ''}" if faults else f"All well. Next: turnout run -c {config}"
        console().print(cell(end, "bold red" if faults else "bold green"))
    if faults:
        raise typer.Exit(1)


def _print(findings: Sequence[Finding]) -> None:
    shown = Table("", "what", "found", "what to do", header_style="bold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        shown.add_row(cell(mark, style), cell(finding.subject), cell(finding.text), cell(finding.hint))
    console().print(shown)
