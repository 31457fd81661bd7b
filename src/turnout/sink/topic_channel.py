"""A topic that is written exactly once: the producer, what the topic is known to hold, and which topic it is.

Records of one call are in one Kafka transaction, or each is sent until it is delivered. After a start and after any
failure the producer is made anew, which ends what was under way, and the committed records since the last known ones
are read: so it does not matter when a process was killed, or whether an answer to a commit was lost. One thread uses
it. Why a topic is not written is told in words for people.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from turnout.config import Delivery, KafkaSettings
from turnout.errors import TurnoutError, first_line
from turnout.kafka.clients import (
    MISSING,
    Header,
    TopicAdmin,
    TopicProducer,
    client_properties,
    describe,
    renewed_consumer,
)
from turnout.kafka.diagnosis import cause_of
from turnout.plan.position import Position
from turnout.sink.topic_state import TopicState
from turnout.store.database import is_store_failure, store_failed

IDLE_SECONDS = 1.0
"""How long a writer of a topic rests without news; it then looks whether its topic is still the same one."""
NOTE_SECONDS = 60.0
"""How often the end of the topic is noted: a start reads the topic from there."""

CALL_SECONDS = 2.0
"""One call to Kafka; it is repeated until `PATIENCE_SECONDS`, or until the sink stops."""
PATIENCE_SECONDS = 60.0
TRANSACTION_SECONDS = 300
_STOPPED = KafkaError(KafkaError._DESTROY, "the sink is stopping")
_POLLED = 5_000

FINGERPRINT = "turnout.fingerprint"
"""The header of a record whose value does not tell its fingerprint."""
VERSION = "turnout.version"
_PRINTED = re.compile("[0-9]{1,39}")
_ROLE = "sinks"
_TIMEOUT_SECONDS = 10.0
_CHUNK = 20_000
_RIGHTS = ("READ", "WRITE")
_RECORDS = pa.schema([("record", pa.string()), ("fingerprint", pa.string())])
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_WITHOUT = (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class TopicChannel:
    """Writes records to one topic. It raises KafkaException and TurnoutError; then it has to be closed."""

    def __init__(
        self, kafka: KafkaSettings, writing: WriterSettings, state: TopicState, stopping: Callable[[], bool]
    ) -> None:
        self._kafka = kafka
        self._writing = writing
        self._stopping = stopping
        self._state = state
        self._reader = TopicReader(kafka, writing.topic, stopping)
        self._writer: TopicWriter | None = None
        self._topic: FoundTopic | None = None
        self._checked_at = 0.0
        self._noted_at = 0.0

    def open(self) -> Position | None:
        """End what was under way, learn what the topic holds, and return how far it was written.

        None where it is open already; it is opened anew where files have changed, such as a renewed certificate.
        """
        if self._writer is not None and not self._writer.outdated:
            return None
        self.close()
        found = self._reader.find()
        writer = TopicWriter(self._kafka, self._writing, self._stopping, self.notice_missing_topic)
        try:
            writer.open()
            ends = self._reader.admin.committed_ends(self._writing.topic, found.partitions)
            written, read = self._state.open(self._writing.topic, found.topic_id)
            if any(ends.get(partition, 0) < offset for partition, offset in read.items()):
                self._state.clear()  # its records are gone: it was made anew, or lost some of them
                written, read = self._state.open(self._writing.topic, found.topic_id)
            for records, read_to in self._reader.read(read, ends):
                self._state.fold(records, read_to)
        except BaseException:
            writer.close()
            raise
        self._writer, self._topic = writer, found
        self._checked_at = time.monotonic()
        return written

    def write(self, records: Iterable[SinkRecord]) -> None:
        """Write all records; they are committed, or delivered, when this returns."""
        assert self._writer is not None
        self._writer.write(records, before_commit=self._check_topic)

    def _check_topic(self) -> None:
        """Make sure that the topic is the one whose records are known: a producer writes to any of that name."""
        assert self._topic is not None
        if self._reader.find(CALL_SECONDS).topic_id != self._topic.topic_id:
            text = f"topic {self._writing.topic!r} was deleted and created again"
            raise TurnoutError("sink_topic_replaced", text, "nothing has to be done: the whole table is written to it")
        self._checked_at = time.monotonic()

    def notice_missing_topic(self) -> None:
        """Fail where the topic is gone, asking once a second; an outage of Kafka is reported by the next write."""
        now = time.monotonic()
        if now - self._checked_at < IDLE_SECONDS:
            return
        self._checked_at = now
        try:
            self._check_topic()
        except KafkaException as error:
            if error.args[0].code() in MISSING:
                raise

    def cleanup_policy(self) -> str | None:
        """How Kafka removes old records of the topic; None where it does not say."""
        return self._reader.admin.cleanup_policy(self._writing.topic)

    def end_to_note(self) -> dict[int, int] | None:
        """Where the topic ends, now and then."""
        now = time.monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return None
        self._noted_at = now
        return self._reader.admin.committed_ends(self._writing.topic, self._topic.partitions if self._topic else ())

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record for the topic; without a value the row is gone."""

    key: str
    value: bytes | str | None
    headers: list[Header]


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Which topic is written and how; a second process with one transactional id fences the first."""

    topic: str
    transactional_id: str
    delivery: Delivery = Delivery.EXACTLY_ONCE


def sink_id(topic: str) -> str:
    """The transactional id of a sink, one for each topic: another process that writes it fences this one."""
    return f"turnout-sink-{topic}"


class TopicWriter(TopicProducer):
    """A producer of one topic. It raises KafkaException; then it is of no more use."""

    def __init__(
        self,
        kafka: KafkaSettings,
        writing: WriterSettings,
        stopping: Callable[[], bool],
        notice_missing_topic: Callable[[], object],
    ) -> None:
        self._transactional_id = writing.transactional_id
        self._stopping = stopping
        # Kafka's client waits for a topic that is gone, up to a minute.
        self._notice_missing_topic = notice_missing_topic
        self._transactional = writing.delivery is Delivery.EXACTLY_ONCE
        self._failed: KafkaError | None = None
        super().__init__(kafka, writing.topic, lambda: self._properties(kafka), self._note_failure)

    def _properties(self, kafka: KafkaSettings) -> dict[str, Any]:
        properties = {
            "compression.type": "lz4",
            # As Java's clients spread keys.
            "partitioner": "murmur2_random",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            **client_properties(kafka, _ROLE),
            "delivery.report.only.error": True,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        if self._transactional:
            return {**properties, "transactional.id": self._transactional_id}
        properties.pop("transaction.timeout.ms")
        return {**properties, "message.timeout.ms": int(PATIENCE_SECONDS * 1000)}

    def open(self) -> None:
        """End what another writer of this topic left: afterwards the topic tells all that is committed."""
        if self._transactional:
            self._repeated(self.client.init_transactions)

    def write(self, records: Iterable[SinkRecord], before_commit: Callable[[], None]) -> None:
        """Write all records; they are committed, or delivered, when this returns.

        `before_commit` is called when Kafka has them; where it raises, they are not committed.
        """
        if self._transactional:
            self.client.begin_transaction()
        try:
            for number, record in enumerate(records):
                self._produce(record)
                if number % _POLLED == 0:
                    self._check()
            self._flush()
            before_commit()
            if self._transactional:
                self._repeated(self.client.commit_transaction)
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        """Drop what is under way, and free the producer."""
        with contextlib.suppress(KafkaException):
            self.client.purge()
            self.client.poll(0)
        super().close()

    def _produce(self, record: SinkRecord) -> None:
        while True:
            try:
                self.produce(record.key, record.value, record.headers)
            except BufferError:
                self._check(0.1)
            else:
                return

    def _check(self, seconds: float = 0.0) -> None:
        self.client.poll(seconds)  # calls _note_failure
        if self._stopping():
            raise KafkaException(_STOPPED)
        if self._failed is not None:
            raise KafkaException(self._failed)
        self._notice_missing_topic()

    def _flush(self) -> None:
        if not self.flush(PATIENCE_SECONDS, self._check):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._check()

    def _abort(self) -> None:
        """Free the readers of committed records from waiting for this transaction, as far as Kafka answers."""
        if self._transactional:
            with contextlib.suppress(KafkaException):
                self.client.purge()
                self.client.abort_transaction(CALL_SECONDS)

    def _repeated(self, call: Callable[[float], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._stopping():  # one that follows may write already, and must not be fenced
                raise KafkaException(_STOPPED)
            try:
                call(CALL_SECONDS)
            except KafkaException as exception:
                if not exception.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                self.client.poll(0.1)
            else:
                return

    def _note_failure(self, error: KafkaError | None) -> None:
        if self._failed is None:
            self._failed = error


@dataclass(frozen=True, slots=True)
class FoundTopic:
    topic_id: str
    partitions: tuple[int, ...]
    missing_rights: tuple[str, ...]
    """What Turnout's identity may not do with it; empty where the broker does not tell."""


