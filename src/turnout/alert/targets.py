"""Where events go besides webhooks: the log, and a topic, which gets each event exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import orjson

from turnout.alert.events import AlertEvent, Events
from turnout.config import KafkaSettings
from turnout.kafka.clients import Header
from turnout.sink.failures import failure
from turnout.sink.sink import Say
from turnout.sink.topic_channel import FINGERPRINT, SinkRecord, TopicChannel, WriterSettings
from turnout.sink.topic_state import TopicState
from turnout.store.database import Database, scalar

STATES = "alert"
"""The kind of states of topics that belong to alerts."""
_MAX_LINES = 20
_LINE_CHARACTERS = 500


class Target(Protocol):
    """Takes events, all or none as far as it knows; it raises where it failed. One thread uses it."""

    def send(self, events: Sequence[AlertEvent]) -> None: ...

    def close(self) -> None: ...


class LogTarget:
    """Writes a line for each event, and of many at once only the first ones."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def send(self, events: Sequence[AlertEvent]) -> None:
        for one in events[:_MAX_LINES]:
            row = json.dumps(one.content["row"], ensure_ascii=False)[:_LINE_CHARACTERS]
            level = "INFO" if one.event == "left" else "WARNING"
            self._say(level, f"alert {one.alert}: {one.content['key']} {one.event}: {row}")
        if (more := len(events) - _MAX_LINES) > 0:
            self._say("WARNING", f"alert {events[0].alert}: {more} more events; see the table alerts")

    def close(self) -> None:
        """Nothing is open."""


def writer_id(alert: str, topic: str) -> str:
    """The transactional id of an alert: alerts can share a topic, so each has its own."""
    return f"turnout-alert-{topic}-{alert}"


class TopicTarget:
    """Writes events to a topic, each once: what the topic has already is read after a start and after a failure.

    The key of all records of an alert is the same, so they are in one partition, in order. The number of an event is in
    a header; the last one of the alert that was found in the topic is known.
    """

    def __init__(
        self, alert: str, topic: str, kafka: KafkaSettings, database: Database, stopping: Callable[[], bool]
    ) -> None:
        self._writing = WriterSettings(topic, writer_id(alert, topic))
        self._kafka = kafka
        self._database = database
        self._events = Events(database)
        self._key = json.dumps({"alert": alert})
        self._state = TopicState(database, f"{STATES}:{alert}", "events")
        self._channel = TopicChannel(kafka, self._writing, self._state, stopping)
        self._last = 0

    def send(self, events: Sequence[AlertEvent]) -> None:
        try:
            if self._channel.outdated:
                self.close()
            if not self._channel.is_open:
                self._channel.open()
                self._last = self._found()
            fresh = [one for one in events if one.number > self._last or not one.number]
            if fresh:
                self._channel.write(self._records(fresh))
                self._last = max(self._last, fresh[-1].number)
        except Exception as error:
            raise failure(error, self._writing.topic, self._writing.transactional_id, self._kafka) from error

    def close(self) -> None:
        self._channel.close()

    def _found(self) -> int:
        """The number of the last event that the topic has."""
        with self._database.read() as cursor:
            last = f"SELECT coalesce(max(fingerprint), 0) FROM {self._state.relation} WHERE record = ?"
            return self._events.number_of(scalar(cursor, last, [self._key]))

    def _records(self, events: Sequence[AlertEvent]) -> Iterator[SinkRecord]:
        for one in events:
            # A test has no number: it is not one of the events that are counted.
            headers: list[Header] = [(FINGERPRINT, str(int(one.id, 16)))] if one.number else []
            yield SinkRecord(self._key, orjson.dumps(one.to_json()), headers)
