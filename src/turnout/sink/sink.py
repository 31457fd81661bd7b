"""One sink: a thread that brings a topic to what a table shows, again and again.

What it writes is decided in `waiting.py`, from one moment of the store. It never makes a batch, a swap or another sink
wait; where it fails it says why, and begins again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
from confluent_kafka import KafkaException

from turnout.config import KafkaSettings, SinkSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import is_missing
from turnout.plan.retries import growing_pause
from turnout.sink.failures import failure, replaced
from turnout.sink.status import SinkState, SinkStatus
from turnout.sink.topic_reader import FoundTopic, TopicReader, policy_complaint
from turnout.sink.topic_state import TopicState, Written, moment
from turnout.sink.topic_writer import CALL_SECONDS, Header, Record, TopicWriter
from turnout.sink.values import Values
from turnout.sink.waiting import ShownTable, is_shown, make_records, shown_table
from turnout.store.database import Database
from turnout.store.outgoing import SinkPosition

log = logging.getLogger("turnout")

Say = Callable[[str, str], None]

PAUSES_SECONDS = (0.5, 15.0)
IDLE_SECONDS = 1.0
"""How long a sink rests without news; it then looks whether its topic is still the same one."""
NOTE_SECONDS = 60.0
"""How often the end of the topic is noted: a start reads the topic from there."""
_FETCHED_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all sinks work with."""

    database: Database
    kafka: KafkaSettings
    values: Callable[[SinkSettings], Values]
    say: Say


