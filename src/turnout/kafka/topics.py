"""What Kafka's topics hold: their names, the offsets a build starts at and aims for, and samples of their records.

It only looks: nothing is created, committed or written, and no consumer group is joined. Every question is
answered within `timeout_seconds`, or ends in a TurnoutError that says what to do.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import (
    AT_END,
    AT_LOW,
    MISSING,
    NO_LEADER_YET,
    Partition,
    describe,
    read_offsets,
    renewed_consumer,
)
from turnout.kafka.diagnosis import NOT_BY_WAITING, TOPIC_DENIED, cause_in, cause_of, passes
from turnout.kafka.unpacking import NOT_UNPACKED, end_of_batch, reason
from turnout.plan.nearest import did_you_mean
from turnout.plan.offsets import Offsets
from turnout.plan.plan import Start

TIMEOUT_SECONDS = 10.0
# A topic that was just made has no leaders for a moment; one that stays so long without them has lost a broker.
LEADER_SECONDS = 3.0
NAMES_SHOWN = 8
SAMPLE_BYTES = 16 << 20
"""As much of a sample is held; of larger records there are fewer."""

MOST_SEARCHED, _FIRST_SEARCHED = 30_000, 1_000
"""As many records of a partition are searched, beginning with the newest."""

_READ_TOGETHER = 4

Place = tuple[str, int, int]
"""A topic, a partition and an offset."""
Unreadable = tuple[Partition, str]
"""Where a record is that cannot be read, and why."""

_T = TypeVar("_T")

_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
# The client tries again after these, which cannot help within one question.
_CREDENTIALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The newest records of a topic, oldest of them first, each with its key and its value; and how many there are."""

    partitions: int
    offsets: int
    """From the first record to the end; compaction and transactions leave gaps."""
    records: tuple[tuple[bytes | None, bytes | None], ...]
    unreadable: tuple[str, ...] = ()
    """Why some are not there: they cannot be unpacked, or are too large."""


