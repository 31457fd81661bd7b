"""The control topic and the acknowledgement topic, through outages of the broker.

One thread reads control records and hands them over; another writes the outcomes. What a record means is not decided
here.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from turnout.config import KafkaSettings
from turnout.kafka.clients import (
    AT_END,
    AT_LOW,
    MISSING,
    TopicAdmin,
    TopicDescription,
    TopicProducer,
    client_properties,
    describe,
    read_offsets,
    renewed_consumer,
)
from turnout.kafka.diagnosis import cause_of
from turnout.kafka.unpacking import NOT_UNPACKED, end_of_batch, reason
from turnout.logs import Say
from turnout_client.retries import growing_pause

LOOK_SECONDS = 3.0
LOOK_TIMEOUT_SECONDS = 1.0
RETRY_SECONDS = 0.5
RETRY_MAX_SECONDS = 5.0
ASK_ANEW_AFTER = 3
"""After so many looks without an answer another client looks."""
UNPACK_TRIES = 3
"""After so many tries a record that cannot be unpacked is rejected."""
POLL_SECONDS = 0.2
BATCH = 500
STOP_SECONDS = 2.0

_ROLE = "control"
_MISPLACED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of the control topic, as it came; or a batch that cannot be unpacked, which has the last offset."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    unreadable: str | None = None
    """Why it cannot be read."""


class ControlReader:
    """A thread that hands over every record of the control topic, in the order of each partition.

    It starts at `after[partition]`, or at the earliest record. `deliver` runs on the thread, may block, and gets
    the same records again when it raises. `say` gets each new problem once, and its end.
    `caught_up` is set when all records that the topic had at the start are delivered; a topic that does not exist has
    none. Any thread may read `trouble`: why records do not come.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        after: Mapping[int, int],
        deliver: Callable[[list[ControlRecord]], None],
        say: Say,
    ) -> None:
        self.caught_up = threading.Event()
        self._kafka = kafka
        self._topic = topic
        self._deliver = deliver
        self._listener = say
        self._next = dict(after)
        self._topic_id: str | None = None
        self._assigned: set[int] = set()
        self._targets: dict[int, int] | None = None
        self._trouble: str | None = None
        self._trouble_text: str | None = None
        self._undelivered: str | None = None
        self._unpack_tries: dict[int, int] = {}
        """By partition: how often the next record could not be unpacked."""
        self._cause: KafkaError | None = None
        self._failures = 0
        self._look_at = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read; TurnoutError where the client does not accept its settings."""
        self._admin = TopicAdmin(self._kafka, _ROLE, LOOK_TIMEOUT_SECONDS, error_cb=self._note)
        self._renewed = renewed_consumer(self._kafka, _ROLE, error_cb=self._note)
        self._thread = threading.Thread(target=self._run, name="turnout-control", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """Why records do not come or cannot be delivered; a topic that does not exist is no trouble."""
        return self._undelivered or (self._trouble_text if self._trouble != "absent" else None)

    @property
    def _consumer(self) -> Consumer:
        return self._renewed.client

    def stop(self) -> None:
        """End the thread; returns within two seconds even when `deliver` blocks for longer."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    if time.monotonic() >= self._look_at:
                        self._look()
                    self._receive()
                except Exception as error:  # nothing may end the thread
                    self._report(f"error {error!r}", f"reading the control topic {self._topic!r} failed: {error!r}")
                    self._assigned.clear()  # so that records which were fetched and not delivered are fetched again
                    self._look_later()
                    self._stopping.wait(RETRY_SECONDS)
        finally:
            self._consumer.close()

    def _look(self) -> None:
        """Find out whether the topic exists, is still the same one, and has the partitions that are read."""
        self._admin.client.poll(0)  # calls _note with what the connections reported
        try:
            self._present(self._admin.describe(self._topic))
        except KafkaException as exception:
            self._not_seen(exception.args[0])
        else:
            self._failures = 0
            self._cause = None
            self._look_at = time.monotonic() + LOOK_SECONDS

    def _not_seen(self, error: KafkaError) -> None:
        self._admin.client.poll(0)  # calls _note with what the connections reported
        self._look_later()
        if error.code() in MISSING:
            self._absent()
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._refused(error)
        else:
            self._unreachable(error)

    def _look_later(self) -> None:
        self._failures += 1
        self._look_at = time.monotonic() + growing_pause(self._failures - 1, RETRY_SECONDS, LOOK_SECONDS)

    def _present(self, found: TopicDescription) -> None:
        topic_id = str(found.topic_id)
        if self._topic_id not in (None, topic_id):
            self._say(
                "WARNING", f"control topic {self._topic!r} was created again; it is read from its earliest record"
            )
            self._next.clear()
            self._assigned.clear()
        self._topic_id = topic_id
        if self._failures:
            # After a broker was away, librdkafka has been seen to fetch nothing more of what it had been assigned.
            self._assigned = set()
        led = {part.id for part in found.partitions if part.leader is not None and part.leader.id >= 0}
        wanted = led | (self._assigned & {part.id for part in found.partitions})
        if wanted != self._assigned:
            self._assign(wanted)
        if self._trouble not in ("refused", "unpacked"):  # to see a topic is not yet to read it
            self._report(None, f"control topic {self._topic!r} is read")

    def _assign(self, wanted: set[int]) -> None:
        new = wanted - self._assigned
        # The consumer has its own picture of the topic, which it would refresh every five minutes.
        self._consumer.list_topics(self._topic, timeout=LOOK_TIMEOUT_SECONDS)
        low, end = self._offsets(new, AT_LOW), self._offsets(new, AT_END)
        for partition in new:
            self._next[partition] = self._place(partition, low[partition], end[partition])
        if self._targets is None:
            self._targets = end
        # The client drops what it had fetched for the last assignment, and fetches again from `_next`.
        self._consumer.assign([TopicPartition(self._topic, p, self._next[p]) for p in sorted(wanted)])
        self._assigned = wanted
        self._see_whether_caught_up()

    def _offsets(self, partitions: Iterable[int], moment: int) -> dict[int, int]:
        times = {(self._topic, partition): moment for partition in partitions}
        offsets, failed = read_offsets(self._consumer, times, LOOK_TIMEOUT_SECONDS)
        for error in failed.values():
            raise KafkaException(error)
        return {partition: offset for (_, partition), offset in offsets.items()}

    def _place(self, partition: int, low: int, end: int) -> int:
        """Where to read on; the earliest record when the remembered place is not there."""
        wanted = self._next.get(partition)
        if wanted is None or low <= wanted <= end:
            return low if wanted is None else wanted
        lost = f"offsets {wanted} to {low - 1} are lost (retention)"
        what = lost if wanted < low else "it was truncated or created again"
        self._say(
            "WARNING",
            f"control topic {self._topic!r} partition {partition} was read up to offset {wanted}, "
            f"and now holds {low} to {end}: {what}; reading continues at {low}",
        )
        return low

    def _absent(self) -> None:
        if self._assigned:
            self._consumer.unassign()
            self._assigned = set()
        if self._targets is None:
            self._targets = {}
            self.caught_up.set()
        self._report(
            "absent",
            f"control topic {self._topic!r} does not exist on Kafka at {self._kafka.bootstrap_servers}, so no control "
            f"message arrives from Kafka; create it, or set control.topic; it is read as soon as it exists",
        )

    def _refused(self, error: KafkaError) -> None:
        self._report(
            "refused",
            f"control topic {self._topic!r} may not be read with Turnout's Kafka identity ({describe(error)}); "
            f"grant it Describe and Read on the topic; it is read as soon as that is done",
        )

    def _unreachable(self, error: KafkaError) -> None:
        # One look can time out on a slow day; two in a row are an outage.
        if self._failures < 2:
            return
        if self._trouble != "unreachable":
            hint = "check that the broker runs, and the address and auth of its Kafka"
            cause = cause_of(self._kafka, describe(self._cause or error), hint)
            self._report(
                "unreachable",
                f"Kafka at {self._kafka.bootstrap_servers} cannot be reached ({cause.text}), so control messages wait "
                f"there; {cause.hint}; Turnout keeps trying",
            )
        if self._renewed.outdated:
            self._admin.renew()
            self._renewed.renew()
            self._assigned.clear()
        elif self._failures % ASK_ANEW_AFTER == 0:
            # The client asks the controller that it knows, for minutes also where that is gone and another took over.
            self._admin.renew()

    def _receive(self) -> None:
        if not self._assigned:
            self._consumer.poll(0)
            self._stopping.wait(POLL_SECONDS)
            return
        # `consume` waits until its batch is full; `poll` returns with the first record.
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return
        messages = [first, *self._consumer.consume(BATCH - 1, timeout=0)]
        records = [_record(message) for message in messages if message.error() is None]
        if records and self._made_anew():
            return
        self._hand_over([record for record in records if record.offset >= self._next.get(record.partition, 0)])
        for message in messages:
            error = message.error()
            if error is not None:
                self._handle(error, message.partition(), message.offset())
        self._see_whether_caught_up()

    def _made_anew(self) -> bool:
        """Whether fetched records are of another topic than the one whose offsets are known.

        Checked for each batch (a millisecond, and control messages are few): by offsets alone, the records of a new
        topic would be taken for the next ones of the old.
        """
        known = self._topic_id
        self._look()
        return self._topic_id != known

    def _hand_over(self, records: list[ControlRecord]) -> None:
        failures = 0
        said = ""
        while records and not self._stopping.is_set():
            try:
                self._deliver(records)
            except Exception as error:  # the records are not lost: they are delivered again
                if repr(error) != said:
                    said = repr(error)
                    first = records[0]
                    self._undelivered = (
                        f"{len(records)} control record(s) from partition {first.partition} offset {first.offset} on "
                        f"could not be delivered ({said}); Turnout tries again until it works"
                    )
                    self._say("WARNING", self._undelivered)
                self._stopping.wait(growing_pause(failures, RETRY_SECONDS, RETRY_MAX_SECONDS))
                failures += 1
            else:
                self._undelivered = None
                self._next.update((record.partition, record.offset + 1) for record in records)
                self._readable({record.partition for record in records})
                return

    def _handle(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF and partition is not None:
            # A topic can end with offsets that have no record (transactions, compaction).
            self._next[partition] = max(self._next.get(partition, 0), offset or 0)
            self._readable({partition})
        elif error.code() in _MISPLACED and partition is not None:
            self._assigned.discard(partition)  # the next look places it anew
            self._look_at = 0.0
        elif error.code() in NOT_UNPACKED and partition is not None and offset is not None:
            self._not_unpacked(partition, offset)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._refused(error)
        elif error.code() in MISSING:
            self._look_soon()
        # The client tries again after others. A right to the group is not needed, so its lack is no fault.

    def _not_unpacked(self, partition: int, first: int) -> None:
        """After some tries, hand the batch over as one record that cannot be read, and read on behind it."""
        if partition not in self._assigned:
            return  # found before, in the same look
        self._report(
            "unpacked",
            f"control topic {self._topic!r} partition {partition}: {reason(first, first + 1)}; "
            f"after {UNPACK_TRIES} tries it is rejected, and reading continues after it",
        )
        self._unpack_tries[partition] = self._unpack_tries.get(partition, 0) + 1
        if self._unpack_tries[partition] < UNPACK_TRIES:
            return
        self._assigned.clear()  # the search takes the consumer; the next look assigns anew
        self._look_at = 0.0
        behind = end_of_batch(self._consumer, self._topic, partition, first)
        now = int(time.time() * 1000)
        self._hand_over([ControlRecord(partition, behind - 1, now, None, reason(first, behind))])

    def _readable(self, partitions: Collection[int]) -> None:
        """Note that records of these partitions come."""
        for partition in partitions:
            self._unpack_tries.pop(partition, None)
        if self._trouble == "refused" or (self._trouble == "unpacked" and not self._unpack_tries):
            self._report(None, f"control topic {self._topic!r} is read")

    def _see_whether_caught_up(self) -> None:
        if self._targets is not None and all(self._next.get(p, 0) >= end for p, end in self._targets.items()):
            self.caught_up.set()

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._cause is None:
            self._cause = error
        self._look_soon()

    def _look_soon(self) -> None:
        if self._failures == 0:
            self._look_at = min(self._look_at, time.monotonic() + RETRY_SECONDS)

    def _report(self, trouble: str | None, text: str) -> None:
        """Report a change of the trouble; None: it is over."""
        if trouble == self._trouble:
            return
        self._trouble, self._trouble_text = trouble, text if trouble is not None else None
        self._say("INFO" if trouble is None else "WARNING", text)

    def _say(self, level: str, text: str) -> None:
        with contextlib.suppress(Exception):  # a listener that fails must not end the thread
            self._listener(level, text)


def _record(message: Message) -> ControlRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return ControlRecord(partition, offset, message.timestamp()[1], message.value())


class Acknowledgements:
    """Writes outcomes to a topic, as JSON under their request's id. Never raises and hardly waits.

    `say` gets each reason for a failure once, until an outcome is delivered.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, say: Say) -> None:
        self._kafka = kafka
        self._topic = topic
        self._say = say
        self._said = ""
        self._stopping = threading.Event()
        self._producer = TopicProducer(kafka, topic, self._properties, self._delivered)
        self._thread = threading.Thread(target=self._run, name="turnout-outcomes", daemon=True)
        self._thread.start()

    def _properties(self) -> dict[str, Any]:
        return {
            **client_properties(self._kafka, "outcomes"),
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            # A topic that is made after the first outcome is found in seconds, not in five minutes.
            "topic.metadata.refresh.interval.ms": 10_000,
            "topic.metadata.propagation.max.ms": 5_000,
        }

    def send(self, key: str | None, payload: Mapping[str, Any]) -> None:
        try:
            value = json.dumps(payload, default=str).encode()
            name = key.encode(errors="replace") if key is not None else None
            if self._producer.outdated:
                self.flush(0.5)
                self._producer.client.purge()
                self._producer.renew()
            try:
                self._producer.produce(name, value)
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError._FATAL:
                    raise
                # An idempotent producer that lost its sequence is of no more use; a new one begins its own.
                self._producer.renew()
                self._producer.produce(name, value)
        except BufferError:
            self._failed("too many are waiting for Kafka")
        except KafkaException as exception:
            self._failed(_why_not_written(exception.args[0]))
        except Exception as error:  # a swap must not fail because its outcome cannot be written
            self._failed(repr(error))

    def flush(self, timeout: float) -> bool:
        """Wait until all are delivered or failed; False when some are still waiting."""
        return self._producer.flush(timeout)

    def close(self) -> None:
        """Give what waits two seconds, then end. May be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join(1)
        if not self.flush(STOP_SECONDS):
            self._failed("Turnout stopped before Kafka took them all")
            self._producer.client.purge()
            self.flush(0.1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.client.poll(POLL_SECONDS)  # calls _delivered
            except KafkaException as exception:
                # Fatal, such as a missing right to write; the next outcome gets a new client.
                self._failed(_why_not_written(exception.args[0]))
                self._stopping.wait(RETRY_SECONDS)

    def _delivered(self, error: KafkaError | None) -> None:
        if error is None:
            self._said = ""
        else:
            self._failed(_why_not_written(error))

    def _failed(self, why: str) -> None:
        if why == self._said:
            return
        self._said = why
        with contextlib.suppress(Exception):
            self._say(
                "WARNING",
                f"an outcome was not written to topic {self._topic!r} ({why}); "
                f"check that the topic exists and may be written, or remove control.ack_topic",
            )


def _why_not_written(error: KafkaError) -> str:
    return "it does not exist" if error.code() in MISSING else describe(error)
