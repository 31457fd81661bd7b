"""Where faults are played: one broker and one Turnout for those that leave it as it was, others for the rest."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from faults.kafkas import OneBroker
from faults.world import Comparison, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Scenario = Callable[["Stage"], Comparison]


class NotPossibleError(Exception):
    """This machine lacks what a fault needs; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A scenario under its name."""

    name: str
    what: str
    play: Scenario


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it; `trouble` where it could not be played to its end."""

    fault: Fault
    seconds: float
    comparison: Comparison | None = None
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.comparison is not None and self.comparison.equal


class Stage:
    """Starts what a scenario asks for, once; a world in which something went wrong is not used again.

    With a `session`, the shared world has no process: for faults that leave Turnout's process alone. Records come for
    `load_seconds` before a fault that happens while they do.
    """

    def __init__(self, folder: Path, session: SparkSession | None = None, load_seconds: float = 2.0) -> None:
        self.folder = folder
        self.kafka_folder = folder / "kafka"
        self.load_seconds = load_seconds
        self._session = session
        self._kafka: OneBroker | None = None
        self._world: World | None = None
        self._count = 0
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.__exit__(kind, error, trace)

    @property
    def kafka(self) -> OneBroker:
        """The shared broker, reached by Turnout through its proxy."""
        if self._kafka is None:
            self._kafka = self._closing.enter_context(OneBroker(self.kafka_folder))
        return self._kafka

    def world(self) -> World:
        """The shared world, on fresh topics, with the producer at work."""
        if self._world is None:
            self._world = self._closing.enter_context(World(self.new_folder(), self.kafka, session=self._session))
        else:
            self._world.move()
        self._world.producer.resume()
        return self._world

    def new_folder(self) -> Path:
        """A folder for a world of its own."""
        self._count += 1
        folder = self.folder / f"world-{self._count}"
        folder.mkdir()
        return folder

    def play(self, fault: Fault) -> Played:
        """Play one fault; whatever goes wrong is in the result."""
        began = time.monotonic()
        try:
            found = fault.play(self)
        except Exception as error:
            self._leave()
            return Played(fault, time.monotonic() - began, trouble=f"{type(error).__name__}: {error}"[-6000:])
        if not found.equal:
            self._leave()
        return Played(fault, time.monotonic() - began, found)

    def _leave(self) -> None:
        if self._world is not None:
            shutil.copy(self._world.turnout.log_file, self.folder / "last-failure.log")
            self._world.__exit__(None, None, None)
            self._world = None
        if self._kafka is not None:
            self._kafka.proxy.heal()
            if not self._kafka.broker.running:
                self._kafka.broker.start()