class Topics:
    """Answers about one cluster, for any thread: one question at a time."""

    def __init__(
        self, kafka: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS, taken: Collection[str] = ()
    ) -> None:
        """`taken` are topics that no source may read: errors do not suggest them."""
        self._kafka = kafka
        self._taken = taken
        self._address = kafka.bootstrap_servers
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._closed = False
        self._cause: KafkaError | None = None
        self._answered = False
        self._until = 0.0
        self._renewed = renewed_consumer(kafka, "topics", error_cb=self._note)

    @property
    def _consumer(self) -> Consumer:
        return self._renewed.client

    def names(self) -> set[str]:
        """The topics that this client may see."""
        with self._question():
            return set(self._listed())

    def partitions(self, topics: Iterable[str]) -> set[Partition]:
        """The partitions of the topics, of those that are there."""
        with self._question():
            found = self._listed()
        return {(topic, number) for topic in topics if topic in found for number in found[topic].partitions}

    def start_offsets(self, topics: Iterable[str], start: Start | Mapping[str, Start]) -> Offsets:
        """Where reading starts, in each partition: the first record that `start` wants, or the end."""
        wanted = list(dict.fromkeys(topics))
        starts = {topic: start if isinstance(start, Start) else start[topic] for topic in wanted}
        with self._question():
            places = self._places(wanted)
            # The ends come first: a record that arrives between the two questions is then read, not skipped.
            ends = self._at(dict.fromkeys(places, AT_END))
            times = {place: starts[place[0]].timestamp_ms for place in places if starts[place[0]].kind != "latest"}
            found = self._at({place: AT_LOW if time is None else time for place, time in times.items()})
        return Offsets(ends | {place: offset for place, offset in found.items() if offset >= 0})

    def end_offsets(self, topics: Iterable[str]) -> Offsets:
        """The offset that the next record of each partition will get."""
        return self.start_offsets(topics, Start("latest"))

    def living_ends(self, topics: Iterable[str]) -> Offsets:
        """The ends of those topics that exist."""
        with self._question():
            return Offsets(self._at(dict.fromkeys(self._living(topics), AT_END)))

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[Partition, int]:
        """The offset after the last record of each partition, by one request."""
        with self._question():
            return self._at(dict.fromkeys(places, AT_END))

    def low_watermark(self, topic: str, partition: int) -> int | None:
        """The offset of the oldest record that is still there (the end, without any); None without the partition."""
        with self._question():
            if (topic, partition) not in self._living([topic]):
                return None
            return self._at({(topic, partition): AT_LOW})[topic, partition]

    def sample(self, topic: str, count: int) -> list[bytes | None]:
        """The values of the newest records of all partitions, up to `count`, oldest of them first."""
        return [value for _, value in self.look(topic, count).records]

    def look(self, topic: str, count: int) -> TopicSample:
        """The newest records of all partitions, up to `count`.

        Offsets without a record (compaction, transactions) make it look further back. What was read by the
        end of the time is the answer then.
        """
        with self._question():
            places = self._places([topic])
            low = self._at(dict.fromkeys(places, AT_LOW))
            end = self._at(dict.fromkeys(places, AT_END))
            messages, unreadable = self._newest(low, end, count) if count > 0 else ([], [])
        records = tuple((message.key(), message.value()) for message in messages)
        lines = tuple(f"partition {partition}: {reason}" for (_, partition), reason in unreadable)
        return TopicSample(len(places), sum(end[place] - low[place] for place in places), records, lines)

    def records(self, places: Iterable[Place], take: Callable[[Message], _T]) -> dict[Place, _T | str | None]:
        """What `take` gives of the records at these offsets.

        None where Kafka has it no more, a text why it was not read. A few partitions are read at the same time.
        """
        waiting: dict[Partition, list[int]] = {}
        found: dict[Place, _T | str | None] = dict.fromkeys(sorted(places, reverse=True))
        with self._question():
            living = self._living({topic for topic, _, _ in found})
            for topic, partition, offset in found:
                if (topic, partition) in living:
                    waiting.setdefault((topic, partition), []).append(offset)
                    found[topic, partition, offset] = "it was not read in time"
            while waiting and time.monotonic() < self._until:
                begin = {place: offsets.pop() for place, offsets in islice(waiting.items(), _READ_TOGETHER)}
                messages, unreadable, _ = self._read(begin, {place: at + 1 for place, at in begin.items()}, 1)
                if time.monotonic() < self._until:
                    found |= dict.fromkeys((*place, at) for place, at in begin.items())
                found |= {(*place, begin[place]): reason for place, reason in unreadable}
                found |= {place_of(message): take(message) for message in messages}
                waiting = {place: offsets for place, offsets in waiting.items() if offsets}
        return found

    def search_back(self, ends: Mapping[Partition, int], look: Callable[[list[Message]], bool]) -> bool:
        """Give `look` the records before these offsets, ever further back, until it has seen enough.

        Whether it was given all, down to the first: `MOST_SEARCHED` records of a partition and the time are the limits.
        """
        with self._question():
            low, window, searched = self._at(dict.fromkeys(ends, AT_LOW)), _FIRST_SEARCHED, 0
            while left := {place: end for place, end in ends.items() if end > low[place]}:
                ends = {place: max(low[place], end - window) for place, end in left.items()}
                messages, _, full = self._read(ends, left, window)
                searched, window = searched + window, 2 * window
                enough = look(messages)
                if enough or full or searched >= MOST_SEARCHED or time.monotonic() >= self._until:
                    return not full and time.monotonic() < self._until and all(ends[p] <= low[p] for p in ends)
        return True

    def close(self) -> None:
        """End a question that is being asked, and the connections. May be called twice."""
        self._closed = True
        # A question looks at `_closed` when its present try ends; one that still hangs keeps its client.
        if self._lock.acquire(timeout=2):
            try:
                with contextlib.suppress(RuntimeError):  # closed before
                    self._consumer.close()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def _question(self) -> Iterator[None]:
        """One question at a time, answered within the time."""
        with self._lock:
            if not self._closed:
                if self._renewed.outdated:
                    self._renewed.renew()
                self._consumer.poll(0)  # drops what the connections reported since the last question
            self._cause = None
            self._until = time.monotonic() + self._timeout_seconds
            yield

    def _listed(self) -> Mapping[str, Any]:
        found = self._ask(lambda timeout: self._consumer.list_topics(timeout=timeout))
        topics: Mapping[str, Any] = found.topics
        return topics

    def _places(self, topics: Sequence[str]) -> list[Partition]:
        """All partitions of the topics; each has a leader."""
        return [(topic, number) for topic in topics for number in self._partitions(topic)]

    def _living(self, topics: Iterable[str]) -> list[Partition]:
        """The partitions of those of the topics that exist."""
        found = []
        for topic in topics:
            try:
                found += self._places([topic])
            except TurnoutError as error:
                if error.code != "unknown_topic":
                    raise
        return found

    def _partitions(self, topic: str) -> list[int]:
        patience = min(self._until, time.monotonic() + LEADER_SECONDS)
        while True:
            found = self._ask(lambda timeout: self._consumer.list_topics(topic, timeout=timeout))
            metadata = found.topics[topic]
            if metadata.error is not None and metadata.error.code() not in NO_LEADER_YET:
                raise self._fault(topic, metadata.error)
            leaderless = sorted(number for number, part in metadata.partitions.items() if part.leader < 0)
            if metadata.partitions and not leaderless:
                return sorted(metadata.partitions)
            if time.monotonic() >= patience:
                which = f"partition {', '.join(map(str, leaderless))} of " if leaderless else ""
                raise TurnoutError(
                    code="kafka_unreachable",
                    message=f"{which}topic {topic!r} has no leader on Kafka at {self._address}",
                    hint="its broker is down: start it again, or name another topic",
                )
            time.sleep(0.05)

    def _at(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """For each partition the first offset at or after a time, -1 without any; all in one question."""
        while True:
            offsets, failed = self._ask(lambda timeout: read_offsets(self._consumer, times, timeout))
            if not failed:
                return offsets
            (topic, _), error = next(iter(failed.items()))
            if error.code() not in NO_LEADER_YET or time.monotonic() >= self._until:
                raise self._fault(topic, error)
            time.sleep(0.05)

    def _newest(
        self, low: Mapping[Partition, int], end: Mapping[Partition, int], count: int
    ) -> tuple[list[Message], list[Unreadable]]:
        window = count
        while True:
            begin = {place: max(low[place], end[place] - window) for place in end}
            messages, unreadable, full = self._read(begin, end, count)
            if full or len(messages) >= count or begin == low or time.monotonic() >= self._until:
                break
            window *= 10
        messages.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
        return messages[-count:], unreadable

    def _read(
        self, begin: Mapping[Partition, int], end: Mapping[Partition, int], keep: int
    ) -> tuple[list[Message], list[Unreadable], bool]:
        """The newest `keep` records of each partition in the range, or of as much of it as time allows.

        Also those that are passed over, and whether there were more bytes than are held: then the oldest are missing.
        """
        unreadable: list[Unreadable] = []
        kept: dict[Partition, deque[Message]] = {place: deque() for place in end if begin[place] < end[place]}
        left, held, full = set(kept), 0, False
        following = dict(begin)
        self._assign(following, left)
        try:
            while left and time.monotonic() < self._until and not self._closed:
                # `consume` waits until its batch is full; `poll` returns with the first record.
                first = self._consumer.poll(0.1)
                for message in [] if first is None else [first, *self._consumer.consume(1000, timeout=0)]:
                    place = (message.topic() or "", message.partition() or 0)
                    if place in left and (behind := self._behind_damaged(message, place)) is not None:
                        unreadable.append((place, reason(message.offset() or 0, behind)))
                        following[place] = behind
                        left -= {place} if behind >= end[place] else set()
                        self._assign(following, left)
                        break  # what was fetched behind it is fetched again
                    if self._ends(message, end.get(place, 0)):
                        left.discard(place)
                    if message.error() is None and place in kept and (message.offset() or 0) < end[place]:
                        following[place] = (message.offset() or 0) + 1
                        if len(message) > self._kafka.max_record_megabytes << 20:
                            size = f"has {len(message):,} bytes (kafka.max_record_megabytes)"
                            unreadable.append((place, f"the record at offset {message.offset()} {size}"))
                            continue
                        kept[place].append(message)
                        held += _size(message)
                        if len(kept[place]) > keep:
                            held -= _size(kept[place].popleft())
                        while held > SAMPLE_BYTES and len(most := max(kept.values(), key=len)) > 1:
                            held, full = held - _size(most.popleft()), True
        finally:
            self._consumer.unassign()
        found = [message for messages in kept.values() for message in messages]
        if left and not found and not unreadable:
            raise self._unreachable("no record arrived in time")
        return found, unreadable, full

    def _assign(self, following: Mapping[Partition, int], places: Iterable[Partition]) -> None:
        self._consumer.assign([TopicPartition(*place, following[place]) for place in sorted(places)])

    def _behind_damaged(self, message: Message, place: Partition) -> int | None:
        """The offset behind the batch of a message that tells that it cannot be unpacked; None of any other."""
        error = message.error()
        if error is None or error.code() not in NOT_UNPACKED:
            return None
        try:
            return end_of_batch(self._consumer, *place, message.offset() or 0)
        except KafkaException as exception:
            raise self._fault(place[0], exception.args[0]) from None

    def _ends(self, message: Message, end: int) -> bool:
        """Whether nothing of its partition is left to read; raises where reading is refused."""
        error = message.error()
        if error is None:
            return (message.offset() or 0) + 1 >= end
        if error.code() in (*_REFUSED, *MISSING):
            raise self._fault(message.topic() or "", error)
        # Others are tried again by the client. A right to the group is not needed, so its lack is no fault.
        # Out of range: retention took what was to be read.
        return error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)

    def _ask(self, question: Callable[[float], _T]) -> _T:
        """The answer; tries grow from half a second, so that `close` and refused credentials end it soon."""
        step = 0.5
        while True:
            if self._closed:
                raise TurnoutError(code="closed", message="Turnout is stopping")
            left = self._until - time.monotonic()
            try:
                answer = question(max(0.05, min(step, left)))
            except KafkaException as exception:
                error = exception.args[0]
            else:
                self._answered = True
                return answer
            self._consumer.poll(0)  # calls _note with what the connections report
            words = describe(self._cause or error)
            if self._cause is not None and self._cause.code() in _CREDENTIALS:
                cause = cause_of(self._kafka, words, "check kafka.auth")
                message = f"Kafka at {self._address} refused Turnout's credentials ({cause.text})"
                raise TurnoutError(code="not_authorized", message=message, hint=cause.hint)
            if self._cause is not None and cause_in(words) in NOT_BY_WAITING:
                raise self._unreachable(words, at_once=True)
            if time.monotonic() >= self._until:
                raise self._unreachable(words)
            step = min(step * 2, 4)

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why, and refused credentials matter most.
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._cause is not None:
            return
        # A broker that has no SASL says the same, from the first question on.
        if self._answered and passes(error.str()):
            return
        if self._cause is None or self._cause.code() not in _CREDENTIALS:
            self._cause = error

    def _fault(self, topic: str, error: KafkaError) -> TurnoutError:
        if error.code() in MISSING:
            known: Iterable[str] = ()
            with contextlib.suppress(TurnoutError):
                known = self._listed()
            return unknown_topic(topic, known, self._taken)
        if error.code() in _REFUSED:
            message = f"topic {topic!r} may not be read with Turnout's Kafka identity ({error.str()})"
            return TurnoutError(code="not_authorized", message=message, hint=TOPIC_DENIED.hint)
        return self._unreachable(f"topic {topic!r}: {describe(error)}")

    def _unreachable(self, why: str, *, at_once: bool = False) -> TurnoutError:
        within = "" if at_once else f" within {self._timeout_seconds:g} s"
        cause = cause_of(self._kafka, why, "check kafka.bootstrap_servers, kafka.auth and that the broker runs")
        message = f"Kafka at {self._address} cannot be reached{within} ({cause.text})"
        return TurnoutError(code="kafka_unreachable", message=message, hint=cause.hint)


def place_of(message: Message) -> Place:
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def unknown_topic(topic: str, known: Iterable[str], taken: Collection[str] = ()) -> TurnoutError:
    """The error for a topic that is not there: the most similar name, or the first ones.

    Kafka's own topics and those of `taken`, which no source may read, are not suggested.
    """
    others = sorted(name for name in known if not name.startswith("__") and name not in taken)
    more = f", and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
    has = f" (has: {', '.join(others[:NAMES_SHOWN])}{more})" if others else ""
    hint = did_you_mean(topic, others, f"create it or name another{has}")
    return TurnoutError(code="unknown_topic", message=f"topic {topic!r} does not exist", hint=hint)
