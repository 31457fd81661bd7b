"""A generation (tables in the store, a streaming query, a checkpoint): made, resumed and removed as a whole.

Builder and lifecycle decide when.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from turnout.config import KafkaSettings, Settings
from turnout.config.configuration import Configuration
from turnout.config.tables import layout_of, layout_signature, starts_of, unchanged_topics
from turnout.errors import ConfigError, TurnoutError
from turnout.kafka.clients import bulk_properties
from turnout.kafka.diagnosis import explain, without_secrets
from turnout.kafka.lag import wait_for_more
from turnout.kafka.lost_records import LostRecords
from turnout.kafka.security import java_properties
from turnout.kafka.topics import Topics
from turnout.logs import Say, about
from turnout.plan.control import clipped
from turnout.plan.guards import BrokenGuard, broken_guards
from turnout.plan.offsets import Gap, Lost, Offsets
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import SwapState
from turnout.plan.tables import Layout
from turnout.schemas.record_decoder import Sample, take_samples
from turnout.schemas.source_schemas import Schemas, registered, schemas_of
from turnout.spark.generation import GenerationQuery, Kafka
from turnout.spark.jvm.checkpoints import folder_at
from turnout.spark.jvm.cluster import is_local
from turnout.spark.views.own_sql import check_own_views
from turnout.spark.writing import BatchReport, Reading
from turnout.store.database import give_back
from turnout.store.generation_tables import GenerationTables
from turnout.store.kept_sources import KeptTopics, Origins, origins_of, topics_made_anew
from turnout.store.ledger import CandidateRecord, GenerationRecord, Ledger
from turnout.swap.build_progress import BuildMeter
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
    idle_topics: Topics
    """Asked by the queries that wait for records, again and again."""
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
        self.origins: Origins = {}
        """Where the rows of each source came from; empty after a restart."""
        self.candidacy: CandidateRecord | None = None
        """Since when it is a candidate, if it is one or was one."""
        self.waiting = False
        """Whether its query has ended, to be restarted at `restart_at`."""
        self.restarts = 0
        self.restart_at = 0.0
        self._clients = clients
        self._say = say
        self._counters = counters
        self._said: dict[str, float] = {}
        self._bad = 0
        progress = tables.progress()
        self.start = Offsets.from_json(record.start_offsets)
        self.target = Offsets.from_json(record.target_offsets)
        self.offsets = Offsets.kept(progress.offsets, self.start)
        self.records = progress.records
        self.newest_record = tables.newest_record()
        """The time of its newest record, read or taken over, in milliseconds since 1970."""
        self.progress: BuildMeter | None = None
        """The progress of its build, while it is built."""
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

    def deleted_topics(self) -> list[str]:
        """The topics that it has found deleted, and has not seen since."""
        read = {topic for topic, _ in self.offsets.next}
        return [topic for topic in self.tables.layout.topics if topic not in read]

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
        self._note_progress()
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
            self._bad += report.bad
            records = "record" if self._bad == 1 else "records"
            self._say_seldom("bad", "WARNING", f"{self._bad:,} bad {records} so far: see the table bad_records")

    def building_views(self, done: float) -> None:
        if self.progress is not None:
            self.progress.views(done)

    def begin_build(self, progress: BuildMeter) -> None:
        """Report to `progress` from now on."""
        self.progress, progress.generation = progress, self.number
        progress.sources = self.origins
        self._note_progress()

    def forget_build(self) -> None:
        """Forget what its build took: a rollback to it takes no time, keeps nothing and reads nothing."""
        self.build_seconds = self.catch_up_seconds = 0.0
        self.origins = {}

    def _note_progress(self) -> None:
        if self.progress is not None:
            self.progress.read(self.offsets.behind(self.target), self.records)

    def _tell(self, level: str, text: str) -> None:
        with about(generation=self.number):
            self._say(level, text)

    def _say_seldom(self, subject: str, level: str, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(subject, float("-inf")) >= _SAY_AGAIN_SECONDS:
            self._said[subject] = now
            self._tell(level, text)

    def lost(self, lost: Lost) -> None:
        self._tell("WARNING", str(lost))

    def gaps(self, found: Sequence[Gap]) -> None:
        """Have missing records looked into."""
        self._clients.lost_records.check(found, self.lost)

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
        self._checkpoints = folder_at(session, settings.spark.shared_dir or settings.data_dir).below("checkpoints")
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

    def check_written(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Check that topics that are written from now on exist; TurnoutError names the setting of one that does not."""
        for path, topic in after.items():
            try:
                if before.get(path) != topic:
                    self._clients.topics.end_offsets([topic])
            except TurnoutError as error:
                raise TurnoutError(error.code, f"{path}: {error.message}", error.hint, status=error.status) from None

    def estimate(self, plan: Plan, read: Collection[str] = ()) -> Origins:
        """Estimate the origin of each source's rows; sources of `read` are read from Kafka in any case."""
        kept = self._kept(plan, read)
        start, target = self._range(plan, kept.topics)
        return origins_of(plan, kept.rows(), kept.offsets() | start, target)

    def create(self, plan: Plan, read: Collection[str] = ()) -> Generation:
        """Make a generation with its tables, not reading yet; it takes over rows of unchanged sources.

        Sources of `read` are read from Kafka in any case. The copy has a transaction without the lock of shared tables:
        it may take seconds. A kill before the record is written leaves tables that the next start removes.
        """
        kept = self._kept(plan, read)
        start, target = self._range(plan, kept.topics)
        signature = layout_signature(self.configuration.of(plan))
        with self.ledger.database.write() as cursor:
            number = self.ledger.next_generation(cursor)
        with self.ledger.database.transaction() as cursor:
            start = kept.offsets(cursor) | start
            record = GenerationRecord(number, plan, signature, start.to_json(), target.to_json())
            tables = self._tables(record)
            built = not kept.topics or len(kept.views(tables.layout)) == len(tables.layout.views)
            tables.create(cursor, views_built=built and start.reached(target))
            rows = kept.copy(cursor, tables)
        with self.ledger.database.write() as cursor:
            self.ledger.add_generation(cursor, record)
        self._checkpoints.below(f"g{number}").remove()
        generation = self._alive(record, tables)
        generation.origins = origins_of(plan, rows, start, target)
        return generation

    def _kept(self, plan: Plan, read: Collection[str]) -> KeptTopics:
        """The topics whose rows a generation of `plan` takes over from the published one.

        A topic that was deleted and created again is another one: the published generation has noticed it, or the topic
        ends before the offset that was read.
        """
        record = self.ledger.generations().get(self.ledger.published()[0])
        if record is None or not (settings := self.settings_of(record)):
            return KeptTopics()
        topics = unchanged_topics((settings, record.plan), (self.configuration.of(plan), plan))
        tables = self._tables(record)
        topics -= {plan.topics[source] for source in read} | topics_made_anew(tables)
        kept = KeptTopics(tables, Offsets.from_json(record.start_offsets), frozenset(topics))
        anew = kept.offsets().made_anew(self._clients.topics.living_ends(sorted(topics)))
        return replace(kept, topics=kept.topics - {topic for topic, _ in anew.next}) if anew else kept

    def settings_of(self, record: GenerationRecord) -> Settings | None:
        """The settings that the tables of a generation were made by; None where they are not known any more."""
        try:
            settings = self.configuration.of(record.plan)
        except ConfigError:
            return None
        return settings if layout_signature(settings) == record.layout else None

    def broken_guards(self, before: Generation, after: Generation) -> list[BrokenGuard]:
        """Compare two living generations by the guards in force, as they are at this moment; count what is broken."""
        guards = self.configuration.settings.swap.guards
        if guards is None:
            return []
        with self.ledger.database.read() as cursor:
            old, new = (one.tables.figures(cursor, self._from_latest(one.plan)) for one in (before, after))
        broken = broken_guards(guards.limits, old, new)
        self._counters.guards_broken(one.guard for one in broken)
        return broken

    def _from_latest(self, plan: Plan) -> set[str]:
        starts = starts_of(self.configuration.of(plan), plan)
        return {topic for topic, start in starts.items() if start.kind == "latest"}

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
            ends=self._clients.topics.living_ends,
            wait_for_more=partial(wait_for_more, self._clients.idle_topics),
            explain=partial(_explained, settings.kafka),
            dead_letter_topic=settings.dead_letter_topic,
            schemas=self._schemas(generation.plan),
            largest_bytes=settings.kafka.max_record_megabytes << 20,
        )
        reading = Reading(
            start=generation.start,
            target=generation.target,
            checkpoint=self._checkpoints.below(f"g{generation.number}"),
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

    def clear_all_but(self, *kept: int) -> list[int]:
        """Remove all other generations, which a crash or a stop left behind; returns their numbers."""
        with self.ledger.database.read() as cursor:
            rows = cursor.execute("SELECT schema_name FROM duckdb_schemas() WHERE schema_name ~ '^g[0-9]+$'").fetchall()
        numbers = {int(name[1:]) for (name,) in rows}
        numbers |= {int(name[1:]) for name in self._checkpoints.names() if name[1:].isdigit()}
        stale = sorted(numbers.difference(kept))
        for number in stale:
            self.clear(number)
        return [number for number in stale if number]

    def _range(self, plan: Plan, kept: Collection[str]) -> tuple[Offsets, Offsets]:
        """Return the start of topics that are not kept, and the end up to which all topics are caught up on."""
        starts = starts_of(self.configuration.of(plan), plan)
        starts = {topic: start for topic, start in starts.items() if topic not in kept}
        start = self._clients.topics.start_offsets(starts, starts)
        latest = all(one.kind == "latest" for one in starts.values())
        ends = self._clients.topics.end_offsets([*kept, *([] if latest else starts)])
        return start, start | ends if latest else ends


def _explained(kafka: KafkaSettings, words: Sequence[str]) -> str:
    """Why a query ended: a known cause, or the text of the innermost exception."""
    if not any("kafka" in word.lower() for word in words):
        return words[-1]
    cause = explain(kafka, "; ".join(words))
    return str(cause) if cause is not None else without_secrets(words[-1], kafka)
