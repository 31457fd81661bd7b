"""The orchestrator: the only owner of lifecycles. It decides nothing by itself: `control` and `swap` do.

One thread takes control messages in turn, has generations built (`builder`), publishes them, and has them kept and
closed (`keeper`). Nothing that goes wrong in it ends the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.config.tables import first_plan, layout_of
from turnout.config.topic_rules import TopicRules
from turnout.errors import TurnoutError, first_line
from turnout.kafka.ends import EndWatch
from turnout.kafka.gaps import Gaps
from turnout.kafka.lag import Meter
from turnout.kafka.topics import Topics
from turnout.logs import about, apart
from turnout.plan.control import Action, ControlMessage, ControlRejected, Outcome, resolve
from turnout.plan.joins import Join
from turnout.plan.offsets import Offsets
from turnout.plan.swap_rules import Batch, SwapState, Work, plan_batch, replay
from turnout.spark.engine import Engine, is_gone
from turnout.spark.views.own_sql import check_own_views
from turnout.store.database import Database, is_store_failure
from turnout.store.generation_tables import GenerationTables
from turnout.store.ledger import GenerationRecord, Ledger
from turnout.store.retention import Retention
from turnout.swap.builder import TICK_SECONDS, Builder, BuildTimes, Site, Stopping
from turnout.swap.closing import begin, join
from turnout.swap.control_queue import Answer, Desk, Ticket
from turnout.swap.counters import Measures, Tally
from turnout.swap.generations import Generation, Generations, Workshop
from turnout.swap.health import Health, Readiness, Subject
from turnout.swap.lifecycle import Keeper, pause_seconds, store_failed
from turnout.swap.publisher import Publisher

log = logging.getLogger("turnout")

STATUS_SECONDS = 1.0
TRIM_SECONDS = 60.0
CONTROL_WAIT_SECONDS = 15.0
STOP_SECONDS = 10.0
_SHOWN_OF_A_MESSAGE = 500


class Orchestrator:
    """The life of all generations. Surfaces use `desk`, `status` and `readiness` from their threads."""

    def __init__(self, settings: Settings, database: Database, engine: Engine) -> None:
        self._settings = settings
        self._database = database
        self._engine = engine
        self._ledger = Ledger(database, list(settings.sources), settings.store.log_rows)
        acknowledges = settings.control.ack_topic is not None
        self._retention = Retention(database, settings.store, acknowledges=acknowledges)
        self.desk = Desk(settings, database, self._ledger, self.say)
        self._topics = Topics(settings.kafka)
        self._watch = EndWatch(settings.kafka)
        self._gaps = Gaps(lambda: Topics(settings.kafka))
        self._meter = Meter(settings.kafka, self._shown)
        self._health = Health(self.say, "starting")
        self._tally = Tally()
        self._keeper = Keeper(settings.swap, self._health, self.say)
        self._builder: Builder | None = None
        self._control_awaited = False
        self._publisher = Publisher(self._ledger, self.desk, self._keeper, self.say, first_plan(settings))
        self._failures = 0
        self._status_at = 0.0
        self._trimmed_at = -TRIM_SECONDS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnout-orchestrator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop reading and deciding, in a bounded time; what is in the store stays as it is.

        All parts are told first and waited for together: one that hangs costs the others nothing.
        """
        self._stopping.set()
        self.desk.arrived.set()
        deadline = time.monotonic() + timeout_seconds
        clients = begin(
            [
                self._engine.cancel,
                self.desk.close,
                self._meter.stop,
                self._gaps.stop,
                self._topics.close,
                self._watch.close,
            ]
        )
        join([self._thread], deadline)  # after this no generation is made any more
        join([*clients, *self._stop_queries(timeout_seconds)], deadline)

    def _stop_queries(self, timeout_seconds: float) -> list[threading.Thread]:
        queries = [generation.query for generation in self._keeper.all() if generation.query is not None]
        return begin([partial(query.stop, timeout_seconds) for query in queries])

    def say(self, level: str, text: str) -> None:
        """One line for people: in `orchestrator_logs` and in the log of the process."""
        log.log(getattr(logging, level), text)
        try:
            self._ledger.log(level, text)
        except (duckdb.Error, TurnoutError) as error:
            log.warning("the line could not be kept in orchestrator_logs: %s", first_line(error))

    def status(self) -> dict[str, Any]:
        """The status row, with the progress of a build, lag and rate."""
        status = self._ledger.status()
        live, building = self._keeper.live, self._keeper.building
        status["sources"] = list(self._settings.sources)
        status["joins"] = [join.value for join in Join]
        status["start"] = str(self._publisher.plan.start)
        status["records"] = live.records if live else 0
        status["recordsPerSecond"] = self._meter.reading.records_per_second
        status["progress"] = _progress(building) if building else None
        status["lingering"] = [generation.number for generation in self._keeper.lingering]
        readiness = self.readiness()
        status["ready"], status["reason"] = readiness.ready, readiness.reason
        return status

    def readiness(self) -> Readiness:
        """Whether the tables follow the topics, and if not, why."""
        live, building = self._keeper.live, self._keeper.building
        if trouble := self._health.trouble():
            return trouble
        if live is None:
            done = f"; generation {building.number} has {building.percent()}% of its records" if building else ""
            hint = "wait; progress is at /api/status"
            return Readiness(False, f"no generation is published yet{done}", "building", hint)
        if not self._meter.reading.measured:
            reason = f"generation {live.number} is published; Kafka has not answered yet"
            return Readiness(False, reason, "starting", "try again in some seconds")
        return Readiness(True, f"generation {live.number} is published")

    def measures(self) -> Measures:
        """What is counted, and the state as it is known; asks nobody."""
        reading, living = self._meter.reading, self._keeper.all()
        live, building = self._keeper.live, self._keeper.building
        return Measures(
            readiness=self.readiness(),
            tally=self._tally,
            published=self._publisher.number,
            records={generation.number: generation.records for generation in living},
            generations=dict(Counter(generation.state.value for generation in living)),
            building_percent=building.percent() if building else None,
            lags=reading.lags,
            kafka_answers=reading.measured and reading.trouble is None,
            newest_record=live.newest_record if live else None,
            control_read=self.desk.trouble is None,
            waiting_messages=len(self.desk.waiting()),
            spark_starts=self._engine.starts,
        )

    def topics(self) -> list[str]:
        """The names of all topics that Turnout's Kafka identity may see; asks Kafka, so it may block."""
        return sorted(self._topics.names())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._engine.blamed():
                    self._step()
                self._failures = 0
            except Stopping:
                return
            except Exception as error:
                if self._stopping.is_set():
                    return  # what it used has been taken away from under it
                self._failed_step(error)
            self.desk.arrived.wait(TICK_SECONDS)
            self.desk.arrived.clear()

    def _step(self) -> None:
        if self._health.has(Subject.STORE):
            self._mend_store()
        if self._builder is None:
            self._prepare()
        self._tend()
        if self._keeper.live is None:
            self._publish_first()
        elif self.desk.waiting():
            self._decide()
        self._health.good(Subject.STEP)

    def _failed_step(self, error: Exception) -> None:
        if is_gone(error):
            self._let_go_of_spark(str(error))
            return
        if is_store_failure(error):
            self._health.bad(Subject.STORE, store_failed(error))
        elif isinstance(error, TurnoutError):
            subject = Subject.SPARK if error.code == "spark_not_started" else Subject.STEP
            self._health.bad(subject, str(error))
        else:
            log.exception("unexpected error")
            self._health.bad(Subject.STEP, f"unexpected error: {first_line(error)}")
        self._failures += 1
        self._stopping.wait(pause_seconds(self._failures))

    def _let_go_of_spark(self, reason: str) -> None:
        """Spark is gone. Its queries are ended here, so that the next step starts all anew; reads go on meanwhile."""
        self._health.bad(Subject.SPARK, reason)
        self._builder = None
        join(self._stop_queries(STOP_SECONDS), time.monotonic() + STOP_SECONDS)
        pause = self._engine.drop()
        if pause:
            self.say("WARNING", f"Spark ended again soon after its start; it is started in {pause:g} s")
        self._stopping.wait(pause)

    # -- starting

    def _prepare(self) -> None:
        """Start Spark, take up what the store has, and begin to listen. Whatever fails, all of it may be done again."""
        session = self._engine.session()
        if self._stopping.is_set():
            raise Stopping
        check_own_views(session, layout_of(self._settings, self._publisher.plan).views)
        makes = Generations(
            Workshop(
                self._settings,
                self._database,
                self._ledger,
                session,
                self._topics,
                self._watch,
                self._gaps,
                self.say,
                self._tally,
            )
        )
        begun = None
        if self._keeper.live is not None:
            self._keeper.go_on(makes)
        else:
            begun = self._take_up_store(makes)
            self._health.good(Subject.SPARK, "Spark runs")
        self.desk.open()
        self._meter.start()
        site = Site(
            self._settings, self._engine, self._keeper, self._stopping, self.say, self._publisher.state_is, self._tend
        )
        self._builder = Builder(site, makes, begun)
        self._health.good(Subject.START)

    def _take_up_store(self, makes: Generations) -> GenerationRecord | None:
        """What was published lives on, or else a first build that was under way; that one is returned."""
        self._keeper.makes = makes
        number, self._publisher.previous = self._ledger.published()
        record = self._ledger.generations().get(number)
        begun = None if record else self._begun_before(makes)
        kept = begun.generation if begun else number
        for stale in makes.clear_all_but(kept):
            self.say("INFO", f"closed generation {stale}: it was not published when the process ended")
        if record is None:
            self._show_nothing()
        elif record.layout == makes.signature():
            self._resume(makes, record)
        else:
            self._publisher.plan = record.plan.carried_over_to(self._publisher.plan)
            self.say("INFO", "columns, keys or views have changed in the configuration: a new generation is built")
        return begun

    def _begun_before(self, makes: Generations) -> GenerationRecord | None:
        """A first build that was under way when the process ended: it goes on instead of beginning again."""
        begun = [record for record in self._ledger.generations().values() if record.layout == makes.signature()]
        return max(begun, key=lambda record: record.generation) if begun else None

    def _show_nothing(self) -> None:
        """Before anything is published the tables are there, and empty."""
        tables = GenerationTables(self._database, 0, layout_of(self._settings, self._publisher.plan))
        with self._database.write() as cursor:
            tables.drop(cursor)
            tables.create(cursor, views_built=True)
            tables.publish(cursor)

    def _resume(self, makes: Generations, record: GenerationRecord) -> None:
        live = self._keeper.live = makes.resume(record)
        live.state = SwapState.LIVE
        live.waiting = True  # the keeper starts its query
        self._publisher.plan = record.plan
        self.say("INFO", f"resuming generation {record.generation}: {record.plan.describe()}")

    def _publish_first(self) -> None:
        """Build what the configuration and the control topic together ask for, and publish it."""
        self._await_control()
        tickets = self.desk.waiting()
        batch = replay([ticket.queued for ticket in tickets], self._publisher.plan)
        try:
            self._built().validate(batch.plan)
        except TurnoutError as error:
            if batch.carrier is None or _passes(error) or self._without_messages() == str(error):
                raise
            self._reject(tickets[batch.carrier], error)
            return
        self._health.good(Subject.STEP)
        generation, times = self._built().build(batch.plan, first=True)
        self._publisher.publish(generation, times, tickets, batch, Outcome.APPLIED)

    def _await_control(self) -> None:
        """Wait for the messages of the control topic, but not for ever once Kafka answers: it may live elsewhere."""
        if self._control_awaited or self.desk.caught_up:
            return
        self._topics.names()
        deadline = time.monotonic() + CONTROL_WAIT_SECONDS
        while not self.desk.caught_up and time.monotonic() < deadline:
            self._stopping.wait(TICK_SECONDS)
            if self._stopping.is_set():
                raise Stopping
        self._control_awaited = True
        if not self.desk.caught_up:
            self.say("WARNING", "the control topic could not be read to its end yet; starting with the configured plan")

    def _without_messages(self) -> str:
        """What is wrong with the plan that no message has touched: no message is to blame for that."""
        try:
            self._built().validate(self._publisher.plan)
        except TurnoutError as error:
            return str(error)
        return ""

    # -- deciding

    def _decide(self) -> None:
        """Take the next messages that can be decided together."""
        assert self._keeper.live is not None
        waiting = self.desk.waiting()
        batch = plan_batch([ticket.queued for ticket in waiting], self._publisher.plan, self._keeper.live.number)
        tickets = waiting[: len(batch.verdicts)]
        self._tell(tickets)
        if batch.work is Work.NONE:
            self._publisher.unchanged(tickets, batch)
        elif batch.work is Work.DRY_RUN:
            self._dry_run(tickets[0], batch)
        else:
            with about(request_id=tickets[batch.carrier or 0].request_id):
                if batch.work is Work.ROLLBACK:
                    self._rollback(tickets, batch)
                else:
                    self._swap(tickets, batch, Outcome.APPLIED)

    def _tell(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            with about(request_id=ticket.request_id):
                self._tell_one(ticket)

    def _tell_one(self, ticket: Ticket) -> None:
        shown = (ticket.raw or "")[:_SHOWN_OF_A_MESSAGE]
        if isinstance(ticket.queued, ControlRejected):
            self.say("ERROR", f"control message rejected: {ticket.queued} (raw: {shown})")
            return
        for warning in ticket.queued.warnings:
            self.say("WARNING", f"control message: {warning}")
        if ticket.queued.action is Action.CHANGE:
            resolution = resolve(ticket.queued, self._publisher.plan)
            changed = str(resolution.changed).lower()
            self.say("INFO", f"control message raw: {shown} resolved: {resolution.plan.describe()} changed: {changed}")
        else:
            self.say("INFO", f"control message raw: {shown} asks for a rollback")

    def _reject(self, ticket: Ticket, error: TurnoutError) -> None:
        """Put a rejection in the place of a message; the queue is then decided without it."""
        assert isinstance(ticket.queued, ControlMessage)
        ticket.queued = ControlRejected(
            message=error.message,
            hint=error.hint,
            code=error.code,
            status=error.status,
            request_id=ticket.queued.request_id,
        )

    def _dry_run(self, ticket: Ticket, batch: Batch) -> None:
        """Say what would happen, and do nothing."""
        assert isinstance(ticket.queued, ControlMessage)
        plan = batch.plan
        if ticket.queued.action is Action.ROLLBACK:
            plan = self._publisher.previous or self._publisher.plan
        changes = plan != self._publisher.plan
        try:
            report = self._built().dry_run(plan, changes=changes)
        except TurnoutError as error:
            if is_gone(error):
                raise
            self._reject(ticket, error)
            return
        self.say("INFO", f"dry run: {plan.describe()} would be {'built' if changes else 'no change'}")
        self.desk.settle([ticket], [Answer(Outcome.UNCHANGED, "dryRun", self._publisher.number, report=report)])

    def _built(self) -> Builder:
        """The builder, which is there once everything is prepared."""
        assert self._builder is not None
        return self._builder

    # -- swapping

    def _rollback(self, tickets: Sequence[Ticket], batch: Batch) -> None:
        """Back to the plan before: at once while its generation lingers, else by an ordinary build."""
        if self._publisher.previous is None:
            self._reject(tickets[0], _nothing_to_roll_back())
            return
        plan = self._publisher.previous
        if faults := TopicRules.of(self._settings).faults(plan.topics.values()):
            message, hint = faults[0]
            self._reject(tickets[0], TurnoutError(code="bad_control", message=message, hint=hint, status=422))
            return
        lingering = [g for g in self._keeper.lingering if g.plan == plan and g.query is not None and g.query.running]
        target = Batch(batch.verdicts, plan, Work.BUILD, batch.carrier)
        if not lingering:
            self._swap(tickets, target, Outcome.ROLLED_BACK)
            return
        generation = max(lingering, key=lambda g: g.number)
        self._publisher.publish(generation, BuildTimes(), tickets, target, Outcome.ROLLED_BACK)

    def _swap(self, tickets: Sequence[Ticket], batch: Batch, outcome: Outcome) -> None:
        """Build the plan beside the published generation, and publish it; on failure nothing has changed."""
        assert batch.carrier is not None
        carrier = tickets[batch.carrier]
        try:
            self._publisher.state_is(SwapState.VALIDATING)
            self._built().validate(batch.plan)
        except TurnoutError as error:
            self._publisher.state_is(SwapState.LIVE)
            if is_store_failure(error):
                raise
            if _passes(error):
                self._publisher.fail(tickets, batch, error)
            else:
                self._reject(carrier, error)
            return
        try:
            generation, times = self._built().build(batch.plan, first=False)
        except TurnoutError as error:
            if is_store_failure(error):
                raise
            self._publisher.fail(tickets, batch, error)
            return
        self._publisher.publish(generation, times, tickets, batch, outcome)

    # -- tending

    def _tend(self) -> None:
        """What goes on beside everything else: generations are kept, and the status row is fresh."""
        with apart():
            self._keeper.tend()
            now = time.monotonic()
            if now - self._status_at >= STATUS_SECONDS:
                self._status_at = now
                self._take_reading()
            if now - self._trimmed_at >= TRIM_SECONDS:
                self._trimmed_at = now
                self._retention.trim()

    def _take_reading(self) -> None:
        reading = self._meter.reading
        if reading.trouble is not None:
            self._health.bad(Subject.KAFKA, reading.trouble)
        else:
            self._health.good(Subject.KAFKA, f"Kafka at {self._settings.kafka.bootstrap_servers} answers again")
        if (trouble := self.desk.trouble) is not None:
            self._health.bad(Subject.CONTROL, trouble, said=True)
        else:
            self._health.good(Subject.CONTROL)
        if self._keeper.live is not None and reading.lag is not None:
            self._ledger.set_status(lag=reading.lag)

    def _mend_store(self) -> None:
        """See whether the store takes writes again. After some errors DuckDB refuses until it is opened again."""
        try:
            with self._database.write() as cursor:
                cursor.execute("UPDATE turnout.published SET generation = generation")
        except (duckdb.Error, TurnoutError) as error:
            if self._database.broken(error):
                self._database.reopen()
            raise
        self._health.good(Subject.STORE, "the store takes writes again")

    def _shown(self) -> tuple[Offsets, int, int] | None:
        live = self._keeper.live
        return (live.offsets, live.records, live.number) if live else None


def _progress(building: Generation) -> dict[str, Any]:
    return {
        "generation": building.number,
        "state": building.state.value,
        "plan": building.plan.describe(),
        "records": building.records,
        "lag": building.offsets.behind(building.target),
        "percent": building.percent(),
    }


def _passes(error: TurnoutError) -> bool:
    """Whether it says nothing against the plan: the same plan may be right in a moment."""
    return error.code in ("kafka_unreachable", "registry_unreachable", "registry_refused") or is_gone(error)


def _nothing_to_roll_back() -> TurnoutError:
    return TurnoutError(
        code="nothing_to_roll_back",
        message="there is no plan before the present one",
        hint="a rollback needs an earlier swap; name topics or a join instead",
        status=422,
    )
