"""Ending several things at once, in a time that they share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from turnout.errors import first_line

log = logging.getLogger("turnout")


def begin(ends: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    return threads


def join(threads: Sequence[threading.Thread], deadline: float) -> None:
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _quietly(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception as error:
        log.warning("at the end: %s", first_line(error))
