"""The builder: makes a generation of a plan, and waits until it has caught up, beside the published one.

It refuses a plan that cannot be right before it makes anything, and removes everything of a build that fails.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.config import SinkSettings
from turnout.decode.topic_check import Sample
from turnout.errors import TurnoutError, first_line
from turnout.logs import about
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import SwapState
from turnout.spark.engine import Engine, is_gone
from turnout.store.database import is_store_failure
from turnout.store.join_quality import quality_sides
from turnout.store.ledger import GenerationRecord
from turnout.swap.generations import Generation, Generations
from turnout.swap.lifecycle import Lifecycle

TICK_SECONDS = 0.1


class Stopping(Exception):  # noqa: N818 - not an error
    """Ends a wait when the process stops."""


@dataclass(slots=True)
class Builder:
    """Builds one generation at a time, on the orchestrator's thread."""

    _generations: Generations
    _lifecycle: Lifecycle
    _engine: Engine
    _stopping: threading.Event
    _tend: Callable[[], None]
    """Called again and again during a build: other generations need it."""
    _begun: GenerationRecord | None
    """A first build that a crash interrupted."""

    def validate(self, plan: Plan) -> list[Sample]:
        """Check that the topics exist, can be read, and hold records that decode; TurnoutError names one that fails."""
        for view in self._generations.layout(plan).views:
            if view.chain is not None and (step := view.chain.without_column) is not None:
                raise TurnoutError(
                    "bad_control",
                    f"view '{view.table}': with these joins the step to '{step.right}' has no column '{step.left_on}'",
                    "name another join: semi and anti show no right column, and a later step joins by one",
                )
        with self._working():
            samples = self._generations.samples(plan)
        complaints = [complaint for sample in samples if (complaint := sample.complaint())]
        if complaints:
            raise TurnoutError(
                "bad_sample", "; ".join(complaints), "name the right topic, or change the declared columns"
            )
        return samples

    def check_sinks(self, before: Mapping[str, SinkSettings], after: Mapping[str, SinkSettings]) -> None:
        """Check that sinks that are new or changed have a topic; TurnoutError names one that has none."""
        self._generations.check_sinks({name: sink for name, sink in after.items() if before.get(name) != sink})

    def estimate(self, plan: Plan) -> dict[str, int]:
        """How many records each source would catch up on."""
        with self._working():
            return self._generations.estimate(plan)

    def dry_run(self, plan: Plan, *, changes: bool) -> dict[str, Any]:
        """The report of a dry run; TurnoutError if the plan is refused."""
        layout = self._generations.layout(plan)
        samples = self.validate(plan)
        seen = {sample.source: sample.values for sample in samples}
        unmatched = {
            name: sorted(
                value
                for value in seen[left.source][left_on]
                if value is not None and not all(value in seen[right.source][on] for right, on in rights)
            )[:10]
            for view in layout.views
            for name, ((left, left_on), *rights) in quality_sides(view).items()
        }
        return {
            "plan": plan.to_json(),
            "changes": changes,
            "records": self._generations.estimate(plan),
            "columns": {view.table: {c: t.name for c, t in view.columns.items()} for view in layout.views},
            "sampleUnmatched": unmatched,
            "sampleBad": [{"topic": s.topic, **fault} for s in samples for fault in s.faults][:10],
        }

    def build(self, plan: Plan, *, first: bool) -> Generation:
        """Build a generation that has caught up. The first one is never given up: there is nothing to fall back to."""
        started = time.monotonic()
        self._generations.ledger.set_status(state=SwapState.BUILDING.value)
        with self._working():
            generation = (self._take_up(plan) if first else None) or self._generations.create(plan)
        with about(generation=generation.number):
            self._build(generation, started, first=first)
        return generation

    def _build(self, generation: Generation, started: float, *, first: bool) -> None:
        say, lifecycle, plan = self._generations.say, self._lifecycle, generation.plan
        generation.state = SwapState.BUILDING
        lifecycle.begin(generation)
        topics = ", ".join(f"{source}={topic}" for source, topic in plan.topics.items())
        say("INFO", f"building generation {generation.number}: {plan.describe()}")
        say("INFO", f"topics set: {topics}; {generation.start.behind(generation.target):,} records to catch up on")
        try:
            with self._working():
                assert generation.query is not None
                generation.query.start()
                built = time.monotonic()
                self._enter(generation, SwapState.CATCHING_UP)
                self.catch_up(generation, first=first)
            self._enter(generation, SwapState.PUBLISHING)
        except Stopping:
            raise  # the process ends its query; the next start may continue the build
        except Exception as error:
            lifecycle.building = None
            if first and is_gone(error) and generation.query is not None:
                generation.query.stop()
                raise  # continued from its checkpoint once Spark runs again
            generation.state = SwapState.FAILED
            lifecycle.discard(generation)
            if isinstance(error, TurnoutError) or is_store_failure(error):
                raise
            raise _build_failed(first_line(error)) from error
        lifecycle.building = None
        generation.build_seconds, generation.catch_up_seconds = built - started, time.monotonic() - built

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Convert errors to `spark_gone` if the JVM has ended, and to Stopping if the process ends."""
        try:
            with self._engine.blamed():
                yield
        except Exception as error:
            if self._stopping.is_set():
                raise Stopping from error  # the clients are closed; the message waits in the store
            raise

    def catch_up(self, generation: Generation, *, first: bool) -> None:
        """Wait until the views are built."""
        assert generation.query is not None
        limit = self._generations.configuration.settings.swap.catch_up_timeout_seconds
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
            self._tend()

    def _take_up(self, plan: Plan) -> Generation | None:
        """The first build that a crash interrupted, where it was of this plan."""
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        if begun.plan != plan:
            self._generations.clear(begun.generation)
            return None
        return self._generations.resume(begun)

    def _enter(self, generation: Generation, state: SwapState) -> None:
        generation.state = state
        self._generations.ledger.set_status(state=state.value)


def _build_failed(why: str) -> TurnoutError:
    return TurnoutError("build_failed", f"the build failed: {why}", "fix the cause, then send the message again")


def _too_slow(generation: Generation, limit: float) -> TurnoutError:
    left = generation.offsets.behind(generation.target)
    return TurnoutError(
        "build_timeout",
        f"the build did not catch up within {limit:g} seconds ({left:,} records were left)",
        "raise swap.catch_up_timeout_seconds, or start later in the topics",
    )
