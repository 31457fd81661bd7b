"""The builder tells the end of the process from a failure."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, cast

import pytest

from turnout.config import Settings
from turnout.config.tables import first_plan
from turnout.errors import TurnoutError
from turnout.plan.plan import Plan
from turnout.swap.builder import Builder, Site, Stopping


class Closed:
    """An engine and generations whose clients are closed."""

    def blamed(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

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
    site = Site(Settings(), closed, cast(Any, None), ends, lambda *_: None, lambda _: None, lambda: None)
    builder, plan = Builder(site, closed, None), first_plan(Settings())
    with pytest.raises(kind):
        builder.validate(plan)
    with pytest.raises(kind):
        builder.build(plan, first=False)
