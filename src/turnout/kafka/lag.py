"""The ends of topics, asked for again and again: how far the published generation is behind, and whether more came.

The lag is measured on a thread of its own, because asking a broker that is away takes time that nobody else should
wait. To wait for more is far less work here than in Spark's own loop, which asks and plans.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.topics import Topics
from turnout.plan.offsets import Offsets, Partitions

EVERY_SECONDS = 1.0
FIRST_SECONDS = 0.1
TIMEOUT_SECONDS = 3.0

PROMPT_SECONDS = 0.02
"""How often ends are asked for while records come, and a while after."""
RESTING_SECONDS = 0.05
"""How often later."""
RESTS_AFTER_SECONDS = 3.0
LOOK_SECONDS = 2.0
"""How often to ask whether topics were created or deleted, or got partitions."""
QUESTION_SECONDS = 2.0
"""How long Kafka may take to say where topics end."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement. `trouble` says why Kafka could not be asked; `measured` is false before it answered once."""

    lag: int | None = None
    ends: Offsets = field(default_factory=lambda: Offsets({}))
    """The ends of the topics of all generations, as far as they are known."""
    lags: Partitions = field(default_factory=dict)
    records_per_second: float = 0.0
    trouble: str | None = None
    measured: bool = False


class LagMeter:
    """Measures once a second, whatever generation is shown then.

    `published` gives what that has read, its records and its number; then what all generations have read.
    """

    def __init__(self, kafka: KafkaSettings, published: Callable[[], tuple[Offsets, int, int, Offsets] | None]) -> None:
        # A client of its own: its questions keep nobody else waiting, and an outage shows soon.
        self._topics = Topics(kafka, TIMEOUT_SECONDS)
        self._published = published
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: tuple[int, int, float] | None = None
        self.reading = Measurement()

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="turnout-lag", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._topics.close()
        if self._thread is not None:
            self._thread.join(timeout=3)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS if self.reading.measured else FIRST_SECONDS):
            found = self._published()
            if found is not None:
                self.reading = self._measure(*found)

    def _measure(self, offsets: Offsets, records: int, generation: int, others: Offsets) -> Measurement:
        try:
            ends = self._topics.end_offsets({topic for topic, _ in offsets.next})
        except TurnoutError as error:
            if error.code == "unknown_topic":
                # The query that reads a deleted topic reports it; the others go on.
                return replace(self.reading, records_per_second=0.0, trouble=None, measured=True)
            return replace(self.reading, records_per_second=0.0, trouble=str(error))
        lags, now, rate = offsets.lags(ends), time.monotonic(), 0.0
        before, self._before = self._before, (records, generation, now)
        if before is not None and before[1] == generation:
            rate = round((records - before[0]) / max(now - before[2], 0.001), 1)
        places = others.next.keys() - ends.next.keys()
        with suppress(TurnoutError):  # the ends of others are not known where one of their topics is deleted
            ends |= Offsets(self._topics.ends(places) if places else {})
        return Measurement(sum(lags.values()), ends, lags, rate, None, measured=True)


def wait_for_more(client: Topics, topics: Sequence[str], read: Offsets, stopped: threading.Event) -> None:
    """Return when a partition ends elsewhere than where it was read to, or partitions came or went.

    Also when Kafka does not answer, since the reader then reports why, and when `stopped` is set. For any thread.
    """
    began = looked = time.monotonic()
    while not stopped.is_set():
        try:
            if client.ends(read.next) != read.next:
                return
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                if client.partitions(topics) != set(read.next):
                    return
        except TurnoutError:
            return
        resting = time.monotonic() - began > RESTS_AFTER_SECONDS
        stopped.wait(RESTING_SECONDS if resting else PROMPT_SECONDS)
