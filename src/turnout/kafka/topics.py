"""What Kafka's topics hold: their names, the offsets a build starts at and aims for, and samples of their records.

It only looks: nothing is created, committed or written, and no consumer group is joined. Every question is
answered within `timeout_seconds`, or ends in a TurnoutError that says what to do.
"""

from __future__ import annotations

import difflib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.diagnosis import NOT_BY_WAITING, cause_in, without_secrets
from turnout.kafka.probe import explain
from turnout.kafka.security import files_of, librdkafka_properties
from turnout.plan.offsets import Offsets
from turnout.plan.plan import Start

TIMEOUT_SECONDS = 10.0
# A topic that was just made has no leaders for a moment; one that stays so long without them has lost a broker.
LEADER_SECONDS = 3.0
GROUP_SECONDS = 3.0
NAMES_SHOWN = 8

_T = TypeVar("_T")
_Place = tuple[str, int]
# ListOffsets takes these in the place of a timestamp.
_AT_END, _AT_LOW = -1, -2

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
# The client goes on trying after these, and another try in the same question cannot help.
_CREDENTIALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)


class Topics:
    """Answers about one cluster, for any thread: one question at a time."""

    def __init__(self, kafka: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._kafka = kafka
        self._address = kafka.bootstrap_servers
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._closed = False
        self._cause: KafkaError | None = None
        self._group_refused = False
        self._files = files_of(kafka)
        self._consumer = self._made()

    def _made(self) -> Consumer:
        properties = {
            **consumer_properties(self._kafka, "topics"),
            "error_cb": self._note,
        }
        return set_up(Consumer, properties)

    def names(self) -> set[str]:
        """The topics that this client may see."""
        with self._lock:
            return self._names(self._deadline())

    def start_offsets(self, topics: Iterable[str], start: Start | Mapping[str, Start]) -> Offsets:
        """Where reading starts, in each partition: the first record that `start` wants, or the end."""
        wanted = list(dict.fromkeys(topics))
        starts = {topic: start if isinstance(start, Start) else start[topic] for topic in wanted}
        with self._lock:
            deadline = self._deadline()
            places = self._places(wanted, deadline)
            # The ends come first: a record that arrives between the two questions is then read, not skipped.
            ends = self._at(dict.fromkeys(places, _AT_END), deadline)
            times = {place: _time(starts[place[0]]) for place in places if starts[place[0]].kind != "latest"}
            found = self._at(times, deadline)
        return Offsets(ends | {place: offset for place, offset in found.items() if offset >= 0})

    def end_offsets(self, topics: Iterable[str]) -> Offsets:
        """The offset that the next record of each partition will get."""
        return self.start_offsets(topics, Start("latest"))

    def low_watermark(self, topic: str, partition: int) -> int | None:
        """The offset of the oldest record that is still there (the end, without any); None without the partition."""
        with self._lock:
            deadline = self._deadline()
            try:
                if (topic, partition) not in self._places([topic], deadline):
                    return None
            except TurnoutError as error:
                if error.code == "unknown_topic":
                    return None
                raise
            return self._at({(topic, partition): _AT_LOW}, deadline)[topic, partition]

    def sample(self, topic: str, count: int) -> list[bytes | None]:
        """The values of the newest records of all partitions, up to `count`, oldest of them first.

        Offsets without a record (compaction, transactions) make it look further back. What was read by the
        end of the time is the answer then.
        """
        with self._lock:
            deadline = self._deadline()
            places = self._places([topic], deadline)
            low = self._at(dict.fromkeys(places, _AT_LOW), deadline)
            end = self._at(dict.fromkeys(places, _AT_END), deadline)
            messages = self._newest(low, end, count, deadline) if count > 0 else []
        return [message.value() for message in messages]

    def group_refused(self, topic: str) -> str | None:
        """The client's consumer group, where it may not be used; asked for here, and needed nowhere."""
        deadline = time.monotonic() + GROUP_SECONDS
        with self._lock:
            self._deadline()
            while not self._group_refused and time.monotonic() < deadline:
                try:
                    self._consumer.committed([TopicPartition(topic, 0)], timeout=0.5)
                except KafkaException:
                    self._poll(0.1)
                else:
                    return None
        return _group("topics") if self._group_refused else None

    def close(self) -> None:
        """End a question that is being asked, and the connections. May be called twice."""
        self._closed = True
        # A question looks at `_closed` when its present try ends; one that still hangs keeps its client.
        if self._lock.acquire(timeout=2):
            try:
                self._consumer.close()
            except RuntimeError:
                pass  # closed before
            finally:
                self._lock.release()

    def _deadline(self) -> float:
        if not self._closed:
            if (files := files_of(self._kafka)) != self._files:  # a client keeps what it read first
                old, self._consumer = self._consumer, self._made()
                self._files = files
                old.close()
            self._poll(0)  # drops what the connections reported since the last question
        self._cause = None
        return time.monotonic() + self._timeout_seconds

    def _names(self, deadline: float) -> set[str]:
        found = self._ask(lambda timeout: self._consumer.list_topics(timeout=timeout), deadline)
        return set(found.topics)

    def _places(self, topics: Sequence[str], deadline: float) -> list[_Place]:
        """All partitions of the topics; each has a leader."""
        return [(topic, number) for topic in topics for number in self._partitions(topic, deadline)]

    def _partitions(self, topic: str, deadline: float) -> list[int]:
        patience = min(deadline, time.monotonic() + LEADER_SECONDS)
        while True:
            found = self._ask(lambda timeout: self._consumer.list_topics(topic, timeout=timeout), deadline)
            metadata = found.topics[topic]
            if metadata.error is not None and not metadata.error.retriable():
                raise self._fault(topic, metadata.error, deadline)
            if metadata.error is not None and metadata.error.code() in _MISSING:
                raise self._unknown(topic, deadline)
            leaderless = sorted(number for number, part in metadata.partitions.items() if part.leader < 0)
            if metadata.partitions and not leaderless:
                return sorted(metadata.partitions)
            if time.monotonic() >= patience:
                raise self._without_leader(topic, leaderless)
            time.sleep(0.05)

    def _at(self, times: Mapping[_Place, int], deadline: float) -> dict[_Place, int]:
        """For each partition the first offset at or after a time, -1 without any; all in one question."""
        asked = [TopicPartition(topic, number, moment) for (topic, number), moment in times.items()]
        if not asked:
            return {}
        while True:
            answer = self._ask(lambda timeout: self._consumer.offsets_for_times(asked, timeout=timeout), deadline)
            failed = [(part.topic, part.error) for part in answer if part.error is not None]
            if not failed:
                return {(part.topic, part.partition): part.offset for part in answer}
            topic, error = failed[0]
            # A leader that just moved answers with a retriable error.
            if not error.retriable() or time.monotonic() >= deadline:
                raise self._fault(topic, error, deadline)
            time.sleep(0.05)

    def _newest(
        self, low: Mapping[_Place, int], end: Mapping[_Place, int], count: int, deadline: float
    ) -> list[Message]:
        window = count
        while True:
            begin = {place: max(low[place], end[place] - window) for place in end}
            messages = self._read(begin, end, count, deadline)
            if len(messages) >= count or begin == low or time.monotonic() >= deadline:
                break
            window *= 10
        messages.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
        return messages[-count:]

    def _read(
        self, begin: Mapping[_Place, int], end: Mapping[_Place, int], keep: int, deadline: float
    ) -> list[Message]:
        """The newest `keep` records of each partition in the range, or of as much of it as time allows."""
        kept: dict[_Place, deque[Message]] = {place: deque(maxlen=keep) for place in end if begin[place] < end[place]}
        left = set(kept)
        self._consumer.assign([TopicPartition(*place, begin[place]) for place in kept])
        try:
            while left and time.monotonic() < deadline and not self._closed:
                for message in self._next_messages():
                    place = (message.topic() or "", message.partition() or 0)
                    if self._ends(message, end.get(place, 0), deadline):
                        left.discard(place)
                    if message.error() is None and place in kept and (message.offset() or 0) < end[place]:
                        kept[place].append(message)
        finally:
            self._consumer.unassign()
        found = [message for messages in kept.values() for message in messages]
        if left and not found:
            raise self._unreachable("no record came in time")
        return found

    def _next_messages(self) -> list[Message]:
        # `consume` waits until its batch is full; `poll` returns with the first record.
        first = self._poll(0.1)
        return [] if first is None else [first, *self._consumer.consume(1000, timeout=0)]

    def _poll(self, timeout: float) -> Message | None:
        message = self._consumer.poll(timeout)
        error = message.error() if message is not None else None
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._group_refused = True  # the client tells it once
        return message

    def _ends(self, message: Message, end: int, deadline: float) -> bool:
        """Whether nothing of its partition is left to read; raises where reading is refused."""
        error = message.error()
        if error is None:
            return (message.offset() or 0) + 1 >= end
        if error.code() in (*_REFUSED, *_MISSING):
            raise self._fault(message.topic() or "", error, deadline)
        # Others are tried again by the client. A right to the group is not needed, so its lack is no fault.
        # Out of range: retention took what was to be read.
        return error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)

    def _ask(self, question: Callable[[float], _T], deadline: float) -> _T:
        """The answer; tries grow from half a second, so that `close` and refused credentials end it soon."""
        step = 0.5
        while True:
            if self._closed:
                raise TurnoutError(code="closed", message="Turnout is stopping", status=503)
            left = deadline - time.monotonic()
            try:
                return question(max(0.05, min(step, left)))
            except KafkaException as exception:
                error = exception.args[0]
            self._poll(0)  # calls _note with what the connections report
            if self._cause is not None and self._cause.code() in _CREDENTIALS:
                raise self._no_login(self._cause)
            if self._cause is not None and cause_in(describe(self._cause)) in NOT_BY_WAITING:
                raise self._unreachable(describe(self._cause), within="")
            if time.monotonic() >= deadline:
                raise self._unreachable(describe(self._cause or error))
            step = min(step * 2, 4)

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why, and refused credentials matter most.
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._cause is not None:
            return
        if self._cause is None or self._cause.code() not in _CREDENTIALS:
            self._cause = error

    def _fault(self, topic: str, error: KafkaError, deadline: float) -> TurnoutError:
        if error.code() in _MISSING:
            return self._unknown(topic, deadline)
        if error.code() in _REFUSED:
            return TurnoutError(
                code="not_authorized",
                message=f"topic {topic!r} may not be read with Turnout's Kafka identity ({error.str()})",
                hint="grant it Describe and Read on the topic, or name another topic",
                status=422,
            )
        return self._unreachable(f"topic {topic!r}: {describe(error)}")

    def _unknown(self, topic: str, deadline: float) -> TurnoutError:
        try:
            known = self._names(deadline)
        except TurnoutError:
            known = set()
        return unknown_topic(topic, known)

    def _without_leader(self, topic: str, partitions: Sequence[int]) -> TurnoutError:
        which = f"partition {', '.join(map(str, partitions))} of topic {topic!r}" if partitions else f"topic {topic!r}"
        return TurnoutError(
            code="kafka_unreachable",
            message=f"{which} has no leader on Kafka at {self._address}",
            hint="its broker is down: start it again, or name another topic",
            status=503,
        )

    def _unreachable(self, why: str, within: str | None = None) -> TurnoutError:
        within = f" within {self._timeout_seconds:g} s" if within is None else within
        cause = explain(self._kafka, why)
        text = cause.text if cause else without_secrets(why, self._kafka)
        return TurnoutError(
            code="kafka_unreachable",
            message=f"Kafka at {self._address} cannot be reached{within} ({text})",
            hint=cause.hint if cause else "check kafka.bootstrap_servers, kafka.auth and that the broker runs",
            status=503,
        )

    def _no_login(self, error: KafkaError) -> TurnoutError:
        cause = explain(self._kafka, describe(error))
        text = cause.text if cause else without_secrets(describe(error), self._kafka)
        return TurnoutError(
            code="not_authorized",
            message=f"Kafka at {self._address} refused Turnout's credentials ({text})",
            hint=cause.hint if cause else "check kafka.auth",
            status=422,
        )


