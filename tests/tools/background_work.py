"""Background work on a thread during a block of a test, such as load or continuous reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` during a `with` block; at its end the event is set, and `work` must end soon."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
