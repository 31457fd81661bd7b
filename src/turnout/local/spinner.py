"""A sign of life while something takes its time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

LINE_SECONDS = 2.5


@contextmanager
def waiting(text: str, screen: Console) -> Iterator[None]:
    """Show a spinner on a terminal; anywhere else a line at once, and one every few seconds until the block ends."""
    if screen.is_terminal:
        with screen.status(f"{text} ..."):
            yield
        return
    done, started = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(LINE_SECONDS):
            screen.print(f"{text} ... {time.monotonic() - started:.0f} s")

    screen.print(f"{text} ...")
    thread = threading.Thread(target=tell, name="turnout-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
