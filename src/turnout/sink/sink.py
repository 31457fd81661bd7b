"""Sinks: a thread for each brings a topic to what a table shows, again and again; all of the configuration in force.

What a sink writes is decided in `records.py`, from one moment of the store. It never makes a batch, a swap or another
sink wait; where it fails it says why, and begins again after a pause.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import duckdb

from turnout.config import Format, KafkaSettings, RegistrySettings, SinkSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import Header
from turnout.logs import Say
from turnout.plan.answers import SinkState, SinkStatus
from turnout.plan.position import NOTHING
from turnout.plan.times import now_text
from turnout.schemas.registry import SchemaRegistry
from turnout.sink.avro_values import AvroValues
from turnout.sink.records import Encoder, PublishedTable, changed_table, json_encoder, lag, make_records
from turnout.sink.topic_channel import (
    IDLE_SECONDS,
    SinkRecord,
    TopicChannel,
    WriterSettings,
    failure,
    policy_complaint,
    sink_id,
)
from turnout.sink.topic_state import RecordSet, TopicState, forget_others
from turnout.store.database import Database, moment
from turnout.store.feed import Commit
from turnout.store.outgoing import SinkPosition
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

PAUSES_SECONDS = (0.5, 15.0)


@dataclass(frozen=True, slots=True)
class OutputTools:
    """What all sinks and alerts work with."""

    database: Database
    kafka: KafkaSettings
    say: Say


class Sink:
    """Writes one table to one topic. Any thread may read its properties."""

    def __init__(self, name: str, settings: SinkSettings, tools: OutputTools, registry: SchemaRegistry | None) -> None:
        self.name = name
        self.settings = settings
        self.written = NOTHING
        self.error: TurnoutError | None = None
        self.records = 0
        """How many it has written since the process started."""
        self.last_written: str | None = None
        self.ready = False
        self._tools = tools
        self._registry = registry
        self._state = TopicState(tools.database, name, f"{settings.table} as {settings.format}")
        self._wake = threading.Event()
        self._stopped = threading.Event()
        writing = WriterSettings(settings.topic, sink_id(settings.topic), settings.delivery)
        self._channel = TopicChannel(tools.kafka, writing, self._state, self._stopped.is_set)
        self._encoder: Encoder = json_encoder
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

    def status(self, waiting: tuple[int, int] | None) -> SinkStatus:
        """How it stands; `waiting` are versions and rows that wait, None where the store does not answer."""
        error, settings, written = self.error, self.settings, self.written
        versions, rows = waiting or (None, None)
        return SinkStatus(
            name=self.name,
            table=settings.table,
            topic=settings.topic,
            format=settings.format.value,
            delivery=settings.delivery.value,
            state=SinkState.FAILING if error else SinkState.WRITING if self.ready else SinkState.STARTING,
            error=error,
            generation=written.generation,
            version=written.version,
            records=self.records,
            last_written=self.last_written,
            waiting_versions=versions,
            waiting_rows=rows,
        )

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
        self._channel.close()

    def _step(self) -> None:
        if (written := self._channel.open()) is not None:
            self._encoder = self._made_encoder()
            self.written = written
            self._warn_of_policy()
            self._note_position()
            self.ready = True
        else:
            self._channel.notice_missing_topic()
        while not self._stopped.is_set() and self._write():
            self._succeeded()

    def _made_encoder(self) -> Encoder:
        if self.settings.format is Format.AVRO and self._registry is not None:
            return AvroValues(self._registry, self.settings.topic).encoder
        return json_encoder

    def _warn_of_policy(self) -> None:
        """A topic that is not compacted keeps every change, and loses rows that do not change for long."""
        if self._policy_seen:
            return
        self._policy_seen = True
        if complaint := policy_complaint(self.settings.topic, self._channel.cleanup_policy()):
            self._tools.say("WARNING", f"sink {self.name}: {'; '.join(complaint)}")

    def _write(self) -> bool:
        """Write what waits, if anything does."""
        with self._tools.database.cursor() as cursor:
            with moment(cursor):
                table = changed_table(cursor, self.settings.table, self.written)
                if table is None:
                    return False
                form = self.settings.format.value
                records = make_records(cursor, table, self.written, self._state.relation, form)
            if count := records.count:
                self._channel.write(self._encoded(records, count, table))
                self.records += count
                self.last_written = now_text()
            if self._stopped.is_set():  # another thread may follow; it learns from the topic what was written
                return False
            self._state.written(records, table.position, self._channel.end_to_note())
        self.written = table.position
        self._note_position()
        return True

    def _encoded(self, records: RecordSet, count: int, table: PublishedTable) -> Iterator[SinkRecord]:
        plain: list[Header] = [
            ("turnout.generation", str(table.position.generation).encode()),
            ("turnout.version", str(table.position.version).encode()),
            ("turnout.offsets", table.offsets.encode()),
        ]
        is_swap = table.position.generation != self.written.generation
        edges = {1: b"begin", count: b"only" if count == 1 else b"end"} if is_swap else {}
        encode = self._encoder(table)
        for number, (key, row, fingerprint) in enumerate(records.rows(), start=1):
            headers = [*plain, ("turnout.swap", edges[number])] if number in edges else plain
            value, more = encode(row, fingerprint)
            yield SinkRecord(key, value, [*headers, *more] if more else headers)

    def _note_position(self) -> None:
        position = SinkPosition(self.settings.table, self.settings.max_waiting_rows, self.written)
        self._tools.database.sinks.put(self.name, position)

    def _succeeded(self) -> None:
        if self.error is not None:
            self._tools.say("INFO", f"sink {self.name} writes to topic {self.settings.topic!r} again")
        self.error, self._failures = None, 0

    def _failed(self, error: Exception) -> None:
        self._channel.close()
        if self._stopped.is_set():
            return
        known = failure(error, self.settings.topic, sink_id(self.settings.topic), self._tools.kafka)
        if known.code == "sink_failed":
            log.exception("sink %s failed", self.name)
        if self.error is None or self.error.message != known.message:
            self._tools.say("WARNING", f"sink {self.name} does not write: {known}")
        self.error = known
        self._stopped.wait(growing_pause(self._failures, *PAUSES_SECONDS))
        self._failures += 1


def stop_all(stops: Collection[Callable[[float], None]], timeout_seconds: float) -> None:
    """Stop all at the same time, within one bounded time; each takes the seconds that it may wait."""
    deadline = time.monotonic() + timeout_seconds
    for stop in stops:
        stop(0.0)
    for stop in stops:
        stop(max(0.0, deadline - time.monotonic()))


class Sinks:
    """The running sinks. Any thread may ask; `change` and `stop` are for one."""

    def __init__(self, database: Database, kafka: KafkaSettings, registry: RegistrySettings | None, say: Say) -> None:
        self._database = database
        self._registry = None if registry is None else SchemaRegistry(registry)
        self._tools = OutputTools(database, kafka, say)
        self._running: Mapping[str, Sink] = {}
        database.feed.listen(self._committed)

    def change(self, settings: Mapping[str, SinkSettings]) -> None:
        """Run these sinks from now on: what is new starts, what is gone stops, what differs starts anew.

        A sink that starts writes the difference between what its topic holds and what is shown.
        """
        kept = {name: sink for name, sink in self._running.items() if settings.get(name) == sink.settings}
        stop_all([sink.stop for name, sink in self._running.items() if name not in kept], 5.0)
        with contextlib.suppress(duckdb.Error, TurnoutError):  # a store in trouble has its own words for it
            forget_others(self._database, settings.keys())
        self._running = {
            name: kept.get(name) or Sink(name, one, self._tools, self._registry) for name, one in settings.items()
        }
        for name in self._running.keys() - kept.keys():
            self._running[name].start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        self._database.feed.leave(self._committed)
        stop_all([sink.stop for sink in self._running.values()], timeout_seconds)
        if self._registry is not None:
            self._registry.close()

    def status(self) -> list[SinkStatus]:
        """Each sink, with what waits for it; asks the store."""
        running, lags = self._running, dict[str, tuple[int, int]]()
        if running:
            with contextlib.suppress(duckdb.Error, TurnoutError), self._database.read() as cursor:
                lags = {name: lag(cursor, sink.settings.table, sink.written) for name, sink in running.items()}
        return [sink.status(lags.get(name)) for name, sink in running.items()]

    def _committed(self, commit: Commit | None) -> None:
        for sink in self._running.values():
            sink.wake()
