"""Views whose steps join by different columns equal a plain computation, whatever the records, batches and restarts."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from fed_generation import Course, FedGeneration, courses, places
from in_process_orchestrator import orchestrated
from lengths import CHAINS_EXAMPLES, LONG, PART_ROWS
from oracle import Kept, Link, Sent
from turnout.config import Settings, parse
from turnout.config.document import parse_yaml
from turnout.config.tables import first_plan, layout_of
from turnout.local.broker import EmbeddedBroker
from turnout.plan.control import Outcome
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets
from turnout.plan.tables import ChainView
from turnout.spark.jvm.session import TaskSize
from turnout.store.feed import Commit, Wanted
from turnout.testing import create_topic, produce, wait_until

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
    views: dict[str, list[Link]]
    in_parts: bool
    """Whether everything goes step by step, through files."""
    colliding: bool
    """Whether different values have one hash."""
    max_rows_per_key: int | None = None


@st.composite
def records(draw: st.DrawFn) -> list[Sent]:
    found = []
    for source, partition, offset in places(draw, COLUMNS):
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
        views={"chain": draw(links())},
        in_parts=draw(st.booleans()),
        colliding=draw(st.booleans()),
        max_rows_per_key=draw(st.sampled_from([None, 1, 2, 4])),
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
    bound = {"max_rows_per_key": case.max_rows_per_key} if case.max_rows_per_key else {}
    views = {name: {"left": "orders", "steps": steps_of(links)} | bound for name, links in case.views.items()}
    return parse({"sources": sources, "views": views}, folder, {})


def few_hashes(key: str) -> str:
    return f"hash(CAST({key} AS VARCHAR)) % 3"


class Mirror:
    """The rows of views by their identity, as a subscriber has them: from what each batch tells alone."""

    def __init__(self, fed: FedGeneration, views: Collection[str]) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = {}
        self._views = views
        self._follow(fed)

    def _follow(self, fed: FedGeneration) -> None:
        self._feed = fed.database.feed
        self._feed.want([(view, Wanted(every=True)) for view in self._views])
        self._feed.listen(self._take)

    def _take(self, commit: Commit | None) -> None:
        for view, rows in self.rows.items():
            delta = commit and commit.deltas.get(view)
            if not delta:
                continue
            for row in delta.removed.to_pylist():
                del rows[row["_row"]]
            for row in delta.added.to_pylist():
                assert row["_row"] not in rows
                rows[row["_row"]] = row

    def compare(self, fed: FedGeneration, *, views: bool) -> None:
        shown: dict[str, dict[str, dict[str, Any]]] = {}
        for view in self._views:
            with fed.database.read() as cursor:
                rows = cursor.sql(f"FROM {view}").to_arrow_table().to_pylist()
            shown[view] = {row["_row"]: row for row in rows}
            assert not views or len(shown[view]) == len(rows)
        if fed.database.feed is not self._feed:
            self._follow(fed)
        else:
            for view, followed in self.rows.items():
                assert _bag(followed) == _bag(shown[view]), view
        self.rows = shown if views else {}


def _bag(rows: dict[str, dict[str, Any]]) -> Any:
    return oracle.bag(map(_public, rows.values()))


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
    expected: dict[str, Any] = {}
    latest = {name: "id" for name in COLUMNS if case.rows[name] == "latest"}
    for view, links in case.views.items():
        out = oracle.chain_left_out(rows, latest, "orders", COLUMNS, links, case.max_rows_per_key)
        assert oracle.bag(fed.rows(view)) == oracle.bag(oracle.chain_rows(rows, "orders", COLUMNS, links, out)), view
        qualities = oracle.chain_quality(rows, "orders", COLUMNS, links, out)
        expected |= {f"{view}.{right}": quality for right, quality in qualities.items()}
    assert {row.pop("view"): row for row in fed.rows("join_quality")} == expected


def play(case: Case, spark: SparkSession, folder: Path) -> None:
    before = Offsets({(source, partition): 0 for source in COLUMNS for partition in range(2)})
    fed = FedGeneration(spark, configured(case, folder), folder, before, case.course.target(before))
    case.course.play(fed, before, partial(compare, case, fed, Mirror(fed, case.views)))


@settings(max_examples=CHAINS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_chains_over_any_columns_equal_a_plain_computation(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if case.colliding:
            for module in ("batch_rows", "views.chained"):
                patched.setattr(f"turnout.store.{module}.hash_sql", few_hashes)
        if case.in_parts:
            patched.setattr("turnout.spark.writing.SMALL_BATCH", 0)
            patched.setattr("turnout.spark.writing.PART_ROWS", TaskSize(PART_ROWS, PART_ROWS // 3))
        play(case, spark, Path(folder))


FEW = 1 if LONG else 3
"""How many records a batch has where one of each would cost most."""


def sent(source: str, offset: int, /, key: str, **row: str) -> Sent:
    """A record, or a tombstone where there is no row."""
    return Sent(source, 0, offset, offset, key.encode(), json.dumps({"id": key} | row).encode() if row else None)


@pytest.mark.parametrize(
    ("firsts", "in_parts", "records_each"),
    [((Join.INNER,), False, 1), ((Join.ANTI, Join.FULL), False, FEW), ((Join.SEMI,), True, FEW)],
)
def test_right_row_is_shown_alone_only_while_nothing_matches_it(
    spark: SparkSession,
    tmp_path: Path,
    firsts: tuple[Join, ...],
    in_parts: bool,
    records_each: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever brings and takes what matches it: the left row itself, or a row that a step before it needs."""
    records = [
        sent("branches", 0, "b", z="1", w="1"),
        sent("orders", 0, "o", x="1", y="1"),
        sent("orders", 1, "p", x="1", y="2"),
        sent("users", 0, "u", x="1", z="2"),
        sent("branches", 1, "c", z="2", w="2"),
        sent("orders", 2, "o", x="1", y="2"),
        sent("users", 1, "u", x="2", z="1"),
        sent("users", 2, "v", x="1", z="1"),
        sent("orders", 3, "p"),
        sent("users", 3, "v"),
        sent("branches", 2, "b", z="2", w="2"),
        sent("orders", 4, "o"),
    ]
    if in_parts:
        monkeypatch.setattr("turnout.spark.writing.SMALL_BATCH", 0)
    last = Link("branches", "y", "z", Join.FULL, Duplicates.ALL)
    views = {f"chain_{first}": [Link("users", "x", "x", first, Duplicates.LATEST), last] for first in firsts}
    course = Course(records, list(range(1, len(records), records_each)), {3}, caught_up_after=0)
    play(
        Case(course, dict.fromkeys(COLUMNS, "latest"), dict.fromkeys(COLUMNS), views, in_parts, colliding=False),
        spark,
        tmp_path,
    )


