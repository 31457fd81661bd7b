"""`run`, `demo` and `broker`: processes on this machine; `prepare` makes their starts faster."""

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from turnout_client.cli import options, output
from turnout_client.cli.app import app, examples


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
    _end_process()


def _end_process() -> NoReturn:
    """End at once when all is closed: Python would list on stderr what daemon threads still hold of DuckDB."""
    sys.stdout.flush()
    os._exit(0)


def _tell_start(url: str) -> None:
    """Print the address, and then a line every few seconds until the tables are there."""
    print(f"Turnout is at {url}", flush=True)
    threading.Thread(target=tell_until_ready, args=(url,), name="turnout-start", daemon=True).start()


def tell_until_ready(url: str) -> None:
    """Log why the tables are not there yet, every few seconds, until they are."""
    import httpx

    from turnout.local.spinner import LINE_SECONDS

    log, started = logging.getLogger("turnout"), time.monotonic()
    with httpx.Client(timeout=LINE_SECONDS, verify=False, trust_env=False) as client:
        while True:
            time.sleep(LINE_SECONDS)
            try:
                # Without `access:` the server refuses 0.0.0.0 as a name of this machine.
                answer = client.get(f"{url}/readyz", headers={"Host": "localhost"})
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
    from turnout.logs import log_to_stderr

    # Else the first library that logs chooses the format.
    log_to_stderr(str, as_json=False, level=logging.WARNING)
    demonstration.run(port=port, records_per_second=rate, data=data)
    _end_process()


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


@app.command(epilog=examples("turnout prepare"))
def prepare() -> None:
    """Make starts faster, once for each version: fetch jars and archive their classes (half a minute).

    It takes 240 MB of the jar cache for each version of Java, Spark and Turnout. A JVM that maps its archive starts in
    about half the time. It is optional: without it, starts take some seconds more. `make setup` runs it.
    """
    from turnout.java.jars import resolve
    from turnout.local import broker
    from turnout.local.spinner import waiting
    from turnout.spark import training_run
    from turnout.spark.jvm.launch import find_home
    from turnout.spark.jvm.session import spark_archive

    kafka, spark = resolve("broker"), resolve("spark-kafka")
    runs = {
        spark_archive(find_home(), spark): training_run.train,
        # The demo looks whether this last one is there.
        broker.broker_archive(kafka): broker.train,
    }
    for archive, train in runs.items():
        with waiting(f"Archiving the classes of {archive.program}", output.console()):
            made = archive.make(train)
        size = archive.file.stat().st_size / 1e6
        print(
            f"Archived the classes of {archive.program} ({size:.0f} MB): it starts faster from now on"
            if made
            else f"The classes of {archive.program} are archived already"
        )
