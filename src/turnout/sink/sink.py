"""One sink: a thread that brings a topic to what a table shows, again and again, and its status.

What it writes is decided in `records.py`, from one moment of the store. It never makes a batch, a swap or another sink
wait; where it fails it says why, and begins again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaException

from turnout.config import KafkaSettings, SinkSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import Header, is_missing
from turnout.plan.position import NOTHING, Position
from turnout.sink.failures import failure, replaced
from turnout.sink.records import PublishedTable, Values, is_published, make_records, published_table
from turnout.sink.topic_reader import FoundTopic, TopicReader, policy_complaint
from turnout.sink.topic_state import RecordSet, TopicState, moment
from turnout.sink.topic_writer import CALL_SECONDS, SinkRecord, TopicWriter
from turnout.store.database import Database
from turnout.store.outgoing import SinkPosition
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

Say = Callable[[str, str], None]

PAUSES_SECONDS = (0.5, 15.0)
IDLE_SECONDS = 1.0
"""How long a sink rests without news; it then looks whether its topic is still the same one."""
NOTE_SECONDS = 60.0
"""How often the end of the topic is noted: a start reads the topic from there."""


class SinkState(StrEnum):
    STARTING = "starting"
    WRITING = "writing"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One sink at one moment."""

    name: str
    settings: SinkSettings
    state: SinkState
    error: TurnoutError | None
    written: Position
    records: int
    """How many it has written since the process started."""
    last_written: datetime | None
    waiting_versions: int | None = None
    """Changes of its table that are not in the topic yet; None if the store does not answer."""
    waiting_rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        moment = self.last_written
        return {
            "name": self.name,
            "table": self.settings.table,
            "topic": self.settings.topic,
            "format": self.settings.format.value,
            "delivery": self.settings.delivery.value,
            "state": self.state.value,
            "error": str(self.error) if self.error else None,
            "generation": self.written.generation,
            "version": self.written.version,
            "records": self.records,
            "lastWritten": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if moment else None,
            "waitingVersions": self.waiting_versions,
            "waitingRows": self.waiting_rows,
        }


@dataclass(frozen=True, slots=True)
class SinkTools:
    """What all sinks work with."""

    database: Database
    kafka: KafkaSettings
    values: Callable[[SinkSettings], Values]
    say: Say


