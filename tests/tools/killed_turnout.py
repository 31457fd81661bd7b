"""`python killed_turnout.py FLAG run -c FILE`: Turnout, which kills itself at the point that the file FLAG names.

The points are places in the life of a swap. A kill from outside cannot hit the short ones. While there is a file
FLAG.hold, it waits at every point. All that a build reads is read in bulk, which has files of its own.
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

import turnout.spark.read.readers
from turnout.cli import main
from turnout.store.generation_tables import GenerationTables
from turnout.store.kept_sources import KeptTopics
from turnout.store.ledger import Ledger
from turnout.swap.builder import Builder
from turnout.swap.generations import Generation, Generations
from turnout.swap.lifecycle import Lifecycle

POINTS: dict[str, tuple[type, str, bool]] = {
    "validating": (Builder, "validate", False),
    # Inside the transaction that copies the rows of kept sources, before it is kept.
    "copying": (KeptTopics, "copy", True),
    "building": (Generations, "create", True),
    "catching_up": (Builder, "catch_up", False),
    "views": (Generation, "building_views", True),
    # Inside the transaction that publishes, before it is kept.
    "publishing": (GenerationTables, "publish", True),
    # Kept, and nothing else done yet.
    "live": (Lifecycle, "replace", False),
    "lingering": (Lifecycle, "replace", True),
    "retiring": (Generations, "clear", False),
    "retired": (Generations, "clear", True),
}
"""Point -> class, method, and whether the kill comes after the method."""

OF_CANDIDATES: dict[str, tuple[type, str, bool]] = {
    # Inside the transaction that makes, publishes or discards a candidate, before it is kept.
    "candidate_written": (Ledger, "set_candidate", True),
    # Kept, and nothing else done yet.
    "candidate_kept": (Lifecycle, "let_candidate_go", False),
}
"""The points of messages about candidates."""

APART = ("publishing", "live")
"""The points that leave most different things: a generation that is not published, and one that is, whose message has
no outcome. What the others leave is less of these, or what an ordinary stop leaves."""


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
    turnout.spark.read.readers.__dict__["FEW_RECORDS"] = 0
    main()
