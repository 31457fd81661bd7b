"""Why a sink does not write, in words for people, with what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError, first_line
from turnout.kafka.clients import MISSING, describe
from turnout.kafka.diagnosis import cause_of
from turnout.sink.topic_channel import sink_id
from turnout.store.database import is_store_failure, store_failed

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_WITHOUT = (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


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
        compact = " --config cleanup.policy=compact" if writer == sink_id(topic) else ""
        create = f"kafka-topics.sh --create --topic {topic}{compact}"
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
