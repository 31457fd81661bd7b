"""Keys that would have too many rows in a view are left out of it, are told, and come back when they have fewer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fed_generation import FedGeneration
from in_process_orchestrator import orchestrated
from oracle import Sent
from turnout.config import parse
from turnout.config.tables import first_plan, layout_of, layout_signature
from turnout.local.broker import EmbeddedBroker
from turnout.plan.joins import Join
from turnout.plan.offsets import Offsets
from turnout.store.left_out import most_rows
from turnout.testing import create_topic, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 400
"""Of so many rows on each side 160,000 pairs would be made, more than the default allows."""

COLUMNS = {"users": {"userId": "string", "name": "string"}, "accounts": {"userId": "string", "balance": "int64"}}


def sections(join: Join, **users: Any) -> dict[str, Any]:
    sources: dict[str, dict[str, Any]] = {
        name: {"topic": name, "table": f"{name}_ui", "key": "userId", "columns": columns}
        for name, columns in COLUMNS.items()
    }
    sources["users"] |= users
    view = {"left": "users", "right": "accounts", "on": "userId", "join": join.value, "duplicates": "all"}
    return {"sources": sources, "views": {"final_ui": view}}


def sent(topic: str, first: int, keys: Sequence[str]) -> list[Sent]:
    rows = [{"userId": key, "name": "n", "balance": 1} for key in keys]
    return [Sent(topic, 0, n, n, None, json.dumps(row).encode()) for n, row in enumerate(rows, first)]


class Feeder:
    """Feeds a generation, and counts offsets."""

    def __init__(self, spark: SparkSession, folder: Path, document: dict[str, Any], *, caught_up: bool) -> None:
        start = Offsets({("users", 0): 0, ("accounts", 0): 0})
        target = start if caught_up else Offsets({("users", 0): 1, ("accounts", 0): 1})
        self.fed = FedGeneration(spark, parse(document, folder, {}), folder, start, target)
        self._ends = {"users": 0, "accounts": 0}
        self._batches = 0

    def feed(self, **keys: Sequence[str]) -> None:
        records = []
        for topic, some in keys.items():
            records += sent(topic, self._ends[topic], some)
            self._ends[topic] += len(some)
        end = Offsets({(topic, 0): offset for topic, offset in self._ends.items()})
        self.fed.feed(self._batches, records, end)
        self._batches += 1

    def keys(self, table: str = "final_ui") -> dict[str, int]:
        """How many rows each key has."""
        with self.fed.database.read() as cursor:
            return dict(cursor.execute(f"SELECT userId, count(*) FROM {table} GROUP BY ALL").fetchall())

    def left_out(self) -> int:
        [quality] = self.fed.rows("join_quality")
        return int(quality["leftOutKeys"])


@pytest.mark.parametrize("caught_up", [True, False])
def test_key_with_too_many_pairs_is_left_out_and_others_are_not(
    spark: SparkSession, tmp_path: Path, caught_up: bool
) -> None:
    """By a batch of a generation that has caught up, and by the build of its views."""
    feeder = Feeder(spark, tmp_path, sections(Join.INNER), caught_up=caught_up)
    feeder.feed(users=["hot"] * MANY + ["a", "b"], accounts=["hot"] * MANY + ["a", "a", "c"])
    assert feeder.keys() == {"a": 2}
    assert feeder.left_out() == 1
    assert feeder.keys("users_ui") == {"hot": MANY, "a": 1, "b": 1}
    feeder.fed.restart()
    feeder.feed(users=["hot", "a"])
    assert feeder.keys() == {"a": 4}
    assert feeder.left_out() == 1
    feeder.fed.database.close()


@pytest.mark.parametrize("join", [Join.INNER, Join.LEFT, Join.FULL])
def test_key_comes_back_when_it_has_fewer_rows(spark: SparkSession, tmp_path: Path, join: Join) -> None:
    feeder = Feeder(spark, tmp_path, sections(join, max_rows=MANY), caught_up=True)
    feeder.feed(users=["hot"] * MANY, accounts=["hot"] * MANY)
    assert feeder.keys() == {}
    feeder.feed(users=["a"] * (MANY - 200))
    assert feeder.keys() == {"hot": 200 * MANY} | ({} if join is Join.INNER else {"a": MANY - 200})
    assert feeder.left_out() == 0
    assert feeder.fed.tables.left_out() == {"final_ui": {}}
    feeder.fed.database.close()


def test_another_bound_needs_other_tables_and_the_default_does_not(tmp_path: Path) -> None:
    document = sections(Join.INNER)
    plain = layout_signature(parse(document, tmp_path, {}))
    for bound, same in ((100_000, True), (10, False)):
        document["views"]["final_ui"]["max_rows_per_key"] = bound
        assert (layout_signature(parse(document, tmp_path, {})) == plain) is same


@pytest.mark.parametrize(
    ("join", "duplicates", "rows", "bounded"),
    [
        ("inner", "latest", ("all", "all"), True),
        ("left", "all", ("all", "all"), True),
        ("left", "latest", ("all", "all"), False),
        ("semi", "all", ("all", "all"), False),
        ("anti", "all", ("all", "all"), False),
        ("inner", "latest", ("latest", "all"), False),
        ("inner", "latest", ("all", "latest"), False),
    ],
)
def test_only_views_that_multiply_rows_have_a_bound(
    tmp_path: Path, join: str, duplicates: str, rows: tuple[str, str], bounded: bool
) -> None:
    document = sections(Join(join))
    document["views"]["final_ui"]["duplicates"] = duplicates
    for name, kept in zip(COLUMNS, rows, strict=True):
        document["sources"][name]["rows"] = kept
    parsed = parse(document, tmp_path, {})
    [view] = layout_of(parsed, first_plan(parsed)).views
    assert bool(view.bounds) is bounded


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (Join.INNER, [24, 0, 0, 200, 0]),
        (Join.LEFT, [24, 6, 0, 200, 0]),
        (Join.RIGHT, [24, 3, 3, 200, 0]),
        (Join.FULL, [24, 6, 3, 200, 0]),
    ],
)
def test_rows_of_a_key_are_those_of_the_join_that_gives_most(join: Join, expected: list[int]) -> None:
    left = np.array([2.0, 2, 0, 10, 0])
    rights = [np.array([3.0, 0, 3, 20, 0]), np.array([4.0, 3, 0, 0, 0])]
    assert most_rows(join, left, rights).tolist() == expected


def test_keys_that_are_left_out_are_told_in_status_log_and_metrics(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    document = sections(Join.INNER) | {"control": {"topic": topic_name("control")}, "start": "earliest"}
    topics = {name: topic_name(name) for name in COLUMNS}
    for name, topic in topics.items():
        document["sources"][name]["topic"] = topic
        create_topic(broker.bootstrap_servers, topic, 1)
        produce(broker.bootstrap_servers, topic, [{"userId": key} for key in ("a", *["hot"] * MANY)])
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **document) as running:
        assert [row["userId"] for row in running.rows("final_ui")] == ["a"]
        assert running.orchestrator.status()["leftOut"] == [{"view": "final_ui", "keys": 1, "first": ["hot"]}]
        assert running.orchestrator.metrics().values["turnout_left_out_keys"] == {"final_ui": 1}
        produce(broker.bootstrap_servers, topics["users"], [{"userId": "hot"}, {"userId": "a"}])
        wait_until(lambda: len(running.rows("final_ui")) == 2, what="the other key's row")
        said = [row["msg"] for row in running.rows("orchestrator_logs") if "left out" in row["msg"]]
        assert said == [
            "final_ui: 1 key ('hot') left out, with more rows than max_rows_per_key allows; "
            "remove rows of these keys, or raise max_rows_per_key of the view"
        ]
        assert running.send(joinType="left").generation == 2
        wait_until(lambda: running.orchestrator.status()["leftOut"] != [], what="the status of the new generation")
