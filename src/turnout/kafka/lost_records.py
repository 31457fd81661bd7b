"""Records that retention removed before they were read.

A gap in the offsets alone says nothing, since compacted topics have many; Kafka has to be asked for its first offset.
A thread does that, again until Kafka answers: the batch that found the gap does not wait, and every loss is reported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.errors import TurnoutError
from turnout.plan.offsets import Lost

log = logging.getLogger("turnout")

MOST_WAITING = 10_000
RETRY_SECONDS = 5.0


class Watermarks(Protocol):
    """What is asked of Kafka."""

    def low_watermark(self, topic: str, partition: int) -> int | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition without a record, from `start` up to, not with, `end`; `report` gets the loss."""

    topic: str
    partition: int
    start: int
    end: int
    report: Callable[[Lost], None]


class LostRecords:
    """Finds out which gaps are losses. `check` never waits; `connect` makes the client, at the first gap."""

    def __init__(self, connect: Callable[[], Watermarks], retry_seconds: float = RETRY_SECONDS) -> None:
        self._connect = connect
        self._retry_seconds = retry_seconds
        self._waiting: list[Gap] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._client: Watermarks | None = None
        self._thread: threading.Thread | None = None

    def check(self, gaps: Sequence[Gap]) -> None:
        """Find out about these; another thread calls `report`."""
        with self._changed:
            room = max(0, MOST_WAITING - len(self._waiting))
            if len(gaps) > room:
                log.warning("%d gaps in topics are not looked into: Kafka does not answer", len(gaps) - room)
            self._waiting += gaps[:room]
            if self._waiting and self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="turnout-lost-records", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._client is not None:
            self._client.close()
        if self._thread is not None:
            self._thread.join(timeout=3)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or bool(self._waiting))
                if self._stopped:
                    return
                gaps, self._waiting = self._waiting, []
            left = self._checked(gaps)
            with self._changed:
                self._waiting = left + self._waiting
                if left:
                    self._changed.wait_for(lambda: self._stopped, self._retry_seconds)

    def _checked(self, gaps: Sequence[Gap]) -> list[Gap]:
        """Report the losses among them; the gaps that Kafka gave no answer to are left."""
        low: dict[tuple[str, int], int | None] = {}
        for number, gap in enumerate(gaps):
            place = (gap.topic, gap.partition)
            try:
                if self._client is None:
                    self._client = self._connect()
                if place not in low:
                    low[place] = self._client.low_watermark(*place)
            except TurnoutError as error:
                log.debug("the first offset of %s is not known yet: %s", place, error)
                return list(gaps[number:])
            except Exception:
                log.exception("the first offset of %s is not known", place)
                low[place] = None
            first = low[place]
            if first is not None and first > gap.start:
                lost = Lost(gap.topic, gap.partition, gap.start, min(first, gap.end))
                try:
                    gap.report(lost)
                except Exception:  # one listener that fails must not keep losses from the others
                    log.exception("%s; this could not be reported", lost)
        return []