class TopicReader:
    """Looks at one topic, for one thread; raises KafkaException where Kafka does not answer."""

    def __init__(self, kafka: KafkaSettings, topic: str, stopping: Callable[[], bool]) -> None:
        self.kafka = kafka
        self.topic = topic
        self.stopping = stopping

    @cached_property
    def admin(self) -> TopicAdmin:
        """Made at the first question: an error in its settings is the sink's, which tries again."""
        return TopicAdmin(self.kafka, _ROLE, _TIMEOUT_SECONDS)

    def find(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> FoundTopic:
        topic = self.admin.describe(self.topic, timeout_seconds, rights=True)
        rights = {right.name for right in topic.authorized_operations or ()}
        missing = tuple(right for right in _RIGHTS if right not in rights) if rights else ()
        return FoundTopic(str(topic.topic_id), tuple(sorted(part.id for part in topic.partitions)), missing)

    def read(self, start: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[tuple[pa.Table, dict[int, int]]]:
        """The records of Turnout from `start` up to `ends`, in chunks, and the offsets after each chunk."""
        left = {partition for partition, end in ends.items() if start.get(partition, 0) < end}
        read = {partition: start.get(partition, 0) for partition in ends}
        if not left:
            return
        faster = {"queued.min.messages": 100_000, "fetch.message.max.bytes": 1 << 20}
        committed = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        consumer = renewed_consumer(self.kafka, _ROLE, **committed, **faster).client
        try:
            places = [TopicPartition(self.topic, p, start.get(p, OFFSET_BEGINNING)) for p in sorted(left)]
            consumer.assign(places)
            while left and not self.stopping():
                records: list[tuple[str, str | None]] = []
                for message in consumer.consume(_CHUNK, timeout=0.2):
                    partition = message.partition() or 0
                    error = message.error()
                    if error is None:
                        read[partition] = (message.offset() or 0) + 1
                        records += _record(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        read[partition] = max(read[partition], message.offset() or 0)
                    elif not error.retriable() and error.code() not in (
                        KafkaError._TRANSPORT,
                        KafkaError._ALL_BROKERS_DOWN,
                    ):
                        raise KafkaException(error)
                    if read[partition] >= ends[partition]:
                        left.discard(partition)
                yield _table(records), dict(read)
        finally:
            consumer.close()


def policy_complaint(topic: str, policy: str | None) -> tuple[str, str] | None:
    """What is wrong with a topic's cleanup.policy, and what to do; None where nothing is, or it is not known."""
    if policy is None or "compact" in policy.split(","):
        return None
    what = f"topic {topic!r} has cleanup.policy={policy}, so Kafka removes rows that do not change for long"
    return what, "set cleanup.policy=compact on the topic"


def _record(message: Message) -> list[tuple[str, str | None]]:
    """Key and fingerprint of a record that Turnout wrote; nothing for one of somebody else."""
    headers, key, value = message.headers(), message.key(), message.value()
    named = dict(headers) if headers else {}
    if key is None or not named.keys() & {VERSION, FINGERPRINT}:
        return []
    if value is None:
        return [(_text(key), None)]
    given = _text(named.get(FINGERPRINT) or "")
    # Anybody who writes the topic can give any: one that is no fingerprint is that of another value.
    if not _PRINTED.fullmatch(given) or int(given) >> 128:
        given = str(int.from_bytes(md5(value, usedforsecurity=False).digest(), "little"))
    return [(_text(key), given)]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _table(records: list[tuple[str, str | None]]) -> pa.Table:
    keys, prints = [record[0] for record in records], [record[1] for record in records]
    return pa.table([pa.array(keys, pa.string()), pa.array(prints, pa.string())], schema=_RECORDS)


def failure(error: Exception, topic: str, writer: str, kafka: KafkaSettings) -> TurnoutError:
    """The error as one that people can act on; `writer` is the transactional id that the topic is written with."""
    if isinstance(error, TurnoutError):
        return error
    if isinstance(error, KafkaException):
        return _of_kafka(error.args[0], topic, writer, kafka)
    if is_store_failure(error):
        return store_failed(error)  # type: ignore[arg-type]
    return TurnoutError(
        "sink_failed", f"unexpected error: {first_line(error)}", "see the log of the process", status=503
    )


def _of_kafka(error: KafkaError, topic: str, writer: str, kafka: KafkaSettings) -> TurnoutError:
    code, words = error.code(), describe(error)
    at_least_once = "or set delivery: at_least_once, which needs no transactions"
    if code in MISSING:
        compact = " --compact" if writer == sink_id(topic) else ""
        create = f"turnout topic create {topic}{compact} -c FILE"
        return _refused(f"topic {topic!r} does not exist", f"create it: {create}")
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        denied = f"the transactional id {writer!r} may not be used with Turnout's Kafka identity"
        return _refused(
            f"transactions are not allowed: {denied}",
            f"grant it Describe and Write on that transactional id, {at_least_once}",
        )
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        text = f"topic {topic!r} may not be written and read with Turnout's Kafka identity"
        return _refused(text, "grant it Describe, Read and Write on the topic")
    if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        text = "Turnout's Kafka identity may not write with an idempotent producer"
        return _refused(text, "grant it IdempotentWrite on the cluster, which Kafka before 3.0 asks for")
    if code in _WITHOUT:
        return _refused(f"the broker has no transactions ({words})", f"use Kafka 0.11 or newer, {at_least_once}")
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        hint = (
            "raise transaction.max.timeout.ms of the brokers, or lower transaction.timeout.ms in librdkafka_properties"
        )
        return _refused("the brokers do not allow transactions that take so long", hint)
    if code in _TOO_LARGE:
        hint = "raise max.message.bytes of the topic, and message.max.bytes in kafka.librdkafka_properties"
        return _refused(f"a record is too large for topic {topic!r} ({words})", hint)
    if code in _FENCED:
        text = f"another process writes topic {topic!r} as this process does ({words})"
        return TurnoutError(
            "sink_fenced", text, "stop the other Turnout, or give one of them another topic", status=503
        )
    cause = cause_of(kafka, words, "check kafka.bootstrap_servers, kafka.auth and that the broker runs")
    return TurnoutError("kafka_unreachable", f"Kafka did not accept the records ({cause.text})", cause.hint)


def _refused(message: str, hint: str) -> TurnoutError:
    return TurnoutError("sink_refused", message, hint, status=422)
