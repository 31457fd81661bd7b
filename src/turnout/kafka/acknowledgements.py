"""Outcomes of control messages, written to the acknowledgement topic through outages of the broker."""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from turnout.config import KafkaSettings
from turnout.kafka.clients import MISSING, TopicProducer, client_properties, describe

POLL_SECONDS = 0.2
RETRY_SECONDS = 0.5
STOP_SECONDS = 2.0


class Acknowledgements:
    """Writes outcomes to a topic, as JSON under their request's id. Never raises and hardly waits.

    `warn` gets each reason for a failure once, until an outcome is delivered.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, warn: Callable[[str], None]) -> None:
        self._kafka = kafka
        self._topic = topic
        self._warn = warn
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
            self._failed(_reason(exception.args[0]))
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
                self._failed(_reason(exception.args[0]))
                self._stopping.wait(RETRY_SECONDS)

    def _delivered(self, error: KafkaError | None) -> None:
        if error is None:
            self._said = ""
        else:
            self._failed(_reason(error))

    def _failed(self, why: str) -> None:
        if why == self._said:
            return
        self._said = why
        with contextlib.suppress(Exception):
            self._warn(
                f"an outcome was not written to topic {self._topic!r} ({why}); "
                f"check that the topic exists and may be written, or remove control.ack_topic"
            )


def _reason(error: KafkaError) -> str:
    return "it does not exist" if error.code() in MISSING else describe(error)
