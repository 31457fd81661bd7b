"""Views whose steps join by different columns equal a plain computation, whatever the records, batches and restarts."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from fed import Course, FedGeneration, courses
from lengths import CHAINS_EXAMPLES
from oracle import Kept, Link, Sent
from turnout.config import Settings, parse
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets
from turnout.store.feed import Commit, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"orders": ("id", "x", "y"), "users": ("id", "x", "z"), "branches": ("id", "z", "w")}
"""Columns of all three have the same few values, so that any two of them can be joined."""

values = st.sampled_from(["1", "2", "3", None])


@dataclass(frozen=True, slots=True)
class Case:
    """One random run, and what is configured."""

    course: Course
    rows: dict[str, str]
    max_rows: dict[str, int | None]
    links: list[Link]
    in_parts: bool
    """Whether everything goes step by step, through files."""


@st.composite
def records(draw: st.DrawFn) -> list[Sent]:
    ends: dict[tuple[str, int], int] = {}
    found = []
    for _ in range(draw(st.integers(0, 24))):
        source, partition = draw(st.sampled_from(list(COLUMNS))), draw(st.integers(0, 1))
        offset = ends.get((source, partition), 0)
        ends[source, partition] = offset + 1
        row = {column: draw(values) for column in COLUMNS[source]}
        value = None if draw(st.integers(0, 7)) == 0 else json.dumps(row).encode()
        key = row["id"].encode() if row["id"] else None
        found.append(Sent(source, partition, offset, draw(st.integers(0, 4)), key, value))
    return found


@st.composite
def links(draw: st.DrawFn) -> list[Link]:
    """Steps over any columns that are there by then, but for those that a semi or anti join takes away."""
    there = list(COLUMNS["orders"])
    taken, found = list(there), []
    for right in ("users", "branches"):
        on = draw(st.sampled_from(there)), draw(st.sampled_from(COLUMNS[right]))
        link = Link(right, *on, draw(st.sampled_from(list(Join))), draw(st.sampled_from(list(Duplicates))))
        names = oracle.names_of(link, COLUMNS[right], taken)
        taken += names.values()
        if link.join not in (Join.SEMI, Join.ANTI):
            there += names.values()
        found.append(link)
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = {source: draw(st.sampled_from(["all", "latest"])) for source in COLUMNS}
    return Case(
        course=draw(courses(records())),
        rows=rows,
        max_rows={s: draw(st.sampled_from([None, None, 4])) if rows[s] == "all" else None for s in COLUMNS},
        links=draw(links()),
        in_parts=draw(st.booleans()),
    )


def steps_of(links: list[Link]) -> list[dict[str, Any]]:
    return [
        {
            "right": link.right,
            "on": {"left": link.left_on, "right": link.right_on},
            "join": link.join.value,
            "duplicates": link.duplicates.value,
        }
        for link in links
    ]


def configured(case: Case, folder: Path) -> Settings:
    sources: dict[str, dict[str, Any]] = {}
    for name, columns in COLUMNS.items():
        sources[name] = {"topic": name, "table": f"{name}_ui", "key": "id", "rows": case.rows[name]}
        sources[name]["columns"] = dict.fromkeys(columns, "string")
        if case.max_rows[name]:
            sources[name]["max_rows"] = case.max_rows[name]
    views = {"chain": {"left": "orders", "steps": steps_of(case.links)}}
    return parse({"sources": sources, "views": views}, folder, {})


class Mirror:
    """The rows of the view by their identity, as a subscriber has them: from what each batch tells alone."""

    def __init__(self, fed: FedGeneration) -> None:
        self.rows: dict[str, dict[str, Any]] | None = None
        self._follow(fed)

    def _follow(self, fed: FedGeneration) -> None:
        self._feed = fed.database.feed
        self._feed.want([("chain", Wanted(every=True))])
        self._feed.listen(self._take)

    def _take(self, commit: Commit | None) -> None:
        delta = commit and commit.deltas.get("chain")
        if not delta or self.rows is None:
            return
        for row in delta.removed.to_pylist():
            del self.rows[row["_row"]]
        for row in delta.added.to_pylist():
            assert row["_row"] not in self.rows
            self.rows[row["_row"]] = row

    def compare(self, fed: FedGeneration, *, views: bool) -> None:
        with fed.database.read() as cursor:
            shown = cursor.execute("FROM chain").to_arrow_table().to_pylist()
        if fed.database.feed is not self._feed:
            self._follow(fed)
        elif self.rows is not None:
            assert oracle.bag(map(_public, self.rows.values())) == oracle.bag(map(_public, shown))
        self.rows = {row["_row"]: row for row in shown} if views else None
        assert not views or len({row["_row"] for row in shown}) == len(shown)


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_") or name == "_row"}


def compare(case: Case, fed: FedGeneration, mirror: Mirror, seen: list[Sent], *, views: bool) -> None:
    rows: dict[str, list[Kept]] = {}
    for name, columns in COLUMNS.items():
        shape = dict.fromkeys(columns, "string")
        source = oracle.Source(name, name, "id", shape, case.rows[name] == "latest", case.max_rows[name])
        rows[name] = oracle.shown(source, oracle.read_source(source, seen)[0])
        assert oracle.bag(fed.rows(f"{name}_ui")) == oracle.bag(k.row for k in rows[name])
    mirror.compare(fed, views=views)
    if not views:
        return
    assert oracle.bag(fed.rows("chain")) == oracle.bag(oracle.chain_rows(rows, "orders", COLUMNS, case.links))
    expected = oracle.chain_quality(rows, "orders", COLUMNS, case.links)
    assert {row.pop("view"): row for row in fed.rows("join_quality")} == {
        f"chain.{right}": quality for right, quality in expected.items()
    }


@settings(max_examples=CHAINS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_chains_over_any_columns_equal_a_plain_computation(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if case.in_parts:
            patched.setattr("turnout.spark.writing.SMALL_BATCH", 0)
            patched.setattr("turnout.spark.writing.PART_ROWS", 5)
        before = Offsets({(source, partition): 0 for source in COLUMNS for partition in range(2)})
        target = case.course.target(before)
        fed = FedGeneration(spark, configured(case, Path(folder)), Path(folder), before, target)
        case.course.play(fed, before, partial(compare, case, fed, Mirror(fed)))