@pytest.mark.parametrize("last", list(Join))
def test_step_by_a_column_that_a_semi_join_took_away_matches_nothing(
    spark: SparkSession, tmp_path: Path, last: Join
) -> None:
    """No file and no message says so; a plan of before can, beside a file that was changed."""
    from turnout.spark.views.runner import view_runner

    steps = [{"right": "users", "on": "x"}, {"right": "branches", "on": "z", "join": last.value}]
    sources = {
        name: {"topic": name, "table": f"{name}_ui", "key": "id", "columns": dict.fromkeys(columns, "string")}
        for name, columns in COLUMNS.items()
    }
    parsed = parse({"sources": sources, "views": {"chain": {"left": "orders", "steps": steps}}}, tmp_path, {})
    [view] = layout_of(parsed, first_plan(parsed).with_(joins={"chain": Join.SEMI})).views
    assert isinstance(view, ChainView)
    assert view.unmatchable_step == view.chain.steps[1]
    number = pa.array([7], pa.int64())
    names = [[f"k{place + 1}" for place in range(len(used))] for used in view.chain.used]
    rows = {f"side_{at}": pa.table(dict.fromkeys([*own, "_id"], number)) for at, own in enumerate(names)}
    found = view_runner(spark).over_rows(view, rows, unique=True).to_pylist()
    left, right = {"_id": 7, "_right_id_2": None}, {"_id": None, "_right_id_2": 7}
    expected: dict[Join, list[oracle.Row]]
    expected = {Join.INNER: [], Join.SEMI: [], Join.ANTI: [{"_id": 7}], Join.RIGHT: [right], Join.FULL: [left, right]}
    assert oracle.bag(found) == oracle.bag(expected.get(last, [left]))


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "chains.md"


