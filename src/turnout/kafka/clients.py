"""Clients of librdkafka: their properties, how they are made, and how their errors are worded."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.security import librdkafka_properties

AT_END, AT_LOW = -1, -2
"""ListOffsets takes these in the place of a timestamp."""
MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

SILENT = logging.getLogger(f"{__name__}.silent")
"""For clients whose messages come as errors too, or help nobody."""
SILENT.propagate = False
SILENT.setLevel(logging.CRITICAL + 1)

_T = TypeVar("_T")


def client_properties(kafka: KafkaSettings, role: str) -> dict[str, Any]:
    """The properties of any client; `role` is for the broker's logs."""
    return {
        "client.id": f"turnout-{role}",
        # Where a broker refuses a certificate, the client believes that it was connected, and begins with this anew:
        # by default, each of them would ask for ten handshakes a second.
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 1000,
        **librdkafka_properties(kafka),
        # Nobody asked Turnout for a topic. A producer's question about one would create it at many brokers.
        "allow.auto.create.topics": False,
        "log_level": 0,  # the client writes nothing to stderr: what matters comes as an error
    }


def consumer_properties(kafka: KafkaSettings, role: str) -> dict[str, Any]:
    """The properties of a small, prompt consumer that joins no group."""
    return {
        **client_properties(kafka, role),
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
        **consumer_properties(kafka, "bulk"),
        **librdkafka_properties(kafka, anywhere=anywhere),
        # Where retention took the start of a range, it is read from the first record that is left.
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4 << 20,
        # What is fetched beyond the end of a range is fetched for nothing.
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 32 << 10,
    }


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


def is_missing(error: Exception) -> bool:
    """Whether Kafka says that there is no such topic or partition."""
    return isinstance(error, KafkaException) and error.args[0].code() in MISSING


def describe(error: KafkaError) -> str:
    """The client's words, without its timings."""
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", error.str()).strip().rstrip(".") or error.name()
