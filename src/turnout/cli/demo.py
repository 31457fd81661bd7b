"""`demo`: everything at once, with sample data."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout demo", "turnout demo --rate 200 --data ./demo-data"))
def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The web page's port; a free one if it is taken.")
    ] = 10000,
    rate: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=100_000,
            help="Sample records a second for users and accounts together; users2 and accounts2 get as many.",
        ),
    ] = 20,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder that keeps the topics and tables for the next start.  [default: nothing is kept]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start everything at once: a Kafka broker, sample data, the orchestrator and the web page.

    Needs nothing but Java; the first run fetches the broker. Ctrl-C ends all of it. The topics are `users`, `accounts`,
    `users2`, `accounts2` and `control`. The sample data has a malformed record now and then: look at `bad_records`.
    """
    from turnout.local import demo as demonstration

    demonstration.run(port=port, records_per_second=rate, data=data)
