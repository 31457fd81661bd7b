"""The progress of a request on standard error: a bar on a terminal, plain lines otherwise.

The first Ctrl-C asks whether to cancel the build. If the user exits without cancelling, a message says that the build
continues.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from turnout_client.cli import output
from turnout_client.cli.program import PROGRAM
from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client import Client

Json = dict[str, Any]
_POLL_SECONDS = 0.5
_LINE_SECONDS = 2.5
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def _in_background(send: Callable[[], Json]) -> Future[Json]:
    """Send a request on another thread, so that the main thread can show the progress and handle Ctrl-C."""
    answer: Future[Json] = Future()

    def run() -> None:
        try:
            answer.set_result(send())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="turnout-request", daemon=True).start()
    return answer


def follow(client: Client, what: str, send: Callable[[], Json], *, as_json: bool) -> Json:
    """Send a request, show the progress of its build until it ends, and return the answer.

    With `--json` the progress is shown only on a terminal, because programs read JSON errors from standard error.
    """
    request, started = _in_background(send), time.monotonic()
    asked = False
    while True:
        try:
            with _display(silent=as_json and not sys.stderr.isatty()) as show:
                while not wait([request], _POLL_SECONDS).done:
                    show(*_progress(client, what, time.monotonic() - started))
            return request.result()
        except KeyboardInterrupt:
            if asked or not _wants_cancel(what):
                print(f"the {what} continues; {PROGRAM.name} status shows it", file=sys.stderr)
                raise typer.Exit(INTERRUPTED) from None
            asked = True
            client.cancel(wait=False)


def _wants_cancel(what: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return typer.confirm(f"Cancel the {what}?", default=False, err=True)
    except (typer.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return False


def _progress(client: Client, what: str, seconds: float) -> tuple[str, float | None]:
    """Return a text for the state of the build, and its percentage; None if it is unknown."""
    try:
        build = client.status().get("progress")
    except TurnoutError:
        return f"{what}: waiting for the server, {seconds:.0f} s", None
    if not build:
        return f"{what}: waiting, {seconds:.0f} s", None
    words = [f"generation {build['generation']}: {str(build.get('step') or build['state']).replace('_', ' ')}"]
    words.append(f"{build['records']:,} records")
    percent = build.get("percent")
    if percent is not None:
        words.append(f"{percent:.0f} %")
    left = build.get("secondsLeft")
    words.append(f"{left:.0f} s left" if left is not None else f"{seconds:.0f} s so far")
    return output.printable(", ".join(words)), percent


@contextmanager
def _display(*, silent: bool) -> Iterator[Callable[[str, float | None], None]]:
    """Yield a function that shows a text and a percentage."""
    if silent:
        yield lambda text, percent: None
    elif sys.stderr.isatty():
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            console=Console(stderr=True, highlight=False),
            transient=True,
        )
        with bar:
            task = bar.add_task("", total=100)
            yield lambda text, percent: bar.update(task, description=text, completed=percent or 0)
    else:
        due = 0.0

        def print_line(text: str, percent: float | None) -> None:
            """Print a plain line, at most one every few seconds."""
            nonlocal due
            if time.monotonic() >= due:
                print(text, file=sys.stderr, flush=True)
                due = time.monotonic() + _LINE_SECONDS

        yield print_line
