"""`demo`, `run`, `init` and `broker`: the commands that start something, or prepare it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnout.cli.app import ConfigOption, JsonOption, app, console, print_json
from turnout.errors import TurnoutError


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


def keep_secrets(variables: Iterable[str]) -> None:
    """Nothing that this process starts inherits a secret, and no core file of it will hold one."""
    for name in variables:
        os.environ.pop(name, None)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


@app.command(epilog="Example:  turnout run -c turnout.yaml")
def run(
    config: ConfigOption = "turnout.yaml",
    host: Annotated[str, typer.Option(help="Instead of server.host.", show_default=False)] = "",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Instead of server.port; 0 takes a free one.", show_default=False),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Serve other machines without tokens.")] = False,
    log_format: Annotated[
        Literal["text", "json"] | None, typer.Option(help="Instead of log.format.", show_default=False)
    ] = None,
) -> None:
    """Run the orchestrator and the web page until Ctrl-C."""
    from turnout.config import load
    from turnout.config.settings import LogFormat
    from turnout.logs import log_to_stderr

    settings = load(Path(config))
    keep_secrets(settings.secret_variables)
    given = {"host": host or settings.server.host, "port": settings.server.port if port is None else port}
    server = settings.server.model_copy(update=given)
    settings = settings.model_copy(update={"server": server})
    # Late: it loads Spark, and a fault of the file is told without that.
    from turnout import service
    from turnout.kafka.hidden_texts import hidden_texts

    log_to_stderr(LogFormat(log_format or settings.log.format), hidden_texts(settings))
    service.run(settings, insecure=insecure, on_ready=lambda url: print(f"Turnout is at {url}", flush=True))


@app.command(epilog="Example:  turnout init && turnout check -c turnout.yaml")
def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or a folder for it.")] = Path("turnout.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a commented turnout.yaml to start from."""
    from turnout.config import default_text

    file = path / "turnout.yaml" if path.is_dir() else path
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(default_text())
    except FileExistsError:
        raise TurnoutError(
            code="file_exists", message=f"{file} is there already", hint="give another path, or --force to replace it"
        ) from None
    except OSError as error:
        raise TurnoutError(
            code="file_unwritable", message=f"{file} cannot be written: {error.strerror}", hint="give another path"
        ) from None
    if json:
        print_json({"path": str(file)})
    else:
        print(f"Wrote {file}. Next: edit it, then turnout check -c {file}, then turnout run -c {file}")


@app.command(epilog="Example:  turnout prepare")
def prepare() -> None:
    """Make starts faster, once for each version: fetch Spark's jars and archive its classes (half a minute)."""
    from turnout.java.jars import resolve
    from turnout.spark import class_archive

    jars = resolve("spark-kafka")
    if class_archive.archive_file(jars).exists():
        print("Spark's classes are archived already")
        return
    with console().status("Archiving Spark's classes ..."):
        file = class_archive.make(jars)
    print(f"Archived Spark's classes ({file.stat().st_size / 1e6:.0f} MB): starts take some seconds less from now on")


@app.command(epilog="Example:  turnout broker --port 9092 --data ./kafka-data")
def broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for clients; 0 takes a free one.")] = 9092,
    data: Annotated[Path, typer.Option(help="The folder for topics; they are there again the next time.")] = Path(
        "kafka-data"
    ),
) -> None:
    """Run the embedded Kafka alone, until Ctrl-C; prints its address when it is ready."""
    from turnout.local.broker import serve

    serve(port, data, announce=lambda line: print(line, flush=True))
