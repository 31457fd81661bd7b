"""The builder tells the end of the process from a failure, and ends a build that is cancelled."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnout.config import Settings
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.plan.offsets import Offsets
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import SwapState
from turnout.plan.tables import Layout
from turnout.swap.builder import Builder, Cancelled, Stopping
from turnout.testing import patience


class Closed:
    """An engine, a ledger and generations whose clients are closed."""

    settings = Settings()

    @property
    def ledger(self) -> Closed:
        return self

    def set_status(self, **values: Any) -> None:
        pass

    def converting_errors(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def layout(self, plan: Plan) -> Layout:
        return layout_of(self.settings, plan)

    def samples(self, plan: Plan) -> list[Any]:
        raise TurnoutError(code="closed", message="closed", status=503)

    def create(self, plan: Plan, read: object) -> Any:
        raise TurnoutError(code="closed", message="closed", status=503)


@pytest.mark.parametrize(("stopping", "kind"), [(True, Stopping), (False, TurnoutError)])
def test_build_that_fails_as_the_process_ends_is_no_failure(stopping: bool, kind: type[Exception]) -> None:
    closed: Any = Closed()
    ends = threading.Event()
    if stopping:
        ends.set()
    builder = Builder(closed, cast(Any, None), closed, ends, lambda: None, None)
    plan = first_plan(Settings())
    with pytest.raises(kind):
        builder.validate(plan)
    with pytest.raises(kind):
        builder.build(plan, first=False)


class Built(Closed):
    """Generations whose builds have nothing to catch up on, and the lifecycle that they are part of."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.discarded: list[SwapState] = []
        self.building = self.progress = None

    def set_status(self, **values: Any) -> None:
        self.states.append(values["state"])

    def say(self, level: str, text: str) -> None:
        pass

    def begin(self, generation: Any) -> None:
        pass

    def discard(self, generation: Any) -> None:
        self.discarded.append(generation.state)

    @property
    def configuration(self) -> Built:
        return self

    def create(self, plan: Plan, read: object) -> Any:
        query = SimpleNamespace(start=lambda: None)
        nothing = Offsets({})
        return SimpleNamespace(
            number=2, plan=plan, start=nothing, target=nothing, query=query, views_built=True, progress=None, origins={}
        )


def test_build_that_is_cancelled_at_the_moment_of_its_publish_is_removed() -> None:
    built: Any = Built()

    def check() -> None:
        if SwapState.PUBLISHING.value in built.states:
            raise Cancelled

    builder = Builder(built, built, built, threading.Event(), lambda: None, None)
    with pytest.raises(Cancelled):
        builder.build(first_plan(Settings()), first=False, check=check)
    assert built.states == ["building", "catching_up", "publishing"]
    assert built.discarded == [SwapState.CANCELLED]


def test_validation_ends_with_what_the_check_raises_and_the_next_one_waits_for_its_samples() -> None:
    built: Any = Built()
    released, sampled = threading.Event(), []

    def samples(plan: Plan) -> list[Any]:
        released.wait(patience())
        sampled.append(plan)
        return []

    def check() -> None:
        raise Cancelled

    built.samples = samples
    builder = Builder(built, built, built, threading.Event(), lambda: None, None)
    plan = first_plan(Settings())
    with pytest.raises(Cancelled):
        builder.validate(plan, check)
    assert sampled == []
    released.set()
    assert builder.validate(plan) == []
    assert sampled == [plan, plan]
