"""Waits for records that are new in Kafka, with far less work than Spark's own loop asks and plans with."""

import threading
import time
from collections.abc import Sequence

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.topics import Topics
from turnout.plan.offsets import Offsets

PROMPT_SECONDS = 0.02
"""How often ends are asked for while records come, and a while after."""
RESTING_SECONDS = 0.05
"""How often later."""
RESTS_AFTER_SECONDS = 3.0
LOOK_SECONDS = 2.0
"""How often to ask whether topics were created or deleted, or got partitions."""

_QUESTION_SECONDS = 2.0


class EndWatch:
    """Waits until topics have more than was read; for any thread, one question at a time."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._topics = Topics(kafka, _QUESTION_SECONDS)

    def wait_for_more(self, topics: Sequence[str], read: Offsets, stopped: threading.Event) -> None:
        """Return when a partition ends elsewhere than where it was read to, or partitions came or went.

        Also when Kafka does not answer, since the reader then reports why, and when `stopped` is set.
        """
        began = looked = time.monotonic()
        while not stopped.is_set():
            try:
                if self._topics.ends(read.next) != read.next:
                    return
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    if self._topics.partitions(topics) != set(read.next):
                        return
            except TurnoutError:
                return
            resting = time.monotonic() - began > RESTS_AFTER_SECONDS
            stopped.wait(RESTING_SECONDS if resting else PROMPT_SECONDS)

    def close(self) -> None:
        self._topics.close()
