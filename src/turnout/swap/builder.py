"""The builder: makes a generation of a plan, and waits until it has caught up, beside the published one.

It refuses a plan that cannot be right before it makes anything, and removes everything of a build that fails.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnout.errors import TurnoutError, first_line
from turnout.logs import about
from turnout.plan.joins import Join
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import SwapState
from turnout.schemas.record_decoder import Sample
from turnout.spark.jvm.engine import Engine, is_gone
from turnout.store.database import is_store_failure
from turnout.store.ledger import GenerationRecord
from turnout.swap.build_progress import BuildMeter
from turnout.swap.generations import Generation, Generations
from turnout.swap.lifecycle import Lifecycle

TICK_SECONDS = 0.1

_T = TypeVar("_T")
Check = Callable[[], None]
"""Called again and again while a plan is validated and built; what it raises ends that."""


class Stopping(Exception):  # noqa: N818 - not an error
    """Ends a wait when the process stops."""


class Cancelled(Exception):  # noqa: N818 - not an error
    """Ends a build. Its argument has the messages that end it, and what becomes of each."""


@dataclass(slots=True)
class Builder:
    """Builds one generation at a time, on the orchestrator's thread."""

    generations: Generations
    _lifecycle: Lifecycle
    _engine: Engine
    _stopping: threading.Event
    _maintain: Callable[[], None]
    """Called again and again during a build: other generations need it."""
    _begun: GenerationRecord | None
    """A first build that a crash interrupted."""
    _sampling: threading.Thread | None = field(default=None, init=False)
    """The thread that reads samples; it may outlive a validation that was cancelled."""

    def validate(self, plan: Plan, check: Check = lambda: None) -> list[Sample]:
        """Check that the topics exist, can be read, and hold records that decode; TurnoutError names one that fails."""
        for view in self.generations.layout(plan).views:
            if (step := view.unmatchable_step) is not None:
                hiding = " and ".join(join for join in Join if join.hides)
                raise TurnoutError(
                    "bad_control",
                    f"view '{view.table}': with these joins the step to '{step.right}' has no column '{step.left_on}'",
                    f"name another join: {hiding} show no right column, and a later step joins by one",
                )
        with self._working():
            samples = self._beside(lambda: self.generations.samples(plan), check)
        complaints = [complaint for sample in samples if (complaint := sample.complaint())]
        if complaints:
            raise TurnoutError(
                "bad_sample", "; ".join(complaints), "name the right topic, or change the declared columns"
            )
        return samples

    def _beside(self, work: Callable[[], _T], check: Check) -> _T:
        """Run `work`, which may wait for Kafka or Spark, on another thread, and go on calling `maintain` and `check`.

        If `check` raises, the thread is left alone: its waits are bounded. The next one begins after it.
        """
        result: Future[_T] = Future()
        before = self._sampling

        def run() -> None:
            if before is not None:
                before.join()
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self._sampling = threading.Thread(target=copy_context().run, args=(run,), name="turnout-samples", daemon=True)
        self._sampling.start()
        while not wait([result], TICK_SECONDS).done:
            if self._stopping.is_set():
                raise Stopping
            self._maintain()
            check()
        return result.result()

    def estimate(self, plan: Plan, read: Collection[str] = ()) -> dict[str, Any]:
        """The parts of a dry run's report on where rows come from: kept rows and records to read of each source."""
        with self._working():
            origins = self.generations.estimate(plan, read)
        return {
            "records": {source: origin["read"] for source, origin in origins.items()},
            "sources": origins,
        }

    def dry_run(self, plan: Plan, read: Collection[str], *, changes: bool) -> dict[str, Any]:
        """The report of a dry run; TurnoutError if the plan is refused."""
        layout = self.generations.layout(plan)
        samples = self.validate(plan)
        seen = {sample.source: sample.values for sample in samples}
        unmatched = {
            name: sorted(
                value
                for value in seen[left.source][left_on]
                if value is not None and not all(value in seen[right.source][on] for right, on in rights)
            )[:10]
            for view in layout.views
            for name, ((left, left_on), *rights) in view.quality_sides.items()
        }
        return {
            "plan": plan.to_json(),
            "changes": changes,
            **self.estimate(plan, read),
            "columns": {view.table: {c: t.name for c, t in view.columns.items()} for view in layout.views},
            "sampleUnmatched": unmatched,
            "sampleBad": [{"topic": s.topic, **fault} for s in samples for fault in s.faults][:10],
        }

    @contextlib.contextmanager
    def under_way(self, plan: Plan) -> Iterator[None]:
        """Show the progress of a build of this plan during the block."""
        self._lifecycle.progress = BuildMeter(self.generations.ledger.upcoming_generation(), plan)
        try:
            yield
        finally:
            self._lifecycle.progress = None

    def build(
        self,
        plan: Plan,
        read: Collection[str] = (),
        *,
        first: bool,
        check: Check = lambda: None,
        guard: Callable[[Generation], None] = lambda generation: None,
    ) -> Generation:
        """Build a generation that has caught up; sources of `read` are read from Kafka in any case.

        What `guard` raises ends the build, too. The first one is never given up: there is nothing to fall back to.
        """
        check()
        started = time.monotonic()
        self.generations.ledger.set_status(state=SwapState.BUILDING.value)
        with self._working():
            generation = (self._take_up(plan) if first else None) or self.generations.create(plan, read)
        with about(generation=generation.number):
            self._build(generation, started, check, guard, first=first)
        return generation

    def _build(
        self,
        generation: Generation,
        started: float,
        check: Check,
        guard: Callable[[Generation], None],
        *,
        first: bool,
    ) -> None:
        say, lifecycle, plan = self.generations.say, self._lifecycle, generation.plan
        generation.state = SwapState.BUILDING
        lifecycle.begin(generation)
        if lifecycle.progress is not None:
            generation.begin_build(lifecycle.progress)
        topics = ", ".join(f"{source}={topic}" for source, topic in plan.topics.items())
        say("INFO", f"building generation {generation.number}: {plan.describe()}")
        say("INFO", f"topics set: {topics}; {generation.start.behind(generation.target):,} records to catch up on")
        kept = [f"{source} ({o['kept']:,} rows)" for source, o in generation.origins.items() if "kept" in o]
        if kept:
            say("INFO", f"kept from the published generation: {', '.join(kept)}")
        try:
            with self._working():
                assert generation.query is not None
                generation.query.start()
                built = time.monotonic()
                self._enter(generation, SwapState.CATCHING_UP)
                self.catch_up(generation, check, first=first)
            self._enter(generation, SwapState.PUBLISHING)
            if generation.progress is not None:
                generation.progress.publishing()
            check()
            guard(generation)
        except Stopping:
            raise  # the process ends its query; the next start may continue the build
        except Exception as error:
            lifecycle.building = None
            if first and is_gone(error) and generation.query is not None:
                generation.query.stop()
                raise  # continued from its checkpoint once Spark runs again
            generation.state = SwapState.CANCELLED if isinstance(error, Cancelled) else SwapState.FAILED
            lifecycle.discard(generation)
            if isinstance(error, TurnoutError | Cancelled) or is_store_failure(error):
                raise
            raise _build_failed(first_line(error)) from error
        lifecycle.building = generation.progress = None
        generation.build_seconds, generation.catch_up_seconds = built - started, time.monotonic() - built

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Convert errors to `spark_gone` if the JVM has ended, and to Stopping if the process ends."""
        try:
            with self._engine.converting_errors():
                yield
        except Exception as error:
            if self._stopping.is_set():
                raise Stopping from error  # the clients are closed; the message waits in the store
            raise

    def catch_up(self, generation: Generation, check: Check, *, first: bool) -> None:
        """Wait until the views are built."""
        assert generation.query is not None
        limit = self.generations.configuration.settings.swap.catch_up_timeout_seconds
        deadline = time.monotonic() + limit
        while not generation.views_built:
            if self._stopping.is_set():
                raise Stopping
            if first:
                self._lifecycle.keep_reading(generation)
            elif failure := generation.query.failure():
                raise _build_failed(failure)
            elif time.monotonic() > deadline:
                raise _too_slow(generation, limit)
            generation.changed.wait(TICK_SECONDS)
            generation.changed.clear()
            self._maintain()
            check()

    def _take_up(self, plan: Plan) -> Generation | None:
        """The first build that a crash interrupted, where it was of this plan."""
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        if begun.plan != plan:
            self.generations.clear(begun.generation)
            return None
        return self.generations.resume(begun)

    def _enter(self, generation: Generation, state: SwapState) -> None:
        generation.state = state
        self.generations.ledger.set_status(state=state.value)


def _build_failed(why: str) -> TurnoutError:
    return TurnoutError("build_failed", f"the build failed: {why}", "fix the cause, then send the message again")


def _too_slow(generation: Generation, limit: float) -> TurnoutError:
    left = generation.offsets.behind(generation.target)
    return TurnoutError(
        "build_timeout",
        f"the build did not catch up within {limit:g} seconds ({left:,} records were left)",
        "raise swap.catch_up_timeout_seconds, or start later in the topics",
    )
