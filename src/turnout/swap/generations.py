"""A generation (tables in the store, a streaming query, a checkpoint): made, resumed and removed as a whole.

Builder and lifecycle decide when.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from turnout.config import KafkaSettings, SinkSettings
from turnout.config.configuration import Configuration
from turnout.config.tables import layout_of, layout_signature, starts_of
from turnout.decode.schemas import Schemas, registered, schemas_of
from turnout.decode.topic_check import Sample, take_samples
from turnout.errors import TurnoutError
from turnout.kafka.clients import bulk_properties
from turnout.kafka.diagnosis import explain, without_secrets
from turnout.kafka.end_watch import EndWatch
from turnout.kafka.lost_records import Gap, LostRecords
from turnout.kafka.security import java_properties
from turnout.kafka.topics import Topics
from turnout.logs import about
from turnout.plan.control import clipped
from turnout.plan.offsets import Lost, Offsets
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import SwapState
from turnout.plan.tables import Layout
from turnout.spark.cluster import is_local
from turnout.spark.folders import checkpoints_of, folder_at
from turnout.spark.generation import GenerationQuery, Kafka
from turnout.spark.views.own_sql import check_own_views
from turnout.spark.writing import BatchReport, Reading
from turnout.store.database import give_back
from turnout.store.generation_tables import GenerationTables
from turnout.store.ledger import GenerationRecord, Ledger
from turnout.store.query.windows import newest_record
from turnout.swap.health import Say
from turnout.swap.metrics import Counters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLED_RECORDS = 50
_SAY_AGAIN_SECONDS = 60.0
_NAMED_KEYS = 10
_KEY_CHARS = 100


@dataclass(frozen=True, slots=True)
class Clients:
    """The Kafka clients that generations share."""

    topics: Topics
    end_watch: EndWatch
    lost_records: LostRecords


class Generation:
    """One generation: its record, tables, query and progress. The query calls it from its own thread."""

    def __init__(
        self, record: GenerationRecord, tables: GenerationTables, clients: Clients, say: Say, counters: Counters
    ) -> None:
        self.number = record.generation
        self.record = record
        self.tables = tables
        self.query: GenerationQuery | None = None
        self.state = SwapState.VALIDATING
        self.build_seconds = self.catch_up_seconds = 0.0
        self.lingering_since = 0.0
        self.waiting = False
        """Whether its query has ended, to be restarted at `restart_at`."""
        self.restarts = 0
        self.restart_at = 0.0
        self._clients = clients
        self._say = say
        self._counters = counters
        self._said: dict[str, float] = {}
        progress = tables.progress()
        self.start = Offsets.from_json(record.start_offsets)
        self.target = Offsets.from_json(record.target_offsets)
        self.offsets = Offsets.kept(progress.offsets, self.start)
        self.records = progress.records
        self.newest_record = newest_record(tables.database) if progress.records else None
        """Its time, in milliseconds since 1970."""
        self.changed = threading.Event()
        self.views_built = progress.views_built
        # Read now, so that the status never waits for it.
        tables.left_out()

    @property
    def plan(self) -> Plan:
        return self.record.plan

    def percent(self) -> float:
        """How much of the way from start to target is done."""
        whole = self.start.behind(self.target)
        return 100.0 if not whole else round(100.0 * (1 - self.offsets.behind(self.target) / whole), 1)

    def progress(self) -> dict[str, Any]:
        """How far its build is, for the status."""
        return {
            "generation": self.number,
            "state": self.state.value,
            "plan": self.plan.describe(),
            "records": self.records,
            "lag": self.offsets.behind(self.target),
            "percent": self.percent(),
        }

    def left_out(self) -> list[dict[str, Any]]:
        """The keys that are left out of views, for the status."""
        return [
            {"view": name, "keys": len(keys), "first": _first(keys)}
            for name, keys in self.tables.left_out().items()
            if keys
        ]

    def batch_done(self, report: BatchReport) -> None:
        self.offsets = report.offsets
        self.records += report.records
        times = (self.newest_record, report.newest_record)
        self.newest_record = max((one for one in times if one is not None), default=None)
        self._counters.batch(report.seconds, report.bad, report.evicted, live=report.views_built)
        self.restarts = 0
        caught_up = report.views_built and not self.views_built
        self.views_built = report.views_built
        self.changed.set()
        if not report.views_built:
            self._tell("INFO", f"catching up generation {self.number}: {self.records:,} records, {self.percent()}%")
        elif caught_up:
            self._tell("INFO", f"generation {self.number} has caught up with {self.records:,} records")
        for table, count in report.evicted.items():
            self._say_seldom(table, "INFO", f"{table}: {count} oldest rows evicted (max_rows)")
        for name, keys in report.left_out.items():
            self._say_seldom(f"left out {name}", "WARNING", _left_out_text(name, keys))
        for name, keys in report.shown_again.items():
            self._say_seldom(f"again {name}", "INFO", f"{name}: {_named(keys)} shown again")
        if report.bad:
            self._say_seldom(
                "bad", "WARNING", f"faults in records of generation {self.number}: {report.bad}; see bad_records"
            )

    def _tell(self, level: str, text: str) -> None:
        with about(generation=self.number):
            self._say(level, text)

    def _say_seldom(self, subject: str, level: str, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(subject, float("-inf")) >= _SAY_AGAIN_SECONDS:
            self._said[subject] = now
            self._tell(level, text)

    def lost(self, generation: int, lost: Lost) -> None:
        self._tell("WARNING", str(lost))

    def gaps(self, found: Sequence[tuple[str, int, int, int]]) -> None:
        """Have missing records looked into: topic, partition, first offset, and the one after the last."""
        self._clients.lost_records.check([Gap(*place, report=partial(self.lost, self.number)) for place in found])

    def denied(self, topic: str, read: Offsets) -> bool:
        """Whether a topic that was read up to `read` exists, but was hidden; TurnoutError if Kafka does not answer."""
        try:
            ends = self._clients.topics.end_offsets([topic])
        except TurnoutError as error:
            if error.code in ("not_authorized", "unknown_topic"):
                return error.code == "not_authorized"
            raise
        return read.topic(topic).made_anew(ends) is None  # it is visible again: the same topic, or a new one


def _first(keys: Iterable[str]) -> list[str]:
    return [clipped(key, _KEY_CHARS) for key in itertools.islice(keys, _NAMED_KEYS)]


def _named(keys: Sequence[str]) -> str:
    """How many keys, and the first of them."""
    more = ", ..." if len(keys) > _NAMED_KEYS else ""
    return f"{len(keys)} key{'s' if len(keys) > 1 else ''} ({', '.join(map(repr, _first(keys)))}{more})"


def _left_out_text(name: str, keys: Sequence[str]) -> str:
    return (
        f"{name}: {_named(keys)} left out, with more rows than max_rows_per_key allows; "
        "remove rows of these keys, or raise max_rows_per_key of the view"
    )


class Generations:
    """Makes, resumes and removes them."""

    def __init__(
        self,
        configuration: Configuration,
        ledger: Ledger,
        session: SparkSession,
        clients: Clients,
        say: Say,
        counters: Counters,
        *,
        careful: bool = False,
    ) -> None:
        """`careful`: Spark has ended by itself before."""
        settings = configuration.settings
        self._careful = careful
        self.configuration = configuration
        self.ledger = ledger
        self.say = say
        self._session = session
        self._clients = clients
        self._counters = counters
        self._checkpoints = folder_at(session, checkpoints_of(settings.spark.shared_dir, settings.data_dir))
        self._registered = registered(settings)
        self._checked: set[str] = set()

    def layout(self, plan: Plan) -> Layout:
        return layout_of(self.configuration.of(plan), plan)

    def check_views(self, plan: Plan) -> None:
        """Refuse views whose own SQL cannot be used; each text of a file is tried once."""
        if plan.sections not in self._checked:
            check_own_views(self._session, self.layout(plan).views)
            self._checked.add(plan.sections)

    def _schemas(self, plan: Plan) -> dict[str, Schemas]:
        return schemas_of(self.configuration.of(plan), self._registered)

    def samples(self, plan: Plan) -> list[Sample]:
        """The newest records of each topic, decoded; TurnoutError where a topic is missing or cannot be read."""
        self.check_views(plan)
        layout = self.layout(plan)
        values = {topic: self._clients.topics.sample(topic, SAMPLED_RECORDS) for topic in layout.topics}
        largest = self.configuration.settings.kafka.max_record_megabytes << 20
        return take_samples(layout, values, self._schemas(plan), largest)

    def check_sinks(self, sinks: Mapping[str, SinkSettings]) -> None:
        """Check that the topics of sinks exist; TurnoutError names one that does not."""
        for name, sink in sinks.items():
            try:
                self._clients.topics.end_offsets([sink.topic])
            except TurnoutError as error:
                message = f"sinks.{name}.topic: {error.message}"
                raise TurnoutError(error.code, message, error.hint, status=error.status) from None

    def estimate(self, plan: Plan) -> dict[str, int]:
        """How many records each source would catch up on."""
        start, target = self._range(plan)
        return {s: start.topic(topic).behind(target.topic(topic)) for s, topic in plan.topics.items()}

    def create(self, plan: Plan) -> Generation:
        """A new generation with its tables, not reading yet."""
        start, target = self._range(plan)
        with self.ledger.database.write() as cursor:
            number = self.ledger.next_generation(cursor)
            signature = layout_signature(self.configuration.of(plan))
            record = GenerationRecord(number, plan, signature, start.to_json(), target.to_json())
            tables = self._tables(record)
            tables.create(cursor, views_built=start.reached(target))
            self.ledger.add_generation(cursor, record)
        self._checkpoints.below(f"g{number}").remove()
        return self._alive(record, tables)

    def resume(self, record: GenerationRecord) -> Generation:
        """A generation of the store, after a restart."""
        tables = self._tables(record)
        tables.renew()
        return self._alive(record, tables)

    def _tables(self, record: GenerationRecord) -> GenerationTables:
        layout, bad_rows = self.layout(record.plan), self.configuration.settings.store.bad_rows
        return GenerationTables(self.ledger.database, record.generation, layout, bad_rows)

    def _alive(self, record: GenerationRecord, tables: GenerationTables) -> Generation:
        generation = Generation(record, tables, self._clients, self.say, self._counters)
        self.give_query(generation)
        return generation

    def give_query(self, generation: Generation) -> None:
        """Give the generation a query, not started yet; it replaces one of a Spark that has ended."""
        settings = self.configuration.settings
        anywhere = not is_local(settings.spark.master)
        kafka = Kafka(
            java=partial(java_properties, settings.kafka, anywhere=anywhere),
            librdkafka=partial(bulk_properties, settings.kafka, anywhere=anywhere),
            ends=self._ends,
            wait_for_more=self._clients.end_watch.wait_for_more,
            explain=partial(_explained, settings.kafka),
            dead_letter_topic=settings.dead_letter_topic,
            schemas=self._schemas(generation.plan),
            largest_bytes=settings.kafka.max_record_megabytes << 20,
        )
        reading = Reading(
            start=generation.start,
            target=generation.target,
            checkpoint=self._checkpoints.below(f"g{generation.number}").location,
            max_records_per_batch=settings.spark.max_records_per_batch,
            shared=settings.spark.shared_dir is not None,
            careful=self._careful,
        )
        generation.query = GenerationQuery(self._session, generation.tables, reading, kafka, generation)

    def remove(self, generation: Generation) -> None:
        """Stop its query (bounded), and remove its tables and its checkpoint."""
        if generation.query is not None and not generation.query.stop():
            self.say("WARNING", f"generation {generation.number} did not stop in time; it is removed anyway")
        self.clear(generation.number)

    def clear(self, number: int) -> None:
        """Remove a generation from the store and from disk."""
        with self.ledger.database.write() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS g{number} CASCADE")
            self.ledger.remove_generation(cursor, number)
        self._checkpoints.below(f"g{number}").remove()
        give_back()

    def clear_all_but(self, kept: int) -> list[int]:
        """Remove all other generations, which a crash or a stop left behind; returns their numbers."""
        with self.ledger.database.read() as cursor:
            rows = cursor.execute("SELECT schema_name FROM duckdb_schemas() WHERE schema_name ~ '^g[0-9]+$'").fetchall()
        found = {int(name[1:]) for (name,) in rows}
        found |= {int(name[1:]) for name in self._checkpoints.names() if name[1:].isdigit()}
        stale = sorted(found - {kept})
        for number in stale:
            self.clear(number)
        return [number for number in stale if number]

    def _ends(self, topics: Sequence[str]) -> Offsets:
        """The ends of topics, without those that do not exist any more."""
        found: dict[tuple[str, int], int] = {}
        for topic in topics:
            try:
                found |= self._clients.topics.end_offsets([topic]).next
            except TurnoutError as error:
                if error.code != "unknown_topic":
                    raise
        return Offsets(found)

    def _range(self, plan: Plan) -> tuple[Offsets, Offsets]:
        starts = starts_of(self.configuration.of(plan), plan)
        start = self._clients.topics.start_offsets(starts, starts)
        if all(one.kind == "latest" for one in starts.values()):
            return start, start
        return start, self._clients.topics.end_offsets(starts)


def _explained(kafka: KafkaSettings, words: Sequence[str]) -> str:
    """Why a query ended: a known cause, or the text of the innermost exception."""
    if not any("kafka" in word.lower() for word in words):
        return words[-1]
    cause = explain(kafka, "; ".join(words))
    return str(cause) if cause is not None else without_secrets(words[-1], kafka)
