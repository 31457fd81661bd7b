"""A generation that keeps sources equals one that had its plan since they were first read."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_exactness import Case, Runner, cases, compare, settings_of

from fed_generation import Course
from lengths import BATCHES_EXAMPLES
from oracle import Sent
from turnout.plan.joins import Duplicates, Join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

views = st.tuples(
    st.lists(st.sampled_from(list(Join)), min_size=1, max_size=2, unique=True),
    st.sampled_from(list(Duplicates)),
    st.sampled_from([None, 1, 2, 4]),
)
"""Joins, duplicates and the bound of a key's rows of the views after a swap."""


@settings(max_examples=BATCHES_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), swaps=st.lists(st.none() | views, min_size=5, max_size=5))
def test_tables_with_kept_sources_equal_a_plain_computation(
    spark: SparkSession, case: Case, swaps: list[tuple[list[Join], Duplicates, int | None] | None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(spark, case, Path(folder))
        seen: list[Sent] = []
        for number, records, end in case.course.batches(runner.start):
            runner.feed(number, records, end)
            seen += records
            built = end.reached(runner.target)
            if built and (asked := swaps[number]) is not None:
                joins, duplicates, most = asked
                case = replace(case, joins=joins, duplicates=duplicates, max_rows_per_key=most)
                runner.swap(settings_of(case, Path(folder)))
            if number in case.course.restarts:
                runner.restart()
            compare(case, runner, seen, views=built)
        runner.database.close()


VIEWS: dict[str, list[dict[str, Any]]] = {
    "joined": [{"left": "users", "right": "accounts", "on": "userId", "join": join} for join in ("left", "right")],
    "paired": [
        {"left": "users", "right": "accounts", "on": "userId", "join": "full", "duplicates": "all"}
        | {"max_rows_per_key": most}
        for most in (1, 4)
    ],
    "chained": [
        {
            "left": "users",
            "steps": [
                {"right": "accounts", "on": {"left": "name", "right": "accountType"}, "join": join, "duplicates": "all"}
            ],
            "max_rows_per_key": 2,
        }
        for join in ("full", "inner")
    ],
    "counted": [
        {
            "sources": ["users", "accounts"],
            "on": "userId",
            "columns": {"userId": "string", "n": "int64"},
            "sql": f"SELECT userId, count({what}) AS n FROM users JOIN accounts USING (userId) GROUP BY userId",
        }
        for what in ("*", "balance")
    ],
}
"""The views that a file may have, each in two ways."""

files = (
    st.fixed_dictionaries({name: st.sampled_from([None, *ways]) for name, ways in VIEWS.items()})
    .map(lambda chosen: {name: view for name, view in chosen.items() if view})
    .filter(bool)
)


@settings(max_examples=BATCHES_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), first=files, swaps=st.lists(st.none() | st.tuples(files, st.booleans()), min_size=5, max_size=5))
def test_kept_views_equal_built_ones(
    spark: SparkSession,
    case: Case,
    first: dict[str, Any],
    swaps: list[tuple[dict[str, Any], bool] | None],
) -> None:
    """Also while other views wait for records, of which a kept view has each."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(spark, case, Path(folder), views=first)
        batches = list(case.course.batches(runner.start))
        for (number, records, end), following in zip(batches, [*batches[1:], None], strict=True):
            runner.feed(number, records, end)
            if not end.reached(runner.target):
                continue
            assert runner.other_than_built() == {}
            if (asked := swaps[number]) is not None:
                views, waits = asked
                runner.swap(settings_of(case, Path(folder), views=views), following[2] if waits and following else None)
        runner.database.close()


def test_hidden_rows_are_kept_because_they_may_be_shown_later(spark: SparkSession, tmp_path: Path) -> None:
    """The row of a key in another partition is hidden, until a tombstone of an earlier time ends the shown one."""
    first = [
        Sent("u", 0, 0, 10, b"k1", b'{"userId": "k1", "name": "shown"}'),
        Sent("u", 1, 0, 5, b"k1", b'{"userId": "k1", "name": "hidden"}'),
    ]
    tombstone = Sent("u", 0, 1, 3, b"k1", None)
    course = Course([*first, tombstone], [2], set(), caught_up_after=0)
    case = Case(course, ("latest", "all"), None, Duplicates.LATEST, [Join.LEFT])
    runner = Runner(spark, case, tmp_path)
    (_, some, end), (number, rest, last) = course.batches(runner.start)
    runner.feed(0, some, end)
    runner.swap(settings_of(replace(case, joins=[Join.FULL]), tmp_path))
    assert [row["name"] for row in runner.rows("users_ui")] == ["shown"]
    runner.feed(number, rest, last)
    assert [row["name"] for row in runner.rows("users_ui")] == ["hidden"]
    runner.database.close()
