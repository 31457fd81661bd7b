"""`demo`: everything at once, with sample data."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.app import app


@app.command(epilog="Example:  turnout demo --rate 100")
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The web page's port; a free one when taken.")] = 10000,
    rate: Annotated[float, typer.Option(min=0.1, max=100_000, help="Sample records a second.")] = 20,
    data: Annotated[
        Path | None, typer.Option(help="A folder that keeps the data.  [default: gone at the end]", show_default=False)
    ] = None,
) -> None:
    """Start everything at once: a Kafka broker, sample data, the orchestrator and the web page."""
    from turnout.local import demo as demonstration

    demonstration.run(port=port, records_per_second=rate, data=data)