class Sink:
    """Writes one table to one topic. Any thread may read its properties."""

    def __init__(self, name: str, settings: SinkSettings, tools: SinkTools) -> None:
        self.name = name
        self.settings = settings
        self.written = NOTHING
        self.error: TurnoutError | None = None
        self.records = 0
        """How many it has written since the process started."""
        self.last_written: datetime | None = None
        self.ready = False
        self._tools = tools
        self._state = TopicState(tools.database, name, f"{settings.table} as {settings.format}")
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._reader = TopicReader(tools.kafka, settings.topic, self._stopped.is_set)
        self._writer: TopicWriter | None = None
        self._topic: FoundTopic | None = None
        self._checked_at = 0.0
        self._values: Values | None = None
        self._noted_at = 0.0
        self._policy_seen = False
        self._failures = 0
        self._note_position()
        self._thread = threading.Thread(target=self._run, name=f"turnout-sink-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to write."""
        self._wake.set()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the thread, in a bounded time; what it had not committed is written after the next start."""
        self._stopped.set()
        self._wake.set()
        self._thread.join(timeout_seconds)
        self._tools.database.sinks.remove(self.name)

    def status(self) -> SinkStatus:
        """What is known without asking anybody."""
        state = SinkState.FAILING if self.error else SinkState.WRITING if self.ready else SinkState.STARTING
        return SinkStatus(self.name, self.settings, state, self.error, self.written, self.records, self.last_written)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._step()
                self._succeeded()
            except Exception as error:  # whatever happens, the sink tries again
                self._failed(error)
                continue
            self._wake.wait(IDLE_SECONDS)
        self._drop_writer()

    def _step(self) -> None:
        if self._writer is not None and self._writer.outdated:
            self._drop_writer()
        if self._writer is None:
            self._prepare()
        elif time.monotonic() - self._checked_at >= IDLE_SECONDS:
            self._notice_missing_topic()
        while not self._stopped.is_set() and self._write():
            self._succeeded()

    def _prepare(self) -> None:
        """End what was under way, and learn what the topic holds."""
        settings, tools = self.settings, self._tools
        self._values = tools.values(settings)
        found = self._reader.find()
        self._warn_of_policy()
        writer = TopicWriter(tools.kafka, settings.topic, settings.delivery, self._stopped.is_set)
        try:
            writer.open()
            ends = self._reader.ends(found.partitions)
            written, read = self._state.open(found.identity)
            if any(ends.get(partition, 0) < offset for partition, offset in read.items()):
                self._state.clear()  # its records are gone: it was made anew, or lost some of them
                written, read = self._state.open(found.identity)
            for records, read_to in self._reader.read(read, ends):
                self._state.fold(records, read_to)
        except BaseException:
            writer.close()
            raise
        self._writer, self._topic, self.written = writer, found, written
        self._checked_at = time.monotonic()
        self._note_position()
        self.ready = True

    def _check_topic(self) -> None:
        """Make sure that the topic is the one whose records are known: a producer writes to any of that name."""
        assert self._topic is not None
        if self._reader.find(CALL_SECONDS).identity != self._topic.identity:
            raise replaced(self.settings)
        self._checked_at = time.monotonic()

    def _notice_missing_topic(self) -> None:
        """Fail where the topic is gone; an outage of Kafka is reported by the next write."""
        try:
            self._check_topic()
        except KafkaException as error:
            if is_missing(error):
                raise

    def _warn_of_policy(self) -> None:
        """A topic that is not compacted keeps every change, and loses rows that do not change for long."""
        if self._policy_seen:
            return
        self._policy_seen = True
        if complaint := policy_complaint(self.settings.topic, self._reader.admin.cleanup_policy(self.settings.topic)):
            self._tools.say("WARNING", f"sink {self.name}: {'; '.join(complaint)}")

    def _write(self) -> bool:
        """Write what waits, if anything does."""
        with self._tools.database.cursor() as cursor:
            with moment(cursor):
                if is_published(cursor, self.settings.table, self.written):
                    return False
                table = published_table(cursor, self.settings.table)
                if table is None or table.position == self.written:
                    return False
                form = self.settings.format.value
                records = make_records(cursor, table, self.written, self._state.relation, form)
            if count := records.count:
                self._send(records, count, table)
            if self._stopped.is_set():  # another thread may follow; it learns from the topic what was written
                return False
            self._state.written(records, table.position, self._end())
        self.written = table.position
        self._note_position()
        return True

    def _send(self, records: RecordSet, count: int, table: PublishedTable) -> None:
        assert self._writer is not None
        self._writer.write(self._encoded(records, count, table), before_commit=self._check_topic)
        self.records += count
        self.last_written = datetime.now(UTC)

    def _encoded(self, records: RecordSet, count: int, table: PublishedTable) -> Iterator[SinkRecord]:
        assert self._values is not None
        plain: list[Header] = [
            ("turnout.generation", str(table.position.generation).encode()),
            ("turnout.version", str(table.position.version).encode()),
            ("turnout.offsets", table.offsets.encode()),
        ]
        is_swap = table.position.generation != self.written.generation
        encode = self._values.encoder(table)
        rows = records.rows(fingerprints=self._values.needs_fingerprint)
        for number, (key, text, fingerprint) in enumerate(rows, start=1):
            headers = _swapped(plain, number, count) if is_swap and number in (1, count) else plain
            value, more = encode(text, fingerprint)
            yield SinkRecord(key, value, [*headers, *more] if more else headers)

    def _end(self) -> dict[int, int] | None:
        """Where the topic ends, now and then."""
        now = time.monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return None
        self._noted_at = now
        return self._reader.ends(self._topic.partitions if self._topic else ())

    def _note_position(self) -> None:
        position = SinkPosition(self.settings.table, self.settings.max_waiting_rows, self.written)
        self._tools.database.sinks.put(self.name, position)

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _succeeded(self) -> None:
        if self.error is not None:
            self._tools.say("INFO", f"sink {self.name} writes to topic {self.settings.topic!r} again")
        self.error, self._failures = None, 0

    def _failed(self, error: Exception) -> None:
        self._drop_writer()
        if self._stopped.is_set():
            return
        known = failure(error, self.settings, self._tools.kafka)
        if known.code == "sink_failed":
            log.exception("sink %s failed", self.name)
        if self.error is None or self.error.message != known.message:
            self._tools.say("WARNING", f"sink {self.name} does not write: {known}")
        self.error = known
        self._stopped.wait(growing_pause(self._failures, *PAUSES_SECONDS))
        self._failures += 1


def _swapped(headers: list[Header], number: int, count: int) -> list[Header]:
    """The headers of the first and the last record of a swap's difference."""
    return [*headers, ("turnout.swap", b"only" if count == 1 else b"begin" if number == 1 else b"end")]
