"""How far a build is: its step, the share of all its work that is done, and how long it may still take.

Between two reports of the store the share is estimated by the speed so far, so that it moves all the time; it never
goes back, and never reaches the end of a step before the step is done.
"""

import math
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from turnout.plan.plan import Plan


class BuildStep(StrEnum):
    """The steps of a build, in their order."""

    VALIDATING = "validating"
    READING = "reading"
    VIEWS = "views"
    PUBLISHING = "publishing"


_ENDS = {BuildStep.VALIDATING: 2.0, BuildStep.READING: 72.0, BuildStep.VIEWS: 98.0, BuildStep.PUBLISHING: 100.0}
"""The percentage at which each step ends: about as long as they take, of a large topic."""

_SLOWEST = 1e-6
"""The share of a step that is done in a second at least, for the estimate of the time that is left."""
_FIRST_SECONDS = {BuildStep.VALIDATING: 1.0, BuildStep.READING: 3.0, BuildStep.VIEWS: 2.0, BuildStep.PUBLISHING: 0.5}
"""How long a step is taken for until it has told something."""

_FIRST_RECORDS_PER_SECOND = 100_000
_MOST_ESTIMATED = 0.95
"""The share of what is not known to be done that an estimate adds at most."""


class BuildMeter:
    """The progress of one build. The build's threads report; any thread may read."""

    def __init__(self, generation: int, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = generation
        self._plan = plan
        self._clock = clock
        self._step = BuildStep.VALIDATING
        self._entered = self._reported = clock()
        self._done = 0.0
        self._percent = 0.0
        self._reading_seconds: float | None = None
        self._to_read = self._left = self._records = 0
        self.sources: Mapping[str, Mapping[str, int]] = {}
        """For each source how many rows are kept and how many records are to be read, once that is known."""

    def read(self, left: int, records: int = 0) -> None:
        """Note how many records are left to read, and how many are stored; the first call begins the step."""
        if self._step is BuildStep.VALIDATING:
            self._to_read = left
            self._enter(BuildStep.READING)
        self._left, self._records = left, records
        if self._step is BuildStep.READING:
            self._report(1 - left / self._to_read if self._to_read else 1.0)
            if left == 0:
                self._enter(BuildStep.VIEWS)

    def views(self, done: float) -> None:
        """Note which share of the views is built."""
        if self._step is not BuildStep.VIEWS:
            self._enter(BuildStep.VIEWS)
        self._report(done)

    def publishing(self) -> None:
        self._enter(BuildStep.PUBLISHING)

    def _enter(self, step: BuildStep) -> None:
        if self._step is BuildStep.READING:
            self._reading_seconds = self._clock() - self._entered
        self._step, self._entered, self._done = step, self._clock(), 0.0
        self._reported = self._entered

    def _report(self, done: float) -> None:
        if done > self._done:
            self._done, self._reported = done, self._clock()

    def _speed(self) -> float:
        """The share of this step that is done in a second, as far as it is known."""
        if self._done > 0 and self._reported > self._entered:
            return max(_SLOWEST, self._done / (self._reported - self._entered))
        seconds = _FIRST_SECONDS[self._step]
        if self._step is BuildStep.READING:
            seconds = max(seconds, self._to_read / _FIRST_RECORDS_PER_SECOND)
        elif self._step is BuildStep.VIEWS and self._reading_seconds is not None:
            seconds = max(seconds, self._reading_seconds * _share(BuildStep.VIEWS) / _share(BuildStep.READING))
        return 1 / seconds

    def percent(self) -> float:
        """The share of the whole build that is done, of 100."""
        rest = 1 - self._done
        passed = self._clock() - self._reported
        estimated = rest * _MOST_ESTIMATED * (1 - math.exp(-self._speed() * passed / rest)) if rest > 0 else 0.0
        percent = _ENDS[self._step] - _share(self._step) * (1 - self._done - estimated)
        self._percent = max(self._percent, percent)
        return round(self._percent, 1)

    def seconds_left(self) -> float | None:
        """About how long it will take; None while that cannot be told."""
        if self._step is BuildStep.VALIDATING or (self._step is BuildStep.READING and not self._done):
            return None
        percent, at_end = self.percent(), _ENDS[self._step]
        here = max(0.0, at_end - percent) / _share(self._step) / self._speed()
        later = 0.0
        if self._step is BuildStep.READING:
            later = (_ENDS[BuildStep.VIEWS] - at_end) / _share(BuildStep.READING) / self._speed()
        return round(here + later, 1)

    def to_json(self, state: str) -> dict[str, Any]:
        """The progress for the status; `state` is that of the generation."""
        return {
            "generation": self.generation,
            "state": state,
            "plan": self._plan.describe(),
            "step": self._step.value,
            "records": self._records,
            "recordsToRead": self._to_read,
            "lag": self._left,
            "percent": self.percent(),
            "secondsLeft": self.seconds_left(),
            "sources": dict(self.sources),
        }


def _share(step: BuildStep) -> float:
    """How many percent a step is of the whole."""
    before = [end for end in _ENDS.values() if end < _ENDS[step]]
    return _ENDS[step] - max(before, default=0.0)