def of_the_page(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> dict[str, Any]:
    """The file of the how-to page, on topics of its own."""
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    document: dict[str, Any]
    document, wrong = parse_yaml(found[1])
    assert not wrong
    document.pop("kafka")
    document |= {"start": "earliest", "control": {"topic": topic_name("control")}}
    for name, source in document["sources"].items():
        source["topic"] = topic_name(name)
    for topic in (document["control"]["topic"], *(source["topic"] for source in document["sources"].values())):
        create_topic(broker.bootstrap_servers, topic, 1)
    return document


def test_chain_of_the_how_to_page_follows_its_topics_and_swaps(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    document = of_the_page(broker, topic_name)
    topics = {name: source["topic"] for name, source in document["sources"].items()}
    produce(
        broker.bootstrap_servers,
        topics["orders"],
        [{"orderId": f"o{i}", "userId": f"u{i % 3}", "amount": i} for i in range(6)],
    )
    people = [{"userId": f"u{i}", "name": f"name {i}", "branch": f"b{i}"} for i in range(2)]
    produce(broker.bootstrap_servers, topics["users"], people)
    produce(broker.bootstrap_servers, topics["branches"], [{"branchId": "b0", "name": "Main", "city": "Bern"}])

    def shown() -> list[tuple[Any, ...]]:
        rows = running.rows("orders_by_branch")
        return sorted((row["orderId"], row["name"], row["branchId"], row["city"]) for row in rows)

    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **document) as running:
        assert list(running.rows("orders_by_branch")[0]) == [
            *("orderId", "userId", "amount", "name", "branch", "branchId", "branches_name", "city")
        ]
        before = [
            *(("o0", "name 0", "b0", "Bern"), ("o1", "name 1", None, None), ("o2", None, None, None)),
            *(("o3", "name 0", "b0", "Bern"), ("o4", "name 1", None, None), ("o5", None, None, None)),
        ]
        assert shown() == before
        assert [(row["view"], row["matched"]) for row in running.rows("join_quality")] == [
            ("orders_by_branch.users", 4),
            ("orders_by_branch.branches", 1),
        ]
        produce(broker.bootstrap_servers, topics["branches"], [{"branchId": "b1", "name": "West", "city": "Genf"}])
        wait_until(lambda: ("o4", "name 1", "b1", "Genf") in shown(), what="the branch to reach its orders")
        produce(broker.bootstrap_servers, topics["users"], [{"userId": "u0", "name": "moved", "branch": "b1"}])
        moved = [("o0", "moved", "b1", "Genf"), ("o3", "moved", "b1", "Genf")]
        wait_until(lambda: set(moved) <= set(shown()), what="the user's orders to change")

        other = topic_name("users")
        create_topic(broker.bootstrap_servers, other, 1)
        produce(broker.bootstrap_servers, other, [{"userId": "u2", "name": "other", "branch": "b1"}])
        report = running.send(usersTopic=other, dryRun=True).report
        assert report is not None
        assert report["sampleUnmatched"] == {
            "orders_by_branch.users": ["u0", "u1"],
            "orders_by_branch.branches": [],
        }
        assert running.send(usersTopic=other).outcome is Outcome.APPLIED
        nobody = [(f"o{i}", None, None, None) for i in (0, 1, 3, 4)]
        assert shown() == sorted([*nobody, ("o2", "other", "b1", "Genf"), ("o5", "other", "b1", "Genf")])
        # The join of a message is that of the step which names none.
        assert running.send(joinType="inner").outcome is Outcome.APPLIED
        assert [order for order, *_ in shown()] == ["o2", "o5"]
        refused = running.send(joinType="anti")
        assert refused.outcome is Outcome.REJECTED
        assert "the step to 'branches' has no column 'branch'" in str(refused)
        assert [order for order, *_ in shown()] == ["o2", "o5"]