class Sink:
    """Writes one table to one topic. Any thread may read its properties."""

    def __init__(self, name: str, settings: SinkSettings, around: Surroundings) -> None:
        self.name = name
        self.settings = settings
        self.written = Written()
        self.error: TurnoutError | None = None
        self.records = 0
        """How many it has written since the process started."""
        self.last_written: datetime | None = None
        self.ready = False
        self._around = around
        self._state = TopicState(around.database, name, f"{settings.table} as {settings.format}")
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._reader = TopicReader(around.kafka, settings.topic, self._stopped.is_set)
        self._writer: TopicWriter | None = None
        self._topic: FoundTopic | None = None
        self._looked_at = 0.0
        self._values: Values | None = None
        self._noted_at = 0.0
        self._policy_seen = False
        self._failures = 0
        self._position()
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
        self._around.database.sinks.remove(self.name)

    def status(self) -> SinkStatus:
        """What is known without asking anybody."""
        state = SinkState.FAILING if self.error else SinkState.WRITING if self.ready else SinkState.STARTING
        return SinkStatus(self.name, self.settings, state, self.error, self.written, self.records, self.last_written)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._step()
                self._good()
            except Exception as error:  # whatever happens, the sink tries again
                self._bad(error)
                continue
            self._wake.wait(IDLE_SECONDS)
        self._drop_writer()

    def _step(self) -> None:
        if self._writer is not None and self._writer.outdated:
            self._drop_writer()
        if self._writer is None:
            self._prepare()
        elif time.monotonic() - self._looked_at >= IDLE_SECONDS:
            self._look_in_passing()
        while not self._stopped.is_set() and self._write():
            self._good()

    def _prepare(self) -> None:
        """End what was under way, and learn what the topic holds."""
        settings, around = self.settings, self._around
        self._values = around.values(settings)
        found = self._reader.find()
        self._warn_of_policy()
        writer = TopicWriter(around.kafka, settings.topic, settings.delivery, self._stopped.is_set)
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
        self._looked_at = time.monotonic()
        self._position()
        self.ready = True

    def _look(self) -> None:
        """Make sure that the topic is the one whose records are known: a producer writes to any of that name."""
        assert self._topic is not None
        if self._reader.find(CALL_SECONDS).identity != self._topic.identity:
            raise replaced(self.settings)
        self._looked_at = time.monotonic()

    def _look_in_passing(self) -> None:
        """Notice a topic that went; an outage of Kafka is told by the next write."""
        try:
            self._look()
        except (KafkaException, TimeoutError) as error:
            if is_missing(error):
                raise

    def _warn_of_policy(self) -> None:
        """A topic that is not compacted keeps every change, and loses rows that do not change for long."""
        if self._policy_seen:
            return
        self._policy_seen = True
        if complaint := policy_complaint(self.settings.topic, self._reader.cleanup_policy()):
            self._around.say("WARNING", f"sink {self.name}: {'; '.join(complaint)}")

    def _write(self) -> bool:
        """Write what waits, if anything does."""
        with self._around.database.cursor() as cursor:
            with moment(cursor):
                if is_shown(cursor, self.settings.table, self.written):
                    return False
                shown = shown_table(cursor, self.settings.table)
                if shown is None or shown.written == self.written:
                    return False
                form = self.settings.format.value
                count = make_records(cursor, shown, self.written, self._state.relation, form)
            if count:
                self._send(cursor, shown, count)
            if self._stopped.is_set():  # another thread may follow; it learns from the topic what was written
                return False
            self._state.written(cursor, shown.written, self._end())
        self.written = shown.written
        self._position()
        return True

    def _send(self, cursor: duckdb.DuckDBPyConnection, shown: ShownTable, count: int) -> None:
        assert self._writer is not None
        swap = shown.generation != self.written.generation
        self._writer.write(self._made_records(cursor, shown, count, swap=swap), before_commit=self._look)
        self.records += count
        self.last_written = datetime.now(UTC)

    def _made_records(
        self, cursor: duckdb.DuckDBPyConnection, shown: ShownTable, count: int, *, swap: bool
    ) -> Iterator[Record]:
        assert self._values is not None
        plain: list[Header] = [
            ("turnout.generation", str(shown.generation).encode()),
            ("turnout.version", str(shown.version).encode()),
            ("turnout.offsets", shown.offsets.encode()),
        ]
        encode = self._values.encoder(shown)
        number = 0
        fingerprint = "CAST(fingerprint AS VARCHAR)" if self._values.needs_fingerprint else "NULL"
        rows = cursor.execute(f"SELECT record, value, {fingerprint} FROM _records")
        while chunk := rows.fetchmany(_FETCHED_ROWS):
            for key, text, fingerprint in chunk:
                number += 1
                headers = _swapped(plain, number, count) if swap and number in (1, count) else plain
                value, more = encode(text, fingerprint)
                yield Record(key, value, [*headers, *more] if more else headers)

    def _end(self) -> dict[int, int] | None:
        """Where the topic ends, now and then."""
        now = time.monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return None
        self._noted_at = now
        return self._reader.ends(self._topic.partitions if self._topic else ())

    def _position(self) -> None:
        settings, written = self.settings, self.written
        position = SinkPosition(settings.table, settings.max_waiting_rows, written.generation, written.version)
        self._around.database.sinks.put(self.name, position)

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _good(self) -> None:
        if self.error is not None:
            self._around.say("INFO", f"sink {self.name} writes to topic {self.settings.topic!r} again")
        self.error, self._failures = None, 0

    def _bad(self, error: Exception) -> None:
        self._drop_writer()
        if self._stopped.is_set():
            return
        known = failure(error, self.settings, self._around.kafka)
        if known.code == "sink_failed":
            log.exception("sink %s failed", self.name)
        if self.error is None or self.error.message != known.message:
            self._around.say("WARNING", f"sink {self.name} does not write: {known}")
        self.error = known
        self._stopped.wait(growing_pause(self._failures, *PAUSES_SECONDS))
        self._failures += 1


def _swapped(headers: list[Header], number: int, count: int) -> list[Header]:
    """The headers of the first and the last record of a swap's difference."""
    return [*headers, ("turnout.swap", b"only" if count == 1 else b"begin" if number == 1 else b"end")]
