"""How far the published generation is behind its topics, and how fast it goes; measured on a thread of its own,

because asking a broker that is away takes time that nobody else should wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.kafka.topics import Topics
from turnout.offsets import Offsets

EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. `trouble` says why Kafka could not be asked."""

    lag: int | None = None
    records_per_second: float = 0.0
    trouble: str | None = None


class Meter:
    """Measures once a second, whatever generation is shown then."""

    def __init__(self, topics: Topics, shown: Callable[[], tuple[Offsets, int, int] | None]) -> None:
        self._topics = topics
        self._shown = shown
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnout-meter", daemon=True)
        self._before: tuple[int, int, float] | None = None
        self.reading = Reading()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            shown = self._shown()
            if shown is None:
                continue
            offsets, records, generation = shown
            try:
                ends = self._topics.end_offsets({topic for topic, _ in offsets.next})
            except TurnoutError as error:
                self.reading = Reading(self.reading.lag, 0.0, str(error))
            else:
                self.reading = Reading(offsets.behind(ends), self._rate(records, generation))

    def _rate(self, records: int, generation: int) -> float:
        now = time.monotonic()
        before, self._before = self._before, (records, generation, now)
        if before is None or before[1] != generation:
            return 0.0
        return round((records - before[0]) / max(now - before[2], 0.001), 1)
