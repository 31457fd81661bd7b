"""A view on Spark, planned once: each run reads its own rows, whatever the run before read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from turnout.config import Settings
from turnout.joins import Join
from turnout.layout import Layout, ViewTable
from turnout.plan import Plan
from turnout.spark.planned import PlannedView
from turnout.spark.session import planned_session
from turnout.spark.views import ViewRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIME = pa.timestamp("us", "UTC")


def view_of(join: Join) -> ViewTable:
    settings = Settings()
    plan = Plan.from_settings(settings)
    return Layout.of(settings, Plan(plan.topics, dict.fromkeys(plan.joins, join), plan.start)).views[0]


def rows_of(users: list[str | None], accounts: list[str | None]) -> dict[str, pa.Table]:
    def ids(keys: list[str | None]) -> dict[str, pa.Array]:
        count = range(len(keys))
        return {"_id": pa.array(count, pa.int64()), "_ts": pa.array([i * 1000 for i in count], _TIME)}

    text = pa.string()
    user = {
        "userId": pa.array(users, text),
        "name": pa.array(users, text),
        "email": pa.array([None] * len(users), text),
    }
    account = {"userId": pa.array(accounts, text), "accountType": pa.array(accounts, text)}
    return {
        "users": pa.table({**user, "age": pa.array(range(len(users)), pa.int64()), **ids(users)}),
        "accounts": pa.table({**account, "balance": pa.array([0.5] * len(accounts), pa.float64()), **ids(accounts)}),
    }


def expected(view: ViewTable, rows: dict[str, pa.Table]) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        for source, table in rows.items():
            connection.register(source, table)
        return ordered(connection.execute(view.sql).to_arrow_table())


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("join", [Join.LEFT, Join.INNER, Join.FULL])
def test_view_over_rows_reads_the_rows_of_each_run(spark: SparkSession, join: Join) -> None:
    view, runner = view_of(join), ViewRunner(spark)
    for rows in (
        rows_of(["a", "b", None], ["a", "a"]),
        rows_of(["c"], []),
        rows_of([], ["d"]),
        rows_of(["a", "d"], ["d", None]),
    ):
        assert ordered(runner.over_rows(view, rows)) == expected(view, rows)


def test_planned_view_needs_no_exchange_and_leaves_no_block(spark: SparkSession) -> None:
    rows = rows_of(["a"], ["a"])
    planned = PlannedView(planned_session(spark), view_of(Join.LEFT), rows)
    assert planned.usable
    planned.run(rows)
    master: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().master()  # type: ignore[union-attr]
    for leaf in planned._leaves.values():
        assert master.getLocations(leaf._block).isEmpty()
