"""The orchestrator: the only owner of lifecycles. It decides nothing by itself: `control` and `swap` do.

One thread takes control messages in turn, has generations built (`builder`), publishes them, and has them kept and
closed (`keeper`). Nothing that goes wrong in it ends the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from turnout.builder import TICK_SECONDS, Builder, BuildTimes, Site, Stopping
from turnout.config import Settings
from turnout.control import Action, ControlMessage, ControlRejected, Outcome, resolve
from turnout.desk import Answer, Desk, Ticket
from turnout.endings import begin, join
from turnout.errors import TurnoutError, first_line
from turnout.generations import Generation, Generations, Workshop
from turnout.health import Health, Subject
from turnout.joins import Join
from turnout.kafka.topics import Topics
from turnout.keeper import Keeper, pause_seconds, store_failed
from turnout.layout import Layout
from turnout.meter import Meter
from turnout.offsets import Offsets
from turnout.plan import Plan
from turnout.store.database import Database, is_store_failure
from turnout.store.generations import GenerationTables
from turnout.store.ledger import GenerationRecord, Ledger, Swap
from turnout.swap import Batch, SwapState, Verdict, Work, plan_batch, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("turnout")

STATUS_SECONDS = 1.0
CONTROL_WAIT_SECONDS = 15.0
STOP_SECONDS = 10.0
_SHOWN_OF_A_MESSAGE = 500


class Orchestrator:
    """The life of all generations. Surfaces use `desk`, `status` and `readiness` from their threads."""

    def __init__(self, settings: Settings, database: Database, start_spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._database = database
        self._start_spark = start_spark
        self._ledger = Ledger(database, list(settings.sources), settings.store.log_rows)
        self.desk = Desk(settings, database, self._ledger, self.say)
        self._topics = Topics(settings.kafka)
        self._meter = Meter(settings.kafka, self._shown)
        self._health = Health(self.say, "starting")
        self._keeper = Keeper(settings.swap, self._health, self.say)
        self._builder: Builder | None = None
        self._control_awaited = False
        self._plan = Plan.from_settings(settings)
        self._previous: Plan | None = None
        self._failures = 0
        self._status_at = 0.0
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
        clients = begin([self.desk.close, self._meter.stop, self._topics.close])
        join([self._thread], deadline)  # after this no generation is made any more
        queries = [generation.query for generation in self._keeper.all() if generation.query is not None]
        stops = begin([partial(query.stop, timeout_seconds) for query in queries])
        join([*clients, *stops], deadline)

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
        status["start"] = str(self._plan.start)
        status["records"] = live.records if live else 0
        status["recordsPerSecond"] = self._meter.reading.records_per_second
        status["progress"] = _progress(building) if building else None
        status["lingering"] = [generation.number for generation in self._keeper.lingering]
        status["ready"], status["reason"] = self.readiness()
        return status

    def readiness(self) -> tuple[bool, str]:
        """Whether the tables follow the topics, and if not, why."""
        live = self._keeper.live
        if reason := self._health.reason():
            return False, reason
        if live is None:
            return False, "no generation is published yet"
        if not self._meter.reading.measured:
            return False, f"generation {live.number} is published; Kafka has not answered yet"
        return True, f"generation {live.number} is published"

    def topics(self) -> list[str]:
        """The names of all topics that Turnout's Kafka identity may see; asks Kafka, so it may block."""
        return sorted(self._topics.names())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
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
        if is_store_failure(error):
            self._health.bad(Subject.STORE, store_failed(error))
        elif isinstance(error, TurnoutError):
            self._health.bad(Subject.STEP, str(error))
        else:
            log.exception("unexpected error")
            self._health.bad(Subject.STEP, f"unexpected error: {first_line(error)}")
        self._failures += 1
        self._stopping.wait(pause_seconds(self._failures))

    # -- starting

    def _prepare(self) -> None:
        """Start Spark, take up what the store has, and begin to listen. Whatever fails, all of it may be done again."""
        session = self._start_spark()
        if self._stopping.is_set():
            raise Stopping
        makes = Generations(Workshop(self._settings, self._database, self._ledger, session, self._topics, self.say))
        begun = self._take_up_store(makes)
        self.desk.open()
        self._meter.start()
        site = Site(self._settings, self._keeper, self._stopping, self.say, self._state_is, self._tend)
        self._builder = Builder(site, makes, begun)
        self._health.good(Subject.START)

    def _take_up_store(self, makes: Generations) -> GenerationRecord | None:
        """What was published lives on, or else a first build that was under way; that one is returned."""
        self._keeper.makes = makes
        number, self._previous = self._ledger.published()
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
            self._plan = record.plan.carried_over_to(self._plan)
            self.say("INFO", "columns, keys or views have changed in the configuration: a new generation is built")
        return begun

    def _begun_before(self, makes: Generations) -> GenerationRecord | None:
        """A first build that was under way when the process ended: it goes on instead of beginning again."""
        begun = [record for record in self._ledger.generations().values() if record.layout == makes.signature()]
        return max(begun, key=lambda record: record.generation) if begun else None

    def _show_nothing(self) -> None:
        """Before anything is published the tables are there, and empty."""
        tables = GenerationTables(self._database, 0, Layout.of(self._settings, self._plan))
        with self._database.write() as cursor:
            tables.drop(cursor)
            tables.create(cursor, views_built=True)
            tables.publish(cursor)

    def _resume(self, makes: Generations, record: GenerationRecord) -> None:
        live = self._keeper.live = makes.resume(record)
        live.state = SwapState.LIVE
        live.waiting = True  # the keeper starts its query
        self._plan = record.plan
        self.say("INFO", f"resuming generation {record.generation}: {record.plan.describe()}")

    def _publish_first(self) -> None:
        """Build what the configuration and the control topic together ask for, and publish it."""
        self._await_control()
        tickets = self.desk.waiting()
        batch = replay([ticket.queued for ticket in tickets], self._plan)
        try:
            self._built().validate(batch.plan)
        except TurnoutError as error:
            if batch.carrier is None or error.code == "kafka_unreachable" or self._without_messages() == str(error):
                raise
            self._reject(tickets[batch.carrier], error)
            return
        self._health.good(Subject.STEP)
        generation, times = self._built().build(batch.plan, first=True)
        self._publish(generation, times, tickets, batch, Outcome.APPLIED)

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
            self._built().validate(self._plan)
        except TurnoutError as error:
            return str(error)
        return ""

    # -- deciding

    def _decide(self) -> None:
        """Take the next messages that can be decided together."""
        assert self._keeper.live is not None
        waiting = self.desk.waiting()
        batch = plan_batch([ticket.queued for ticket in waiting], self._plan, self._keeper.live.number)
        tickets = waiting[: len(batch.verdicts)]
        self._tell(tickets)
        if batch.work is Work.NONE:
            self._settle_unchanged(tickets, batch)
        elif batch.work is Work.DRY_RUN:
            self._dry_run(tickets[0], batch)
        elif batch.work is Work.ROLLBACK:
            self._rollback(tickets, batch)
        else:
            self._swap(tickets, batch, Outcome.APPLIED)

    def _tell(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            shown = (ticket.raw or "")[:_SHOWN_OF_A_MESSAGE]
            if isinstance(ticket.queued, ControlRejected):
                self.say("ERROR", f"control message rejected: {ticket.queued} (raw: {shown})")
                continue
            for warning in ticket.queued.warnings:
                self.say("WARNING", f"control message: {warning}")
            if ticket.queued.action is Action.CHANGE:
                resolution = resolve(ticket.queued, self._plan)
                changed = str(resolution.changed).lower()
                self.say(
                    "INFO", f"control message raw: {shown} resolved: {resolution.plan.describe()} changed: {changed}"
                )
            else:
                self.say("INFO", f"control message raw: {shown} asks for a rollback")

    def _settle_unchanged(self, tickets: Sequence[Ticket], batch: Batch) -> None:
        answers = [self._answer(verdict) for verdict in batch.verdicts]
        if any(verdict.outcome is Outcome.UNCHANGED for verdict in batch.verdicts):
            self.say("INFO", f"no change: {self._plan.describe()}")

        def refresh(cursor: duckdb.DuckDBPyConnection) -> None:
            for ticket, verdict in zip(tickets, batch.verdicts, strict=True):
                if verdict.outcome is Outcome.UNCHANGED:
                    self._ledger.set_status(cursor, lastApplied=_now(), requestId=ticket.request_id)

        self.desk.settle(tickets, answers, refresh)

    def _answer(self, verdict: Verdict) -> Answer:
        assert verdict.outcome is not None
        return Answer(verdict.outcome, verdict.reason, self._number(), verdict.error)

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
            plan = self._previous or self._plan
        changes = plan != self._plan
        try:
            report = self._built().dry_run(plan, changes=changes)
        except TurnoutError as error:
            self._reject(ticket, error)
            return
        self.say("INFO", f"dry run: {plan.describe()} would be {'built' if changes else 'no change'}")
        self.desk.settle([ticket], [Answer(Outcome.UNCHANGED, "dryRun", self._number(), report=report)])

    def _built(self) -> Builder:
        """The builder, which is there once everything is prepared."""
        assert self._builder is not None
        return self._builder

    def _number(self) -> int:
        return self._keeper.live.number if self._keeper.live else 0

    # -- swapping

    def _rollback(self, tickets: Sequence[Ticket], batch: Batch) -> None:
        """Back to the plan before: at once while its generation lingers, else by an ordinary build."""
        if self._previous is None:
            self._reject(tickets[0], _nothing_to_roll_back())
            return
        plan = self._previous
        lingering = [g for g in self._keeper.lingering if g.plan == plan and g.query is not None and g.query.running]
        target = Batch(batch.verdicts, plan, Work.BUILD, batch.carrier)
        if not lingering:
            self._swap(tickets, target, Outcome.ROLLED_BACK)
            return
        generation = max(lingering, key=lambda g: g.number)
        self._publish(generation, BuildTimes(), tickets, target, Outcome.ROLLED_BACK)

    def _swap(self, tickets: Sequence[Ticket], batch: Batch, outcome: Outcome) -> None:
        """Build the plan beside the published generation, and publish it; on failure nothing has changed."""
        assert batch.carrier is not None
        carrier = tickets[batch.carrier]
        try:
            self._state_is(SwapState.VALIDATING)
            self._built().validate(batch.plan)
        except TurnoutError as error:
            self._state_is(SwapState.LIVE)
            if is_store_failure(error):
                raise
            if error.code == "kafka_unreachable":
                self._settle_failed(tickets, batch, error)
            else:
                self._reject(carrier, error)
            return
        try:
            generation, times = self._built().build(batch.plan, first=False)
        except TurnoutError as error:
            if is_store_failure(error):
                raise
            self._settle_failed(tickets, batch, error)
            return
        self._publish(generation, times, tickets, batch, outcome)

    def _settle_failed(self, tickets: Sequence[Ticket], batch: Batch, error: TurnoutError) -> None:
        self._state_is(SwapState.LIVE)
        number = self._number()
        self.say("ERROR", f"the swap to {batch.plan.describe()} failed: {error}; generation {number} goes on")
        answers = [
            Answer(Outcome.FAILED, str(error), number, error) if verdict.outcome is None else self._answer(verdict)
            for verdict in batch.verdicts
        ]
        carrier = tickets[batch.carrier or 0]

        def remember(cursor: duckdb.DuckDBPyConnection) -> None:
            self._ledger.add_swap(
                cursor, self._history(number, batch.plan, carrier, BuildTimes(), 0.0, Outcome.FAILED, str(error))
            )

        self.desk.settle(tickets, answers, remember)

    def _state_is(self, state: SwapState) -> None:
        self._ledger.set_status(state=state.value)

    def _publish(
        self, generation: Generation, times: BuildTimes, tickets: Sequence[Ticket], batch: Batch, outcome: Outcome
    ) -> None:
        """Switch all names, the status row, the history and the outcomes in one transaction."""
        old, old_plan = self._keeper.live, self._plan
        carrier = tickets[batch.carrier] if batch.carrier is not None else None
        started = time.monotonic()

        def switch(cursor: duckdb.DuckDBPyConnection) -> None:
            generation.tables.publish(cursor)
            self._ledger.set_previous(cursor, old_plan.to_json() if old else None)
            self._ledger.set_status(
                cursor,
                **self._ledger.plan_values(batch.plan),
                lastApplied=_now(),
                generation=generation.number,
                state=SwapState.LIVE.value,
                requestId=carrier.request_id if carrier else None,
            )
            seconds = time.monotonic() - started
            self._ledger.add_swap(
                cursor, self._history(generation.number, batch.plan, carrier, times, seconds, outcome, "", generation)
            )

        detail = f"generation {generation.number}: {batch.plan.describe()}"
        answers = [
            Answer(outcome, detail, generation.number) if verdict.outcome is None else self._answer(verdict)
            for verdict in batch.verdicts
        ]
        self.desk.settle(tickets, answers, switch)
        self._plan, self._previous = batch.plan, old_plan if old else None
        self._keeper.replace(old, generation)
        before = f"generation {old.number} ({old_plan.describe()})" if old else "nothing"
        self.say("INFO", f"swapped {before} -> generation {generation.number} ({batch.plan.describe()})")

    def _history(
        self,
        number: int,
        plan: Plan,
        carrier: Ticket | None,
        times: BuildTimes,
        publish_seconds: float,
        outcome: Outcome,
        detail: str,
        generation: Generation | None = None,
    ) -> Swap:
        return Swap(
            generation=number,
            before=self._plan.describe() if self._keeper.live else "",
            after=plan.describe(),
            requester=carrier.requester if carrier else "configuration",
            request_id=carrier.request_id if carrier else None,
            control_offset=carrier.control_offset if carrier else None,
            source_offsets=generation.offsets.to_json() if generation else "{}",
            build_seconds=round(times.build, 4),
            catch_up_seconds=round(times.catch_up, 4),
            publish_seconds=round(publish_seconds, 6),
            outcome=outcome.value,
            detail=detail,
        )

    # -- tending

    def _tend(self) -> None:
        """What goes on beside everything else: generations are kept, and the status row is fresh."""
        self._keeper.tend()
        now = time.monotonic()
        if now - self._status_at >= STATUS_SECONDS:
            self._status_at = now
            self._take_reading()

    def _take_reading(self) -> None:
        reading = self._meter.reading
        if reading.trouble is not None:
            self._health.bad(Subject.KAFKA, reading.trouble)
        else:
            self._health.good(Subject.KAFKA, f"Kafka at {self._settings.kafka.bootstrap_servers} answers again")
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


def _nothing_to_roll_back() -> TurnoutError:
    return TurnoutError(
        code="nothing_to_roll_back",
        message="there is no plan before the present one",
        hint="a rollback needs an earlier swap; name topics or a join instead",
        status=422,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