def consumer_properties(kafka: KafkaSettings, role: str) -> dict[str, Any]:
    """The properties of a small, prompt consumer that joins no group; `role` is for the broker's logs."""
    return {
        "client.id": f"turnout-{role}",
        "reconnect.backoff.max.ms": 1000,
        **librdkafka_properties(kafka),
        # librdkafka wants the name of a group. It is not joined: partitions are only ever assigned.
        "group.id": _group(role),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 20,
        "log_level": 0,  # stderr is not for the client: what matters comes as an error
    }


def bulk_properties(kafka: KafkaSettings, *, anywhere: bool) -> dict[str, Any]:
    """The properties of a consumer that reads ranges of offsets as fast as it can, in a task of Spark.

    For tasks on other machines (`anywhere`) the files of `auth` are read here.
    """
    return {
        **consumer_properties(kafka, "bulk"),
        **librdkafka_properties(kafka, anywhere=anywhere),
        # Where retention took the start of a range, it is read from the first record that is left.
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4 << 20,
        # What is fetched beyond the end of a range is fetched for nothing.
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 32 << 10,
    }


def _group(role: str) -> str:
    return f"turnout-{role}"


def set_up(client: Callable[[dict[str, Any]], _T], properties: Mapping[str, Any]) -> _T:
    """A client of librdkafka; what it does not accept (a file of certificates, say) is the configuration's fault."""
    try:
        return client(dict(properties))
    except KafkaException as exception:
        raise TurnoutError(
            code="bad_config",
            message=f"Kafka at {properties['bootstrap.servers']}: the client refused its settings "
            f"({describe(exception.args[0])})",
            hint="check kafka.auth, the files that it names, and kafka.properties",
            status=500,
        ) from None


def unknown_topic(topic: str, known: Iterable[str]) -> TurnoutError:
    """The error for a topic that is not there; names that look like it come first in its hint."""
    others = sorted(name for name in known if not name.startswith("__"))
    near = difflib.get_close_matches(topic, others, n=3)
    shown = (near + [name for name in others if name not in near])[:NAMES_SHOWN]
    more = f", and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
    has = f" (has: {', '.join(shown)}{more})" if shown else ""
    return TurnoutError(
        code="unknown_topic",
        message=f"topic {topic!r} does not exist",
        hint=f"create it or name another{has}",
        status=422,
    )


def describe(error: KafkaError) -> str:
    """The client's words, without its timings."""
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", error.str()).strip().rstrip(".") or error.name()


def _time(start: Start) -> int:
    return _AT_LOW if start.timestamp_ms is None else start.timestamp_ms
