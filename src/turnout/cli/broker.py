"""`broker`: the embedded Kafka alone."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout broker --port 9092 --data ./kafka-data"))
def broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for clients; 0 takes a free one.")] = 9092,
    data: Annotated[Path, typer.Option(help="The folder for topics; they are kept for the next start.")] = Path(
        "kafka-data"
    ),
) -> None:
    """Run the embedded Kafka alone, until Ctrl-C; prints its address when it is ready."""
    from turnout.local.broker import serve

    serve(port, data)
