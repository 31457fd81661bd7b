"""`topic create` and `topic list`: the topics of the Kafka that a file names."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import Commands, app, examples

if TYPE_CHECKING:
    from turnout.config import KafkaSettings

_app = typer.Typer(cls=Commands, no_args_is_help=True, help="Create and list topics of Kafka.")
app.add_typer(_app, name="topic", epilog=examples("turnout topic create users accounts control"))

Config = Annotated[
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
    config: Config = None,
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
def list_(config: Config = None, bootstrap: Bootstrap = "", json: options.Json = False) -> None:
    """List the topics of Kafka, without its internal ones."""
    from turnout.kafka.topics import Topics

    with closing(Topics(_kafka(config, bootstrap))) as client:
        names = sorted(name for name in client.names() if not name.startswith("__"))
        counts = dict.fromkeys(names, 0)
        for name, _ in client.partitions(names):
            counts[name] += 1
    if json:
        output.print_json({"topics": [{"topic": name, "partitions": count} for name, count in counts.items()]})
        return
    table = Table("topic", "partitions", header_style="bold")
    for name, count in counts.items():
        table.add_row(output.cell(name), str(count))
    output.console().print(table if names else "No topics. Create one: turnout topic create NAME")


def _kafka(config: Path | None, bootstrap: str) -> KafkaSettings:
    from turnout.config import load, parse

    settings = load(config) if config is not None else parse({}, Path.cwd(), os.environ)
    return settings.kafka.model_copy(update={"bootstrap_servers": bootstrap}) if bootstrap else settings.kafka
