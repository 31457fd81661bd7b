"""`check`: check everything that `run` needs, and say for each fault what to do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from turnout.cli import options, output
from turnout.cli.app import app, examples

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@app.command(epilog=examples("turnout check -c turnout.yaml", "turnout check --json"))
def check(config: options.Config = "turnout.yaml", json: options.Json = False) -> None:
    """Check the file, Kafka, topics, records, Java and folders; say what is wrong and what to do.

    Lists all faults of the file with their lines, then checks Java, the data folder, the port, Spark, the schema
    registry, the identity provider, Kafka (for data and for control), and every topic: does it exist, how many
    partitions and records does it have, do its newest records fit the declared columns. It changes nothing. Exit code 1
    when something would keep `turnout run` from working.

    For each cluster it shows the properties of both Kafka clients with secrets masked, tries each step of a connection
    (name, port, TLS, token endpoint), and connects with librdkafka and, for the data, with the Java client that Spark
    uses. A failure is reported with its cause: a name that is not known, a certificate that is not trusted, has expired
    or is for another name, a client certificate or a password that the broker refused, a SASL mechanism that it does
    not have, a token endpoint that is down or refuses, a missing right on a topic or a group.

    With `--json`: `{"ok", "findings": [{"subject", "level", "text", "hint"}]}`; a level is `ok`, `warning` or `fault`.
    """
    from turnout.preflight.findings import check_all

    findings = check_all(Path(config))
    faults = sum(finding.level == "fault" for finding in findings)
    if json:
        output.print_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    else:
        table = Table("", "what", "found", "what to do", header_style="bold")
        for finding in findings:
            texts = (finding.subject, finding.text, finding.hint)
            table.add_row(output.cell(*_MARKS[finding.level]), *map(output.cell, texts))
        output.console().print(table)
        warnings = sum(finding.level == "warning" for finding in findings)
        output.console().print(_end(faults, warnings, config))
    if faults:
        raise typer.Exit(1)


def _end(faults: int, warnings: int, config: str) -> Text:
    warned = f"{warnings} warning{'s' if warnings > 1 else ''}" if warnings else ""
    if faults:
        told = f"{faults} fault{'s' if faults > 1 else ''}"
        return output.cell(", ".join(filter(None, (told, warned))), "bold red")
    if warned:
        return output.cell(f"{warned}, no fault. Turnout can run: turnout run -c {config}", "bold yellow")
    return output.cell(f"All well. Next: turnout run -c {config}", "bold green")
