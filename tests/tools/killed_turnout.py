"""Run Turnout, which kills itself at the point named in a file: `python killed_turnout.py FLAG run -c FILE`.

The points are steps of a swap, which may be too short for a kill from outside. While the file FLAG.hold exists, Turnout
waits at every point. Builds read all records in bulk, which uses additional files.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turnout.spark.read.arrivals
from turnout.cli import main
from turnout.store.generation_tables import GenerationTables
from turnout.store.kept_sources import KeptTopics
from turnout.store.ledger import Ledger
from turnout.swap.builder import Builder
from turnout.swap.generations import Generation, Generations
from turnout.swap.lifecycle import Lifecycle

POINTS: dict[str, tuple[type, str, bool]] = {
    "validating": (Builder, "validate", False),
    # Inside the transaction that copies the rows of kept sources, before its commit.
    "copying": (KeptTopics, "copy", True),
    "building": (Generations, "create", True),
    "catching_up": (Builder, "catch_up", False),
    "views": (Generation, "building_views", True),
    # Inside the transaction that publishes, before its commit.
    "publishing": (GenerationTables, "publish", True),
    # After the commit, before anything else.
    "live": (Lifecycle, "replace", False),
    "lingering": (Lifecycle, "replace", True),
    "retiring": (Generations, "clear", False),
    "retired": (Generations, "clear", True),
}
"""The class and method of each point, and whether the kill comes after the method."""

OF_CANDIDATES: dict[str, tuple[type, str, bool]] = {
    # Inside the transaction that creates, publishes or discards a candidate, before its commit.
    "candidate_written": (Ledger, "set_candidate", True),
    # After the commit, before anything else.
    "candidate_kept": (Lifecycle, "let_candidate_go", False),
}
"""The points of messages about candidates."""

APART = ("publishing", "live")
"""The points with the most different remains: an unpublished generation, and a published one whose message has no
outcome. The other points leave less than these, or the same as an ordinary stop."""


def hold_of(flag: Path) -> Path:
    return flag.with_suffix(".hold")


def arm(flag: Path) -> None:
    def die(point: str) -> None:
        while hold_of(flag).exists():
            time.sleep(0.05)
        if flag.exists() and flag.read_text() == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(owner: type, method: str, point: str, after: bool) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            if not after:
                die(point)
            result = original(*args, **kwargs)
            if after:
                die(point)
            return result

        setattr(owner, method, hooked)

    for point, (owner, method, after) in (POINTS | OF_CANDIDATES).items():
        hook(owner, method, point, after)


if __name__ == "__main__":
    arm(Path(sys.argv[1]))
    del sys.argv[1]
    turnout.spark.read.arrivals.__dict__["FEW_RECORDS"] = 0
    main()
