"""Work on a thread beside a block of a test: load, or somebody who looks all the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` while the block runs; at its end the event is set, and work has to end soon."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
