"""`check`: look at everything that `run` needs, and say for each fault what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app
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
def check(config: options.Config = "turnout.yaml", json: options.Json = False) -> None:
    """Validate the file, reach Kafka, look at topics, records, Java and folders; say what is wrong.

    Exit code 1 when something would stop `turnout run` from working.
    """
    from turnout.cli.checks import check_all

    findings = check_all(Path(config))
    faults = sum(finding.level == "fault" for finding in findings)
    if json:
        output.print_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    else:
        shown = Table("", "what", "found", "what to do", header_style="bold")
        for finding in findings:
            texts = (finding.subject, finding.text, finding.hint)
            shown.add_row(output.cell(*_MARKS[finding.level]), *map(output.cell, texts))
        output.console().print(shown)
        end = f"{faults} fault{'s' if faults > 1 else ''}" if faults else f"All well. Next: turnout run -c {config}"
        output.console().print(output.cell(end, "bold red" if faults else "bold green"))
    if faults:
        raise typer.Exit(1)
