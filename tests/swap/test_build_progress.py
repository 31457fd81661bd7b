"""The progress of a build: it moves all the time, never back, and covers every step."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.plan.joins import Join
from turnout.plan.plan import Plan
from turnout.swap.build_progress import BuildMeter

PLAN = Plan({"users": "users", "accounts": "accounts"}, {"final_ui": Join.LEFT})


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> BuildMeter:
    return BuildMeter(7, PLAN, clock)


def test_progress_has_every_step_and_its_figures(progress: BuildMeter, clock: Clock) -> None:
    assert progress.to_json("validating") == {
        "generation": 7,
        "state": "validating",
        "plan": "users=users accounts=accounts join=left",
        "step": "validating",
        "records": 0,
        "recordsToRead": 0,
        "lag": 0,
        "percent": 0.0,
        "secondsLeft": None,
        "sources": {},
    }
    progress.read(1_000_000)
    at_start = progress.to_json("catching_up")
    assert (at_start["step"], at_start["recordsToRead"], at_start["secondsLeft"]) == ("reading", 1_000_000, None)
    clock.now += 2
    progress.read(500_000, 500_000)
    half = progress.to_json("catching_up")
    assert (half["records"], half["lag"], half["percent"]) == (500_000, 500_000, 37.0)
    assert 2 < half["secondsLeft"] < 4, "as long again, and the views"
    progress.views(0.0)
    assert (progress.to_json("catching_up")["step"], progress.percent()) == ("views", 72.0)
    clock.now += 1
    progress.views(0.5)
    progress.read(0, 1_000_000)
    built = progress.to_json("catching_up")
    assert (built["step"], built["percent"], built["lag"], built["secondsLeft"]) == ("views", 85.0, 0, 1.0)
    progress.publishing()
    last = progress.to_json("publishing")
    assert (last["step"], last["percent"]) == ("publishing", 98.0) and last["secondsLeft"] is not None


def test_progress_moves_every_second_while_nothing_is_reported(progress: BuildMeter, clock: Clock) -> None:
    progress.read(2_000_000)
    seen = []
    for _ in range(30):
        clock.now += 1
        seen.append(progress.percent())
    assert all(later > earlier for earlier, later in itertools.pairwise(seen)), seen
    assert seen[-1] < 72, "reading is not done"


def test_progress_of_a_build_without_records_goes_on_to_the_views(progress: BuildMeter) -> None:
    progress.read(0)
    assert (progress.to_json("catching_up")["step"], progress.percent()) == ("views", 72.0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "views", "wait"]), st.floats(0, 1), st.floats(0, 20)), min_size=1, max_size=20
)


@given(STEPS)
@example([("read", 0.0, 0.0), ("views", 5e-324, 2.0)])
def test_progress_never_goes_back_and_ends_below_a_hundred(steps: list[tuple[str, float, float]]) -> None:
    clock = Clock()
    progress = BuildMeter(1, PLAN, clock)
    progress.read(1000)
    before, in_views = 0.0, False
    for kind, share, seconds in steps:
        clock.now += seconds
        if kind == "read" and not in_views:
            progress.read(int(1000 * share))
        elif kind == "views":
            in_views = True
            progress.views(share)
        percent, left = progress.percent(), progress.seconds_left()
        assert before <= percent < 100
        assert left is None or left >= 0
        before = percent
    progress.publishing()
    assert before <= progress.percent() < 100
