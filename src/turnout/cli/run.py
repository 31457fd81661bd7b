"""`run`: the orchestrator and the web page."""

import logging
import os
import resource
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnout.cli import options
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout run -c turnout.yaml", "turnout run -c turnout.yaml --host 0.0.0.0 --insecure"))
def run(
    config: options.Config = "turnout.yaml",
    host: Annotated[str, typer.Option(help="Overrides server.host of the file.", show_default=False)] = "",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Overrides server.port of the file; 0 takes a free one.", show_default=False
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve addresses other than loopback without tokens.")
    ] = False,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(help="Overrides log.format of the file: text, or json, one object a line.", show_default=False),
    ] = None,
) -> None:
    """Run the orchestrator and the web page until Ctrl-C or SIGTERM.

    The settings of the file: docs/reference/configuration.md.
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
    from turnout.config.secrets import hidden_texts, masked

    as_json = LogFormat(log_format or settings.log.format) is LogFormat.JSON
    log_to_stderr(partial(masked, values=hidden_texts(settings)), as_json=as_json)
    service.run(settings, insecure=insecure, on_ready=_tell_start)


def _tell_start(url: str) -> None:
    """Print the address, and then a line every few seconds until the tables are there."""
    print(f"Turnout is at {url}", flush=True)
    threading.Thread(target=_tell_until_ready, args=(url,), name="turnout-start", daemon=True).start()


def _tell_until_ready(url: str) -> None:
    import httpx

    from turnout.local.spinner import LINE_SECONDS

    log, started = logging.getLogger("turnout"), time.monotonic()
    with httpx.Client(timeout=LINE_SECONDS, verify=False, trust_env=False) as client:
        while True:
            time.sleep(LINE_SECONDS)
            try:
                answer = client.get(f"{url}/readyz")
            except httpx.HTTPError:
                return  # it has ended, or listens on an address that is not this machine's
            if answer.is_success:
                return
            reason = answer.json().get("error", {}).get("message", "")
            log.info("starting, %.0f s: %s", time.monotonic() - started, reason)


def keep_secrets(variables: Iterable[str]) -> None:
    """Remove secrets from the environment of processes that this one starts, and switch core files off."""
    for name in variables:
        os.environ.pop(name, None)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
