"""Clients of librdkafka: made, made anew when files of `auth` have changed, and asked about topics in one way.

Also their properties, and how their errors are worded. Every other module takes its clients from here.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._topic import TopicDescription as TopicDescription
from confluent_kafka.cimpl import NewTopic

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.security import files_of, librdkafka_properties

Partition = tuple[str, int]
"""A topic and a number."""
Header = tuple[str, str | bytes | None]

AT_END, AT_LOW = -1, -2
"""ListOffsets takes these in the place of a timestamp."""
MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
NO_LEADER_YET = (
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE),
    *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
)
"""A leader is being chosen, or a broker does not know it yet: asking again helps.

Errors of single partitions do not have the client's mark for that (`retriable`).
"""

SILENT = logging.getLogger(f"{__name__}.silent")
"""For clients whose messages come as errors too, or help nobody."""
SILENT.propagate = False
SILENT.setLevel(logging.CRITICAL + 1)

_LATE_SECONDS = 0.5
"""How much later than it was asked to a client may answer."""
_FLUSH_SECONDS = 0.005
_BROKERS_CHOICE = -1

C = TypeVar("C")
K = TypeVar("K")
T = TypeVar("T")


def client_properties(kafka: KafkaSettings, role: str, *, anywhere: bool = False) -> dict[str, Any]:
    """The properties of any client; `role` is for the broker's logs.

    For a client on another machine (`anywhere`) the files of `auth` are read here.
    """
    return {
        "client.id": f"turnout-{role}",
        # Where a broker refuses a certificate, the client believes that it was connected, and begins with this anew:
        # by default, each of them would ask for ten handshakes a second.
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 1000,
        **librdkafka_properties(kafka, anywhere=anywhere),
        # Nobody asked Turnout for a topic. A producer's question about one would create it at many brokers.
        "allow.auto.create.topics": False,
        "log_level": 0,  # the client writes nothing to stderr: what matters comes as an error
    }


def consumer_properties(kafka: KafkaSettings, role: str, *, anywhere: bool = False) -> dict[str, Any]:
    """The properties of a small, prompt consumer that joins no group."""
    return {
        **client_properties(kafka, role, anywhere=anywhere),
        # librdkafka wants the name of a group. It is not joined: partitions are only ever assigned.
        "group.id": f"turnout-{role}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 20,
        # Little at a time: a few kilobytes can be a hundred megabytes when they are unpacked. A batch comes whole.
        "fetch.message.max.bytes": 8 << 10,
    }


def bulk_properties(kafka: KafkaSettings, *, anywhere: bool) -> dict[str, Any]:
    """The properties of a consumer that reads ranges of offsets as fast as it can, in a task of Spark.

    For tasks on other machines (`anywhere`) the files of `auth` are read here.
    """
    return {
        **consumer_properties(kafka, "bulk", anywhere=anywhere),
        **librdkafka_properties(kafka, anywhere=anywhere),
        # Where retention took the start of a range, it is read from the first record that is left.
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4 << 20,
        # What is fetched beyond the end of a range is fetched for nothing.
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 32 << 10,
    }


def set_up(client: Callable[[dict[str, Any]], C], properties: Mapping[str, Any]) -> C:
    """A client of librdkafka; what it does not accept (a file of certificates, say) is the configuration's fault."""
    try:
        return client(dict(properties))
    except KafkaException as exception:
        raise TurnoutError(
            code="bad_config",
            message=f"Kafka at {properties['bootstrap.servers']}: the client refused its settings "
            f"({describe(exception.args[0])})",
            hint="check kafka.auth, the files that it names, and kafka.properties",
        ) from None


def describe(error: KafkaError) -> str:
    """The client's words, without its timings."""
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", error.str()).strip().rstrip(".") or error.name()


class Renewed(Generic[C]):
    """A client that can be made anew when files of `auth` have changed: a client keeps what it read first."""

    def __init__(self, kafka: KafkaSettings, make: Callable[[], C]) -> None:
        self._kafka = kafka
        self._make = make
        self._files = files_of(kafka)
        self.client = make()

    @property
    def outdated(self) -> bool:
        """Whether files that it was made with have changed, such as a renewed certificate."""
        return files_of(self._kafka) != self._files

    def renew(self) -> None:
        """Make another client. TurnoutError where its settings are refused: then the old one stays."""
        files, made = files_of(self._kafka), self._make()
        old, self.client, self._files = self.client, made, files
        if isinstance(old, Consumer):
            old.close()


def renewed_consumer(kafka: KafkaSettings, role: str, **properties: Any) -> Renewed[Consumer]:
    return Renewed(kafka, lambda: set_up(Consumer, {**consumer_properties(kafka, role), **properties}))


def read_offsets(
    consumer: Consumer, times: Mapping[Partition, int], timeout_seconds: float
) -> tuple[dict[Partition, int], dict[Partition, KafkaError]]:
    """For each partition the first offset at or after a time, -1 without any; and what Kafka refused. One question."""
    asked = [TopicPartition(*partition, moment) for partition, moment in sorted(times.items())]
    answer = consumer.offsets_for_times(asked, timeout=timeout_seconds) if asked else []
    offsets = {(part.topic, part.partition): part.offset for part in answer if part.error is None}
    return offsets, {(part.topic, part.partition): part.error for part in answer if part.error is not None}


