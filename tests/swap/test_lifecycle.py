"""The lifecycle after Spark was started anew, with queries that only say whether they run."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.config.settings import SwapSettings
from turnout.swap.health import Health, Subject
from turnout.swap.lifecycle import Lifecycle


class Query:
    def __init__(self) -> None:
        self.running = False
        self.idle = False

    def start(self, *, careful: bool = False) -> None:
        self.running = True

    def failure(self) -> str | None:
        return None


class Makes:
    def give_query(self, generation: Any) -> None:
        generation.query = Query()


def generation(number: int) -> Any:
    return SimpleNamespace(
        number=number, query=None, waiting=False, restarts=0, restart_at=float("inf"), lingering_since=float("inf")
    )


@pytest.fixture
def health() -> Health:
    made = Health(lambda level, text: None, "starting")
    made.good(Subject.START)
    made.bad(Subject.SPARK, "Spark's JVM was killed")
    return made


@pytest.fixture
def lifecycle(health: Health) -> Lifecycle:
    made = Lifecycle(SwapSettings(), health, lambda level, text: None)
    made.live, made.candidate, made.lingering = generation(2), generation(3), [generation(1)]
    made.go_on(Makes())  # type: ignore[arg-type]
    return made


def running(lifecycle: Lifecycle) -> list[int]:
    return [one.number for one in lifecycle.all() if one.query is not None and one.query.running]


def test_published_generation_reads_first_and_others_once_it_has(lifecycle: Lifecycle, health: Health) -> None:
    lifecycle.maintain()
    lifecycle.maintain()
    assert running(lifecycle) == [2]
    assert health.trouble() is not None, "it has started, and not read yet"
    assert lifecycle.live is not None
    lifecycle.live.restarts = 0  # as a finished batch leaves it
    lifecycle.maintain()
    assert health.trouble() is None
    assert running(lifecycle) == [2, 3, 1]


def test_generation_without_new_records_is_ready_once_its_query_is_idle(lifecycle: Lifecycle, health: Health) -> None:
    lifecycle.maintain()
    query: Any = lifecycle.live.query if lifecycle.live else None
    query.idle = True
    lifecycle.maintain()
    assert health.trouble() is None


def test_no_more_generations_linger_than_are_allowed_from_the_moment_of_a_swap(lifecycle: Lifecycle) -> None:
    lifecycle.lingering[0].lingering_since = time.monotonic()
    for number in range(4, 7):
        lifecycle.replace(lifecycle.live, generation(number))
        lingering = [one.number for one in lifecycle.lingering]
        assert len(lingering) == lifecycle.settings.max_linger_generations == 2
    assert lingering == [4, 5]
