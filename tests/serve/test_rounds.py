"""Rounds: clients take turns, nobody waits for ever, and a place rests between its rounds.

A loop with a clock of its own makes waiting exact: time passes only when nothing else is to be done.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.serve.rounds import Rounds

T = TypeVar("T")


class _Clock(selectors.SelectSelector):
    """A selector that does not wait: it sets the clock on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def play(story: Coroutine[Any, Any, T]) -> T:
    clock = _Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(story)


@dataclass
class Worker:
    """Works for a second on each round, and notes what it was given and when."""

    rounds: list[tuple[float, list[str]]] = field(default_factory=list)
    cancelled: int = 0

    async def work(self, items: Sequence[str]) -> list[str | Exception]:
        self.rounds.append((asyncio.get_running_loop().time(), list(items)))
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [ValueError(item) if item.startswith("bad") else item.upper() for item in items]

    @property
    def items(self) -> list[str]:
        return [item for _, items in self.rounds for item in items]


def ask_all(rounds: Rounds[str, str, str], items: Sequence[str]) -> list[asyncio.Task[str]]:
    """Ask for each; its first letter is its client."""
    return [asyncio.ensure_future(rounds.ask(item[0], item)) for item in items]


async def answers(rounds: Rounds[str, str, str], items: Sequence[str]) -> list[Any]:
    return await asyncio.gather(*ask_all(rounds, items), return_exceptions=True)


questions = st.lists(st.sampled_from("abcd"), max_size=30).map(
    lambda clients: [f"{client}{number}" for number, client in enumerate(clients)]
)


@given(questions, st.integers(1, 5), st.floats(0, 3))
def test_every_question_is_answered_once_in_the_order_of_its_client(items: list[str], most: int, rest: float) -> None:
    worker = Worker()

    async def story() -> tuple[list[Any], Counter[str]]:
        rounds: Rounds[str, str, str] = Rounds(worker.work, most=most, rest_seconds=lambda *_: rest)
        made = await answers(rounds, items)
        await asyncio.sleep(rest)
        await asyncio.sleep(0)
        return made, rounds.running

    made, running = play(story())
    assert made == [item.upper() for item in items]
    assert not running
    assert all(len(taken) <= most for _, taken in worker.rounds)
    for client in "abcd":
        assert [item for item in worker.items if item[0] == client] == [item for item in items if item[0] == client]


@given(questions, st.integers(1, 5))
def test_no_client_has_a_second_turn_while_another_waits_for_its_first(items: list[str], most: int) -> None:
    worker = Worker()
    play(answers(Rounds(worker.work, most=most), items))
    # The first question begins a round at once; all others wait together.
    served = worker.items[1:]
    for index, item in enumerate(served):
        later = {other[0] for other in served[index + 1 :]}
        turns = Counter(other[0] for other in served[: index + 1])
        assert all(turns[item[0]] <= turns[other] + 1 for other in later)


@given(st.integers(1, 40), st.integers(1, 4))
def test_client_that_asks_all_the_time_does_not_starve_another(others: int, most: int) -> None:
    worker = Worker()

    async def story() -> None:
        rounds: Rounds[str, str, str] = Rounds(worker.work, most=most)

        async def greedy() -> None:
            while True:
                await answers(rounds, [f"a{number}" for number in range(others)])

        task = asyncio.ensure_future(greedy())
        await asyncio.sleep(0.5)
        await rounds.ask("b", "b")
        task.cancel()

    play(story())
    before = worker.rounds[: next(number for number, (_, items) in enumerate(worker.rounds) if "b" in items)]
    assert len(before) <= 2


@given(questions, st.integers(1, 5), st.floats(0.25, 3))
def test_place_rests_after_each_round(items: list[str], most: int, part: float) -> None:
    worker = Worker()
    play(answers(Rounds(worker.work, most=most, rest_seconds=lambda _, seconds: part * seconds), items))
    began = [time for time, _ in worker.rounds]
    assert [b - a for a, b in pairwise(began)] == pytest.approx([1 + part] * (len(began) - 1))


@given(questions, st.sets(st.integers(0, 29)), st.integers(1, 5), st.floats(0, 5))
def test_callers_that_leave_hold_up_nobody(items: list[str], leaving: set[int], most: int, after: float) -> None:
    worker = Worker()

    async def story() -> tuple[list[Any], int]:
        rounds: Rounds[str, str, str] = Rounds(worker.work, most=most)
        tasks = ask_all(rounds, items)
        await asyncio.sleep(after)
        for number in leaving & set(range(len(items))):
            tasks[number].cancel()
        stay = [task for number, task in enumerate(tasks) if number not in leaving]
        made = await asyncio.gather(*stay)
        await asyncio.sleep(2)
        return made, rounds.running.total() + sum(map(rounds.waiting, "abcd"))

    made, rest = play(story())
    assert made == [item.upper() for number, item in enumerate(items) if number not in leaving]
    assert rest == 0


def test_work_is_cancelled_when_all_who_asked_for_it_have_gone() -> None:
    worker = Worker()

    async def story() -> list[str]:
        rounds: Rounds[str, str, str] = Rounds(worker.work, most=2)
        first, second, third = ask_all(rounds, ["a1", "b1", "c1"])
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.sleep(0.1)
        assert worker.cancelled == 0, "another waits for it"
        second.cancel()
        return [await third]

    assert play(story()) == ["C1"]
    assert worker.cancelled == 1
    assert [time for time, _ in worker.rounds] == pytest.approx([0, 0.6])


def test_fault_of_one_question_is_its_own_and_a_fault_of_the_round_is_told_to_all() -> None:
    async def broken(_: Sequence[str]) -> list[str | Exception]:
        raise ValueError("no round")

    assert [str(made) for made in play(answers(Rounds(Worker().work, most=3), ["a", "bad", "c"]))] == ["A", "bad", "C"]
    assert [str(made) for made in play(answers(Rounds(broken, most=2), ["a", "b", "c"]))] == ["no round"] * 3


def test_places_are_given_as_their_rule_says_and_a_line_without_one_holds_up_no_other() -> None:
    worker = Worker()

    async def story() -> None:
        def may_begin(client: str) -> bool:
            return rounds.running.total() < 3 and rounds.running[client] < 2

        rounds: Rounds[str, str, str] = Rounds(worker.work, may_begin=may_begin)
        assert rounds.is_free("a")
        tasks = ask_all(rounds, ["a1", "a2", "a3", "a4", "b1", "b2"])
        await asyncio.sleep(0.5)
        assert not rounds.is_free("a") and not rounds.is_free("c")
        await asyncio.gather(*tasks)

    play(story())
    assert worker.rounds == [(0.0, [item]) for item in ("a1", "a2", "b1")] + [(1.0, [i]) for i in ("a3", "b2", "a4")]


def test_clients_take_turns() -> None:
    worker = Worker()

    async def story() -> None:
        tasks = ask_all(Rounds(worker.work), ["a1", "a2", "a3", "b1", "c1"])
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(story())
    assert worker.items == ["a1", "a3", "b1", "c1"]


def test_client_with_many_questions_does_not_hold_up_another() -> None:
    worker = Worker()
    play(answers(Rounds(worker.work), ["a1", "a2", "a3", "a4", "b1"]))
    assert worker.items == ["a1", "a2", "b1", "a3", "a4"]