class TopicAdmin(Renewed[AdminClient]):
    """Asks brokers about topics, for one thread. KafkaException where they refuse, or do not answer in time."""

    def __init__(self, kafka: KafkaSettings, role: str, timeout_seconds: float, **properties: Any) -> None:
        self._timeout_seconds = timeout_seconds
        super().__init__(
            kafka, lambda: set_up(AdminClient, {**client_properties(kafka, role), "logger": SILENT, **properties})
        )

    def describe(self, topic: str, timeout_seconds: float | None = None, *, rights: bool = False) -> TopicDescription:
        """Identity and partitions of a topic, and with `rights` what Turnout may do with it."""
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        asked = self._renewed.describe_topics(
            TopicCollection([topic]), include_authorized_operations=rights, request_timeout=timeout
        )
        description: TopicDescription = _answers(asked, timeout)[topic]
        return description

    def committed_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset after the last committed record of each partition."""
        wanted = {TopicPartition(topic, partition): OffsetSpec.for_timestamp(AT_END) for partition in partitions}
        asked = self._renewed.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout_seconds
        )
        return {part.partition: end.offset for part, end in _answers(asked, self._timeout_seconds).items()}

    def cleanup_policy(self, topic: str) -> str | None:
        """How Kafka removes old records of a topic; None where it does not say."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            asked = self._renewed.describe_configs([resource], request_timeout=self._timeout_seconds)
            return str(_answers(asked, self._timeout_seconds)[resource]["cleanup.policy"].value)
        # A right that Turnout has no other need of (DescribeConfigs), or a broker that does not know the setting.
        except (KafkaException, KeyError, TypeError):
            return None

    def create(
        self, topic: str, partitions: int, config: Mapping[str, str] = {}, replicas: int = _BROKERS_CHOICE
    ) -> None:
        """Create a topic and return when every partition has a leader, so that it can be used at once."""
        until = time.monotonic() + self._timeout_seconds
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config))
        asked = self._renewed.create_topics([new], request_timeout=self._timeout_seconds)
        _answers(asked, self._timeout_seconds)
        while True:
            known = self.client.list_topics(topic, timeout=self._timeout_seconds).topics[topic].partitions
            if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
                return
            if time.monotonic() >= until:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            time.sleep(0.05)

    @property
    def _renewed(self) -> AdminClient:
        """The client, made anew where files of `auth` have changed."""
        if self.outdated:
            with contextlib.suppress(TurnoutError):  # files that are being written: the old client goes on until then
                self.renew()
        return self.client


def _answers(asked: Mapping[K, Future[T]], timeout_seconds: float) -> dict[K, T]:
    try:
        return {key: future.result(timeout_seconds + _LATE_SECONDS) for key, future in asked.items()}
    except TimeoutError:  # the client itself is late
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def is_compacted(kafka: KafkaSettings, topic: str, timeout_seconds: float) -> bool | None:
    """Whether Kafka keeps only the newest record of each key; None where it does not say within the time."""
    policy = TopicAdmin(kafka, "settings", timeout_seconds).cleanup_policy(topic)
    return None if policy is None else "compact" in policy


class TopicProducer(Renewed[Producer]):
    """Writes records to one topic, each once. Raises KafkaException; `delivered` gets the outcome of each record.

    `properties` are asked for each client that is made.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        properties: Callable[[], dict[str, Any]],
        delivered: Callable[[KafkaError | None], None],
    ) -> None:
        self._topic = topic
        self._delivered = delivered
        # A fatal error is logged whatever the level, and comes as an exception too.
        fixed = {"enable.idempotence": True, "on_delivery": self._on_delivery, "logger": SILENT}
        super().__init__(kafka, lambda: set_up(Producer, {**properties(), **fixed}))

    def produce(self, key: str | bytes | None, value: str | bytes | None, headers: list[Header] | None = None) -> None:
        self.client.produce(self._topic, value, key, headers=headers or [])

    def flush(self, timeout_seconds: float, check: Callable[[], object] = lambda: None) -> bool:
        """Wait until all records are delivered or failed; False when some are still waiting.

        `check` is called now and then, and may raise. Not by the client's own `flush`: it waits by the system's clock,
        and for an hour more when that is set back.
        """
        deadline = time.monotonic() + timeout_seconds
        while len(self.client):
            if time.monotonic() >= deadline:
                return False
            self.client.poll(0)  # calls _on_delivery
            check()
            time.sleep(_FLUSH_SECONDS)
        return True

    def close(self) -> None:
        """Free the client, which would be collected late: its callback refers to this object."""
        del self.client

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        # Turnout itself dropped what was purged, or a transaction that failed; its commit then says why.
        if error is None or error.code() != KafkaError._PURGE_QUEUE:
            self._delivered(error)
