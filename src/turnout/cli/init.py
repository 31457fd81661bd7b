"""Before a run: `init` writes a file, also by the records of topics, `check` tries it, and `topic` makes topics."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from turnout.errors import TurnoutError
from turnout_client.cli import options, output
from turnout_client.cli.app import Commands, Printed, app, examples, show

if TYPE_CHECKING:
    from turnout.config import KafkaSettings

DEFAULT_RECORDS, MOST_RECORDS = 500, 10_000
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@app.command(
    epilog=examples(
        "turnout init --from users,accounts && turnout check -c turnout.yaml",
        "turnout init --from users,accounts -c kafka.yaml --records 2000",
        "turnout init /etc/turnout --force",
    )
)
def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or a folder for it.")] = Path("turnout.yaml"),
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Topics, separated by commas; columns and types come from their newest records."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="With --from: a file to copy settings from, such as kafka:."),
    ] = None,
    records: Annotated[
        int, typer.Option(min=1, max=MOST_RECORDS, help="With --from: how many records of each topic to read.")
    ] = DEFAULT_RECORDS,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: options.Json = False,
) -> None:
    """Write a commented turnout.yaml to start from; with --from, generated from the records of existing topics.

    Sources, columns, types, keys and views come with the evidence for each; see docs/how-to/by-example.md.
    """
    file = path / "turnout.yaml" if path.is_dir() else path
    written: dict[str, Any] = {"path": str(file)}
    if from_ is None:
        if config is not None:
            raise typer.BadParameter("works only with --from, which names topics", param_hint="--config")
        from turnout.config import default_text

        text = default_text()
    else:
        if not from_.replace(",", "").strip():
            raise typer.BadParameter("names no topic; give some, such as users,accounts", param_hint="--from")
        if not force and file.exists():  # before topics are read for nothing
            raise _exists(file)
        from turnout.example.by_example import file_by_example

        text, made = file_by_example(from_.split(","), config, file.parent, records, show=_progress)
        written |= made
    _write(file, text, force=force)
    if json:
        output.print_json(written)
        return
    for note in written.get("notes", ()):
        print(f"note: {output.printable(note)}")
    print(f"Wrote {file}. Next: edit it, then turnout check -c {file}, then turnout run -c {file}")


def _progress(text: str) -> None:
    """On standard error, so that standard output has the result alone."""
    print(output.printable(text), file=sys.stderr, flush=True)


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise TurnoutError(
            code="file_unwritable", message=f"{file} cannot be written: {error.strerror}", hint="give another path"
        ) from None


def _exists(file: Path) -> TurnoutError:
    return TurnoutError(
        code="file_exists", message=f"{file} already exists", hint="give another path, or --force to replace it"
    )


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
    not have, a token endpoint that is down or refuses, a missing right on a topic.

    With `--json`: `{"ok", "findings": [{"subject", "level", "text", "hint"}]}`; a level is `ok`, `warning` or `fault`.
    """
    from turnout.preflight.findings import check_all

    findings = check_all(Path(config))
    levels = Counter[str](finding.level for finding in findings)
    table = Table("", "what", "found", "what to do", header_style="bold")
    for finding in findings:
        texts = (finding.subject, finding.text, finding.hint)
        table.add_row(output.cell(*_MARKS[finding.level]), *map(output.cell, texts))
    document = {"ok": not levels["fault"], "findings": [asdict(finding) for finding in findings]}
    show(Printed(document, [table, _end(levels, config)], failed=levels["fault"] > 0), json)


def _end(levels: Mapping[str, int], config: str) -> Text:
    counts = [(levels[level], level) for level in ("fault", "warning")]
    told = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for count, level in counts if count)
    if levels["fault"]:
        return output.cell(told, "bold red")
    if told:
        return output.cell(f"{told}, no fault. Turnout can run: turnout run -c {config}", "bold yellow")
    return output.cell(f"No faults. Next: turnout run -c {config}", "bold green")


_app = typer.Typer(cls=Commands, no_args_is_help=True, help="Create and list topics of Kafka.")
app.add_typer(_app, name="topic", epilog=examples("turnout topic create users accounts control"))

TopicConfig = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A configuration file, whose kafka: is used.", show_default=False),
]
Bootstrap = Annotated[
    str,
    typer.Option(
        help="Kafka's address, host:port.  [default: the address in the file, else localhost:9092]", show_default=False
    ),
]


@_app.command(
    epilog=examples(
        "turnout topic create users accounts control",
        "turnout topic create final-joined --partitions 6 --compact -c turnout.yaml",
    )
)
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics to create.", show_default=False)],
    partitions: Annotated[int, typer.Option(min=1, help="The partitions of each.")] = 1,
    compact: Annotated[
        bool, typer.Option("--compact", help="Keep the newest record of each key, as topics of sinks should.")
    ] = False,
    config: TopicConfig = None,
    bootstrap: Bootstrap = "",
    json: options.Json = False,
) -> None:
    """Create topics; Kafka decides how many replicas they have."""
    from turnout.kafka.topic_creation import create_topic

    kafka = _kafka(config, bootstrap)
    for name in names:
        create_topic(kafka, name, partitions, compact=compact)
        if json:
            output.print_json({"topic": name, "partitions": partitions, "compact": compact})
        else:
            print(f"Created {name}: {partitions} partition{'s' if partitions > 1 else ''}")


@_app.command("list", epilog=examples("turnout topic list", "turnout topic list --bootstrap kafka:9092 --json"))
def list_(config: TopicConfig = None, bootstrap: Bootstrap = "", json: options.Json = False) -> None:
    """List the topics of Kafka, without its internal ones."""
    from turnout.kafka.topics import Topics

    with closing(Topics(_kafka(config, bootstrap))) as client:
        names = sorted(name for name in client.names() if not name.startswith("__"))
        counts = dict.fromkeys(names, 0)
        for name, _ in client.partitions(names):
            counts[name] += 1
    table = Table("topic", "partitions", header_style="bold")
    for name, count in counts.items():
        table.add_row(output.cell(name), str(count))
    document = {"topics": [{"topic": name, "partitions": count} for name, count in counts.items()]}
    show(Printed(document, [table if names else "No topics. Create one: turnout topic create NAME"]), json)


def _kafka(config: Path | None, bootstrap: str) -> KafkaSettings:
    from turnout.config import load, parse

    settings = load(config) if config is not None else parse({}, Path.cwd(), os.environ)
    return settings.kafka.model_copy(update={"bootstrap_servers": bootstrap}) if bootstrap else settings.kafka
