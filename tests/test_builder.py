"""The builder tells the end of the process from a failure."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, cast

import pytest

from turnout.config import Settings
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.plan.plan import Plan
from turnout.plan.tables import Layout
from turnout.swap.builder import Builder, Stopping


class Closed:
    """An engine, a ledger and generations whose clients are closed."""

    settings = Settings()

    @property
    def ledger(self) -> Closed:
        return self

    def set_status(self, **values: Any) -> None:
        pass

    def blamed(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def layout(self, plan: Plan) -> Layout:
        return layout_of(self.settings, plan)

    def samples(self, plan: Plan) -> list[Any]:
        raise TurnoutError(code="closed", message="closed", status=503)

    def create(self, plan: Plan) -> Any:
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
