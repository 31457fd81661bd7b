"""Why a sink does not write, in words for people, with what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from turnout.config import KafkaSettings, SinkSettings
from turnout.errors import TurnoutError, first_line
from turnout.kafka.clients import MISSING, describe
from turnout.kafka.diagnosis import cause_of
from turnout.sink.topic_writer import transactional_id
from turnout.store.database import is_store_failure, store_failed

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_WITHOUT = (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


def failure(error: Exception, sink: SinkSettings, kafka: KafkaSettings) -> TurnoutError:
    """The error as one that people can act on."""
    if isinstance(error, TurnoutError):
        return error
    if isinstance(error, KafkaException):
        return _of_kafka(error.args[0], sink, kafka)
    if is_store_failure(error):
        return store_failed(error)  # type: ignore[arg-type]
    return TurnoutError(
        "sink_failed", f"unexpected error: {first_line(error)}", "see the log of the process", status=503
    )


def replaced(sink: SinkSettings) -> TurnoutError:
    text = f"topic {sink.topic!r} was deleted and made anew"
    return TurnoutError("sink_topic_replaced", text, "nothing has to be done: the whole table is written to it")


def _of_kafka(error: KafkaError, sink: SinkSettings, kafka: KafkaSettings) -> TurnoutError:
    code, words = error.code(), describe(error)
    at_least_once = "or set delivery: at_least_once"
    if code in MISSING:
        create = f"kafka-topics.sh --create --topic {sink.topic} --config cleanup.policy=compact"
        return _refused(f"topic {sink.topic!r} does not exist", f"create it: {create}")
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        name = transactional_id(sink.topic)
        text = (
            f"transactions are not allowed: the transactional id {name!r} may not be used with Turnout's Kafka identity"
        )
        return _refused(text, f"grant it Describe and Write on that transactional id, {at_least_once}")
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        text = f"topic {sink.topic!r} may not be written and read with Turnout's Kafka identity"
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
        return _refused(f"a record is too large for topic {sink.topic!r} ({words})", hint)
    if code in _FENCED:
        text = f"another process writes topic {sink.topic!r} as this sink does ({words})"
        return TurnoutError(
            "sink_fenced", text, "stop the other Turnout, or give one of them another topic", status=503
        )
    cause = cause_of(kafka, words, "check kafka.bootstrap_servers, kafka.auth and that the broker runs")
    return TurnoutError("kafka_unreachable", f"Kafka did not take the records ({cause.text})", cause.hint)


def _refused(message: str, hint: str) -> TurnoutError:
    return TurnoutError("sink_refused", message, hint, status=422)
