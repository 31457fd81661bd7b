"""The orchestrator: one thread that starts, restarts, swaps and ends generations; it shows their status to others.

`swaps` decides waiting messages, `lifecycle` keeps generations reading. No error ends the thread: it reports the error
to `health` and tries again.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb

from turnout.alert.alerts import Alerts
from turnout.config import Settings
from turnout.config.changes import compare
from turnout.config.secrets import hidden_texts
from turnout.config.tables import layout_of, layout_signature, plan_after
from turnout.config.topic_rules import TopicRules
from turnout.errors import TurnoutError, first_line
from turnout.example.by_example import new_source
from turnout.kafka.lag import QUESTION_SECONDS, LagMeter
from turnout.kafka.lost_records import LostRecords
from turnout.kafka.topics import Topics
from turnout.logs import about
from turnout.plan.control import ApplyRequest
from turnout.plan.joins import Join
from turnout.plan.offsets import Offsets
from turnout.plan.swap_rules import SwapState
from turnout.sink.sink import Sinks
from turnout.spark.jvm.engine import Engine, is_gone
from turnout.store.database import Database, is_store_failure
from turnout.store.generation_tables import GenerationTables
from turnout.store.ledger import CandidateRecord, GenerationRecord, Ledger
from turnout.store.retention import Retention
from turnout.swap.applies import in_force_at_start, record_of
from turnout.swap.builder import TICK_SECONDS, Builder, Stopping
from turnout.swap.control_queue import ControlQueue, QueuedMessage
from turnout.swap.explainer import Explainer
from turnout.swap.generations import Clients, Generations
from turnout.swap.health import Health, Readiness, Subject
from turnout.swap.lifecycle import PAUSES_SECONDS, Lifecycle, store_trouble
from turnout.swap.metrics import Counters, Metrics, MetricValues
from turnout.swap.publisher import Publisher
from turnout.swap.swaps import Swaps
from turnout_client.iso_times import iso_text
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

STATUS_SECONDS = 1.0
TRIM_SECONDS = 60.0
CONTROL_WAIT_SECONDS = 15.0
STOP_SECONDS = 10.0
EXAMPLE_SECONDS = 8.0


class Orchestrator:
    """Runs all generations on its thread. Surfaces call `queue`, `status` and `readiness` from theirs."""

    def __init__(self, settings: Settings, database: Database, engine: Engine) -> None:
        self._database = database
        self._engine = engine
        self._in_force = in_force_at_start(settings, database)
        self.configuration = self._in_force.configuration
        settings = self.configuration.settings
        self._ledger = Ledger(database, list(settings.sources), hidden_texts(settings))
        acknowledges = settings.control.ack_topic is not None
        self._retention = Retention(database, settings.store, acknowledges=acknowledges)
        self.queue = ControlQueue(settings, self._ledger, self.say)
        lost = LostRecords(lambda: Topics(settings.kafka))
        self._clients = Clients(
            Topics(settings.kafka, taken=TopicRules.of(settings).taken), Topics(settings.kafka, QUESTION_SECONDS), lost
        )
        self._lag = LagMeter(settings.kafka, self._read_offsets)
        self.sinks = Sinks(database, settings.kafka, settings.schema_registry, self.say)
        self.alerts = Alerts(database, settings.kafka, self.say)
        self._health = Health(self.say, "waiting for Spark and Kafka")
        self._counters = Counters()
        self._lifecycle = Lifecycle(settings.swap, self._health, self.say)
        self.explainer = Explainer(self._lifecycle.all, self.configuration, self._ledger)
        self._publisher = Publisher(self._ledger, self.queue, self._lifecycle, self.say, self.configuration)
        self.configuration.listen(self._adopt)
        self._swaps: Swaps | None = None
        """None until everything is prepared, and again when Spark has ended."""
        self._control_awaited = False
        self._failures = 0
        self._status_at = 0.0
        self._trimmed_at = -TRIM_SECONDS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnout-orchestrator", daemon=True)

    def start(self) -> None:
        if self._in_force.said:
            self.say("INFO", self._in_force.said)
        self.sinks.change(self.configuration.settings.sinks)
        self.alerts.start(self.configuration.settings.alerts)
        self._thread.start()

    def _adopt(self, settings: Settings) -> None:
        """Go by other settings; those that need a restart are the same."""
        self.queue.adopt(settings)
        self._lifecycle.settings = settings.swap
        self._retention.keep(settings.store)
        self.sinks.change(settings.sinks)
        self.alerts.change(settings.alerts)
        for generation in self._lifecycle.all():
            generation.tables.bad_rows = settings.store.bad_rows

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        """Queue a configuration; its sender can wait for the answer. May block, as the secrets of a file may."""
        return self.queue.submit_record(*record_of(self.configuration, request, requester))

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop reading and deciding, in a bounded time; the store keeps what it has.

        Each part ends on a thread of its own, so that one that hangs does not hold up the others.
        """
        self._stopping.set()
        self.queue.arrived.set()
        deadline = time.monotonic() + timeout_seconds
        clients = self._clients
        kafka = [self._lag.stop, clients.lost_records.stop, clients.topics.close, clients.idle_topics.close]
        outputs = [partial(self.sinks.stop, timeout_seconds), partial(self.alerts.stop, timeout_seconds)]
        ending = _each_on_a_thread([self._engine.cancel, self.queue.close, *outputs, *kafka])
        _join([self._thread], deadline)  # after this no generation is made any more
        _join([*ending, *self._stop_queries(timeout_seconds)], deadline)

    def _stop_queries(self, timeout_seconds: float) -> list[threading.Thread]:
        queries = [generation.query for generation in self._lifecycle.all() if generation.query is not None]
        return _each_on_a_thread([partial(query.stop, timeout_seconds) for query in queries])

    def say(self, level: str, text: str) -> None:
        """Write one line to `orchestrator_logs` and to the log of the process."""
        log.log(getattr(logging, level), text)
        try:
            self._ledger.log(level, text)
        except (duckdb.Error, TurnoutError) as error:
            log.warning("the line could not be stored in orchestrator_logs: %s", first_line(error))

    def status(self) -> dict[str, Any]:
        """The status row, with the progress of a build, lag and rate."""
        live, readiness = self._lifecycle.live, self.readiness()
        progress, building = self._lifecycle.progress, self._lifecycle.building
        state = building.state if building else SwapState.VALIDATING
        return {
            **self._ledger.status(),
            "sources": list(self.configuration.settings.sources),
            "joins": list(Join),
            "start": str(self._publisher.plan.start),
            "records": live.records if live else 0,
            "recordsPerSecond": self._lag.reading.records_per_second,
            "progress": progress.to_json(state.value) if progress else None,
            "candidate": self._candidate_json(),
            "lingering": [generation.number for generation in self._lifecycle.lingering],
            "sinks": [sink.model_dump() for sink in self.sinks.status()],
            "alerts": [alert.model_dump() for alert in self.alerts.status()],
            "leftOut": live.left_out() if live else [],
            "ready": readiness.ready,
            "reason": readiness.reason,
        }

    def _candidate_json(self) -> dict[str, Any] | None:
        candidate = self._lifecycle.candidate
        if candidate is None or candidate.candidacy is None:
            return None
        since = candidate.candidacy.since_ms
        expires = since + round(1000 * self._lifecycle.settings.candidate_seconds)
        times = {"since": iso_text(since), "expiresAt": iso_text(expires)}
        return {"generation": candidate.number, "plan": candidate.plan.describe(), **times}

    def readiness(self) -> Readiness:
        """Whether the tables follow the topics, and if not, why."""
        live, building = self._lifecycle.live, self._lifecycle.building
        if trouble := self._health.trouble():
            return replace(trouble, reason=self._ledger.hide(trouble.reason))
        if live is None:
            done = f"; generation {building.number} has {building.percent()}% of its records" if building else ""
            hint = "wait; progress is at /api/status"
            return Readiness(False, f"no generation is published yet{done}", "building", hint)
        if not self._lag.reading.measured:
            reason = f"generation {live.number} is published; Kafka has not answered yet"
            return Readiness(False, reason, "starting", "try again in some seconds")
        return Readiness(True, f"generation {live.number} is published")

    def metrics(self) -> Metrics:
        """Counters, and the state as last seen; asks the store for what waits for sinks, and Kafka nothing."""
        reading, living = self._lag.reading, self._lifecycle.all()
        live, progress, candidate = self._lifecycle.live, self._lifecycle.progress, self._lifecycle.candidate
        newest = live.newest_record if live else None
        values: dict[str, MetricValues] = {
            "turnout_generations": Counter(generation.state.value for generation in living),
            "turnout_building_percent": progress.percent() if progress else None,
            "turnout_candidate_generation": candidate.number if candidate else None,
            "turnout_records_total": {str(generation.number): generation.records for generation in living},
            "turnout_lag_records": {(topic, str(partition)): lag for (topic, partition), lag in reading.lags.items()},
            "turnout_kafka_up": reading.measured and reading.trouble is None,
            "turnout_newest_record_age_seconds": None if newest is None else max(0.0, time.time() - newest / 1000),
            "turnout_control_up": self.queue.trouble is None,
            "turnout_control_waiting": len(self.queue.waiting()),
            "turnout_spark_starts_total": self._engine.starts,
            "turnout_left_out_keys": {name: len(keys) for name, keys in live.tables.left_out().items()} if live else {},
        }
        number, sinks, alerts = self._publisher.number, self.sinks.status(), self.alerts.status()
        return Metrics(self.readiness(), values, self._counters, number, sinks, alerts)

    def topics(self) -> list[str]:
        """The names of all topics that Turnout may see; asks Kafka, so it may block."""
        return sorted(self._clients.topics.names())

    def example(self, topic: str, records: int) -> dict[str, Any]:
        """A source for a topic, by its newest records; asks Kafka with a client of its own, so it may block."""
        return new_source(topic, self.configuration.settings, records, EXAMPLE_SECONDS)

    def test_alert(self, name: str) -> None:
        """Send a sample to the target of an alert; blocks until it has arrived, or TurnoutError says why not."""
        self.alerts.test(name)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._engine.converting_errors():
                    self._step()
                self._failures = 0
            except Stopping:
                return
            except Exception as error:
                if self._stopping.is_set():
                    return  # it used clients that are closed by now
                self._failed_step(error)
            self.queue.arrived.wait(TICK_SECONDS)
            self.queue.arrived.clear()

    def _step(self) -> None:
        if self._health.has(Subject.STORE):
            self._reopen_store()
        swaps = self._swaps or self._prepare()
        self._maintain()
        if self._lifecycle.live is None:
            self._await_control()
            swaps.publish_first()
        else:
            swaps.watch()
            if self.queue.waiting():
                swaps.decide()
        self._health.good(Subject.STEP)

    def _failed_step(self, error: Exception) -> None:
        if is_gone(error):
            self._let_go_of_spark(str(error))
            return
        if is_store_failure(error):
            self._health.bad(Subject.STORE, store_trouble(error))
        elif isinstance(error, TurnoutError):
            subject = Subject.SPARK if error.code == "spark_not_started" else Subject.STEP
            self._health.bad(subject, str(error))
        else:
            log.exception("unexpected error")
            self._health.bad(Subject.STEP, f"unexpected error: {first_line(error)}")
        self._failures += 1
        self._stopping.wait(growing_pause(self._failures, *PAUSES_SECONDS))

    def _let_go_of_spark(self, reason: str) -> None:
        """End the queries of a Spark that has ended: the next step starts everything again. Viewers read meanwhile."""
        self._health.bad(Subject.SPARK, reason)
        self._swaps = None
        _join(self._stop_queries(STOP_SECONDS), time.monotonic() + STOP_SECONDS)
        pause = self._engine.drop()
        if pause:
            self.say("WARNING", f"Spark ended again soon after its start; it is started again in {pause:g} s")
        self._stopping.wait(pause)

    # -- starting

    def _prepare(self) -> Swaps:
        """Start Spark, resume the store's generations, and read control messages; can be repeated after a failure."""
        session = self._engine.session()
        if self._stopping.is_set():
            raise Stopping
        generations = Generations(
            self.configuration,
            self._ledger,
            session,
            self._clients,
            self.say,
            self._counters,
            careful=self._engine.starts > 1,
        )
        generations.check_views(self._publisher.plan)
        begun = None
        if self._lifecycle.live is not None:
            self._lifecycle.go_on(generations)
        else:
            begun = self._take_up_store(generations)
            self._health.good(Subject.SPARK, "Spark runs")
        self.queue.open()
        self._lag.start()
        builder = Builder(generations, self._lifecycle, self._engine, self._stopping, self._maintain, begun)
        self._swaps = Swaps(self.queue, self._publisher, self._lifecycle, builder, self.configuration, self.say)
        self._health.good(Subject.START)
        return self._swaps

    def _take_up_store(self, generations: Generations) -> GenerationRecord | None:
        """Resume the published generation; if there is none, return the first build that was under way."""
        self._lifecycle.generations = generations
        number, self._publisher.previous = self._ledger.published()
        settings = self.configuration.settings
        records, signature = self._ledger.generations(), layout_signature(settings)
        record, begun = records.get(number), None
        if record is None:
            same = [one for one in records.values() if one.layout == signature]
            begun = max(same, key=lambda one: one.generation, default=None)
        candidacy = self._ledger.candidate()
        kept = {begun.generation if begun else number, candidacy.generation if candidacy else number}
        for stale in generations.clear_all_but(*kept):
            self.say("INFO", f"closed generation {stale}: it was not published when the process ended")
        if record is None:
            self._show_empty_tables()
            return begun
        if candidacy is not None:
            self._take_up_candidate(generations, records[candidacy.generation], candidacy)
        plan = self._publisher.plan = plan_after(record.plan, self._in_force.before, settings)
        # Another start is for the next build: tables that are there go on.
        if record.layout == signature and (plan.topics, plan.joins) == (record.plan.topics, record.plan.joins):
            self._lifecycle.take_up(generations.resume(replace(record, plan=plan)))
            self.say("INFO", f"resuming generation {number}: {plan.describe()}")
        else:
            self.say("INFO", "columns, keys, views or topics have changed in the file: a new generation is built")
            if self._lifecycle.candidate is not None:
                self._publisher.discard("the file has changed")
        return begun

    def _take_up_candidate(
        self, generations: Generations, record: GenerationRecord, candidacy: CandidateRecord
    ) -> None:
        """Resume the candidate, unless the configuration has changed so that it cannot be published any more."""
        settings, before = self.configuration.settings, self._in_force.before
        if generations.settings_of(record) is None:
            generations.clear(record.generation)
            with self._database.write() as cursor:
                self._ledger.set_candidate(cursor, None)
            self.say("INFO", f"discarded generation {record.generation}, the candidate: the file has changed")
            return
        self._lifecycle.take_up(generations.resume(record), candidacy)
        self.say("INFO", f"resuming generation {record.generation}, the candidate: {record.plan.describe()}")
        if candidacy.config is not None and compare(before, settings):
            self._publisher.discard("the file has changed")

    def _show_empty_tables(self) -> None:
        """Before the first publish, readers find the tables, without rows."""
        layout = layout_of(self.configuration.settings, self._publisher.plan)
        tables = GenerationTables(self._database, 0, layout)
        with self._database.write() as cursor:
            tables.drop(cursor)
            tables.create(cursor, views_built=True)
            tables.publish(cursor)

    def _await_control(self) -> None:
        """Wait for messages of the control topic; once Kafka answers, only for some seconds: it may be elsewhere."""
        if self._control_awaited or self.queue.caught_up:
            return
        self._clients.topics.names()
        deadline = time.monotonic() + CONTROL_WAIT_SECONDS
        while not self.queue.caught_up and time.monotonic() < deadline:
            self._stopping.wait(TICK_SECONDS)
            if self._stopping.is_set():
                raise Stopping
        self._control_awaited = True
        if not self.queue.caught_up:
            self.say("WARNING", "the control topic could not be read to its end yet; starting with the configured plan")

    # -- tending

    def _maintain(self) -> None:
        """Keep generations reading, retire them, and write the status row; called between all other steps."""
        with about(only=True):
            self._publisher.expire_candidate()
            self._lifecycle.maintain()
            now = time.monotonic()
            if now - self._status_at >= STATUS_SECONDS:
                self._status_at = now
                self._take_reading()
            if now - self._trimmed_at >= TRIM_SECONDS:
                self._trimmed_at = now
                self._retention.trim()

    def _take_reading(self) -> None:
        reading = self._lag.reading
        self._database.ends = reading.ends
        if reading.trouble is not None:
            self._health.bad(Subject.KAFKA, reading.trouble)
        else:
            self._health.good(
                Subject.KAFKA, f"Kafka at {self.configuration.settings.kafka.bootstrap_servers} answers again"
            )
        if (trouble := self.queue.trouble) is not None:
            self._health.bad(Subject.CONTROL, trouble, said=True)
        else:
            self._health.good(Subject.CONTROL)
        if self._lifecycle.live is not None and reading.lag is not None:
            self._ledger.set_status(lag=reading.lag)

    def _reopen_store(self) -> None:
        """Try a write, and reopen the store where needed: after some errors DuckDB refuses every write until then."""
        try:
            with self._database.write() as cursor:
                cursor.execute("UPDATE turnout.published SET generation = generation")
        except (duckdb.Error, TurnoutError) as error:
            if self._database.broken(error):
                self._database.reopen()
            raise
        self._health.good(Subject.STORE, "the store takes writes again")

    def _read_offsets(self) -> tuple[Offsets, int, int, Offsets] | None:
        live, living = self._lifecycle.live, self._lifecycle.all()
        read = Offsets({place: at for one in living for place, at in one.offsets.next.items()})
        return (live.offsets, live.records, live.number, read) if live else None


def _each_on_a_thread(ends: Sequence[Callable[[], object]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    return threads


def _quietly(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception as error:
        log.warning("at the end: %s", first_line(error))


def _join(threads: Sequence[threading.Thread], deadline: float) -> None:
    for thread in threads:
        if thread.is_alive():  # the orchestrator's own may not have been started
            thread.join(max(0.0, deadline - time.monotonic()))
