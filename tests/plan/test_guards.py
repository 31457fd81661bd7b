"""Guards of a swap: which are broken is compared with a plain computation over whole numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnout.config.settings import GuardSettings, OnBreak
from turnout.plan.guards import Figures, GuardLimits, Matched, broken_guards

VIEWS = ("final_ui", "other")
COUNTS = st.integers(0, 12) | st.integers(0, 10**12)
PERCENTS = st.none() | st.integers(0, 100)


@st.composite
def figures(draw: st.DrawFn) -> Figures:
    views = draw(st.sets(st.sampled_from(VIEWS)))
    matched = {}
    for view in views:
        left = draw(COUNTS)
        matched[view] = Matched(view, left, draw(st.integers(0, left)))
    read = draw(COUNTS)
    return Figures(
        rows={view: draw(COUNTS) for view in views},
        matched=matched,
        read=read,
        bad=draw(st.integers(0, read)),
        not_begun=frozenset(draw(st.sets(st.sampled_from(VIEWS)))),
    )


def plainly(percents: tuple[int | None, ...], before: Figures, after: Figures) -> set[tuple[str, str]]:
    """The guards that are broken, and the view of each."""
    min_rows, min_matched, max_bad = percents
    found = set()
    for view in VIEWS:
        if view not in before.rows or view not in after.rows or view in after.not_begun:
            continue
        if min_rows is not None and 100 * after.rows[view] < min_rows * before.rows[view]:
            found.add(("min_rows", view))
        old, new = before.matched[view], after.matched[view]
        asked = min_matched if old.left and new.left else None
        if asked is not None and 100 * new.matched * old.left < asked * old.matched * new.left:
            found.add(("min_matched", view))
    if max_bad is not None and 100 * after.bad > max_bad * after.read:
        found.add(("max_bad", ""))
    return found


@given(st.tuples(PERCENTS, PERCENTS, PERCENTS), figures(), figures())
def test_broken_guards_are_those_of_a_plain_computation(
    percents: tuple[int | None, ...], before: Figures, after: Figures
) -> None:
    given = dict(zip(("min_rows", "min_matched", "max_bad"), percents, strict=True))
    limits = GuardLimits(**{name: Fraction(share, 100) for name, share in given.items() if share is not None})
    broken = broken_guards(limits, before, after)
    views = {"min_rows": 0, "min_matched": 0}
    assert {(one.guard, one.text.split()[0] if one.guard in views else "") for one in broken} == plainly(
        percents, before, after
    )


@given(figures())
def test_same_figures_break_no_guard_of_rows_and_matches(shown: Figures) -> None:
    limits = GuardLimits(Fraction(1), Fraction(1))
    assert broken_guards(limits, shown, shown) == []


def test_broken_guard_is_told_with_both_figures() -> None:
    limits = GuardSettings(min_rows="50%", min_matched="80%", max_bad="0.5%").limits
    before = Figures({"final_ui": 2_000}, {"final_ui": Matched("final_ui", 2_000, 1_500)})
    after = Figures({"final_ui": 3}, {"final_ui": Matched("final_ui", 3, 1)}, 1_000, 50)
    assert [str(one) for one in broken_guards(limits, before, after)] == [
        "min_rows: final_ui has 3 rows instead of 2,000; at least 50% of these are required",
        "min_matched: final_ui matches 33.33% of its left rows (1 of 3) instead of 75% (1,500 of 2,000); "
        "at least 80% of that is required",
        "max_bad: 50 of 1,000 records have faults (5%); at most 0.5% may",
    ]


def test_guards_are_off_unless_configured() -> None:
    guards = GuardSettings()
    assert (guards.limits, guards.on_break, guards.watch) == (GuardLimits(), OnBreak.REJECT, False)


@pytest.mark.parametrize("text", ["50", "101%", "-1%", "50 %", "half", "100.5%", "", 0.5])
def test_guard_that_is_no_percentage_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        GuardSettings(min_rows=text)


@pytest.mark.parametrize(("text", "share"), [("50%", "1/2"), ("0%", "0"), ("100%", "1"), ("0.25%", "1/400")])
def test_percentage_is_exact(text: str, share: str) -> None:
    assert GuardSettings(max_bad=text).limits.max_bad == Fraction(share)
