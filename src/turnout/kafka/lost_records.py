"""Records that retention removed before they were read.

A gap in the offsets alone says nothing, since compacted topics have many; Kafka has to be asked for its first offset.
A thread does that, again until Kafka answers: the batch that found the gap does not wait, and every loss is reported.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from turnout.errors import TurnoutError
from turnout.kafka.topics import Topics
from turnout.plan.offsets import Gap, Lost

log = logging.getLogger("turnout")

MOST_WAITING = 10_000
RETRY_SECONDS = 5.0


class LostRecords:
    """Finds out which gaps are losses. `check` never waits; `connect` makes the client, at the first gap."""

    def __init__(self, connect: Callable[[], Topics], retry_seconds: float = RETRY_SECONDS) -> None:
        self._connect = connect
        self._retry_seconds = retry_seconds
        self._waiting: queue.Queue[tuple[Gap, Callable[[Lost], None]] | None] = queue.Queue(MOST_WAITING)
        self._stopped = threading.Event()
        self._client: Topics | None = None
        self._thread = threading.Thread(target=self._run, name="turnout-lost-records", daemon=True)
        self._thread.start()

    def check(self, gaps: Sequence[Gap], report: Callable[[Lost], None]) -> None:
        """Queue gaps; another thread asks Kafka about them, and `report` gets those that are losses."""
        for number, gap in enumerate(gaps):
            try:
                self._waiting.put_nowait((gap, report))
            except queue.Full:
                log.warning("Kafka does not answer, so %d gaps in topics are not checked", len(gaps) - number)
                return

    def stop(self) -> None:
        self._stopped.set()
        with contextlib.suppress(queue.Full):  # then the thread does not wait for a gap
            self._waiting.put_nowait(None)
        if self._client is not None:
            self._client.close()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        while not self._stopped.is_set() and (waiting := self._waiting.get()) is not None:
            try:
                while not self._checked(*waiting) and not self._stopped.wait(self._retry_seconds):
                    pass
            except Exception:  # the thread goes on with other gaps
                log.exception("the first offset of %s/%d is not known", *waiting[0][:2])

    def _checked(self, gap: Gap, report: Callable[[Lost], None]) -> bool:
        """Report a gap where it is a loss; False: Kafka gave no answer."""
        topic, partition, start, end = gap
        try:
            if self._client is None:
                self._client = self._connect()
            first = self._client.low_watermark(topic, partition)
        except TurnoutError as error:
            log.debug("the first offset of %s/%d is not known yet: %s", topic, partition, error)
            return False
        if first is not None and first > start:
            lost = Lost(topic, partition, start, min(first, end))
            try:
                report(lost)
            except Exception:  # one listener that fails must not keep losses from the others
                log.exception("%s; this could not be reported", lost)
        return True
