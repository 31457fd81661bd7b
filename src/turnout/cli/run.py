"""`run`: the orchestrator and the web page."""

import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnout.cli import options
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout run -c turnout.yaml", "turnout run -c turnout.yaml --host 0.0.0.0 --insecure"))
def run(
    config: options.Config = "turnout.yaml",
    host: Annotated[str, typer.Option(help="Instead of server.host of the file.", show_default=False)] = "",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Instead of server.port of the file; 0 takes a free one.", show_default=False
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve addresses other than loopback without tokens.")
    ] = False,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(help="Instead of log.format of the file: text, or json, one object a line.", show_default=False),
    ] = None,
) -> None:
    """Run the orchestrator and the web page until Ctrl-C or SIGTERM.

    What the file says: docs/reference/configuration.md.
    """
    from turnout.config import load
    from turnout.config.settings import LogFormat
    from turnout.logs import log_to_stderr

    # As the environment gives settings: so they stay while other files are applied.
    given = {"TURNOUT_SERVER__HOST": host, "TURNOUT_SERVER__PORT": "" if port is None else str(port)}
    settings = load(Path(config), dict(os.environ) | {name: value for name, value in given.items() if value})
    keep_secrets(settings.secret_variables)
    # Late: it loads Spark, and the faults of a file are reported without that.
    from turnout import service
    from turnout.config.secrets import hidden_texts

    log_to_stderr(LogFormat(log_format or settings.log.format), hidden_texts(settings))
    service.run(settings, insecure=insecure, on_ready=lambda url: print(f"Turnout is at {url}", flush=True))


def keep_secrets(variables: Iterable[str]) -> None:
    """Remove secrets from the environment of processes that this one starts, and switch core files off."""
    for name in variables:
        os.environ.pop(name, None)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
