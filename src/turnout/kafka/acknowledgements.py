"""Outcomes of control messages, written to the acknowledgement topic through outages of the broker."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from turnout.config import KafkaSettings
from turnout.kafka.clients import MISSING, SILENT, client_properties, describe, set_up
from turnout.kafka.security import files_of

POLL_SECONDS = 0.2
RETRY_SECONDS = 0.5
FLUSH_SECONDS = 0.005
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
        self._make_producer()
        self._thread = threading.Thread(target=self._run, name="turnout-outcomes", daemon=True)
        self._thread.start()

    def _make_producer(self) -> None:
        self._files = files_of(self._kafka)
        properties = {
            **client_properties(self._kafka, "outcomes"),
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            # A topic that is made after the first outcome is found in seconds, not in five minutes.
            "topic.metadata.refresh.interval.ms": 10_000,
            "topic.metadata.propagation.max.ms": 5_000,
            "logger": SILENT,  # a fatal error is logged whatever the level, and comes as an exception too
        }
        self._producer = set_up(Producer, properties)

    def send(self, key: str | None, payload: Mapping[str, Any]) -> None:
        try:
            value = json.dumps(payload, default=str).encode()
            name = key.encode(errors="replace") if key is not None else None
            if files_of(self._kafka) != self._files:  # a renewed certificate, say
                self.flush(0.5)
                self._producer.purge()
                self._make_producer()
            try:
                self._produce(name, value)
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError._FATAL:
                    raise
                # An idempotent producer that lost its sequence is of no more use; a new one begins its own.
                self._make_producer()
                self._produce(name, value)
        except BufferError:
            self._failed("too many are waiting for Kafka")
        except KafkaException as exception:
            self._failed(_reason(exception.args[0]))
        except Exception as error:  # a swap must not fail because its outcome cannot be written
            self._failed(repr(error))

    def flush(self, timeout: float) -> bool:
        """Wait until all are delivered or failed; False when some are still waiting.

        Not by the client's own `flush`: it waits by the system's clock, and for an hour more when that is set back.
        """
        deadline = time.monotonic() + timeout
        while len(self._producer):
            if time.monotonic() >= deadline:
                return False
            self._producer.poll(0)  # calls _delivered
            time.sleep(FLUSH_SECONDS)
        return True

    def close(self) -> None:
        """Give what waits two seconds, then end. May be called twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join(1)
        if not self.flush(STOP_SECONDS):
            self._failed("Turnout stopped before Kafka took them all")
            self._producer.purge()
            self.flush(0.1)

    def _produce(self, key: bytes | None, value: bytes) -> None:
        self._producer.produce(self._topic, value, key, on_delivery=self._delivered)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(POLL_SECONDS)  # calls _delivered
            except KafkaException as exception:
                # Fatal, such as a missing right to write; the next outcome gets a new client.
                self._failed(_reason(exception.args[0]))
                self._stopping.wait(RETRY_SECONDS)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._said = ""
        elif error.code() != KafkaError._PURGE_QUEUE:
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
