"""A view on Spark, planned once: each run reads its own rows, whatever the run before read, in whichever generation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from lengths import LONG, PLANNED_RUNS
from turnout.config import Settings
from turnout.config.tables import first_plan, layout_of
from turnout.plan.joins import Join
from turnout.plan.plan import Plan
from turnout.plan.tables import ViewTable
from turnout.spark.jvm.session import pool, view_session
from turnout.spark.views.runner import PlannedView, view_runner
from turnout.testing import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_TIME = pa.timestamp("us", "UTC")


def view_of(join: Join, **more: Any) -> ViewTable:
    settings = Settings(**more)
    plan = first_plan(settings)
    return layout_of(settings, Plan(plan.topics, dict.fromkeys(plan.joins, join), plan.start)).views[0]


def rows_of(users: list[int | None], accounts: list[int | None]) -> dict[str, pa.Table]:
    def rows(keys: list[int | None]) -> pa.Table:
        count = range(len(keys))
        times = pa.array([i * 1000 for i in count], _TIME)
        return pa.table({"key": pa.array(keys, pa.int64()), "_id": pa.array(count, pa.int64()), "_ts": times})

    return {"side_0": rows(users), "side_1": rows(accounts)}


def expected(view: ViewTable, rows: dict[str, pa.Table]) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        for relation, table in rows.items():
            connection.register(relation, table)
        return ordered(connection.sql(view.narrow_sql).to_arrow_table())


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


SOME = (
    rows_of([1, 2, None], [1, 1]),
    rows_of([3], []),
    rows_of([], [4]),
    rows_of([], []),
    rows_of([1, 4], [4, None]),
)


@pytest.mark.parametrize("join", [Join.LEFT, Join.INNER, Join.FULL])
def test_view_over_rows_reads_the_rows_of_each_run(spark: SparkSession, join: Join) -> None:
    view, runner = view_of(join), view_runner(spark)
    for rows in SOME:
        assert ordered(runner.over_rows(view, rows)) == expected(view, rows)


def test_generations_share_plans_and_run_at_once(spark: SparkSession) -> None:
    view = view_of(Join.FULL)
    view_runner(spark).over_rows(view, SOME[0])
    plans = view_runner(spark).planned
    kept = len(plans)

    def generation(number: int) -> bool:
        runner, rows = view_runner(spark), SOME[number % len(SOME)]
        return all(ordered(runner.over_rows(view, rows)) == expected(view, rows) for _ in range(PLANNED_RUNS))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(generation, range(8 if LONG else len(SOME))))
    assert len(plans) == kept


def test_small_batches_are_expected_for_a_while_after_one(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = view_runner(spark)
    runner.over_rows(view_of(Join.LEFT), rows_of([1], [1]))
    assert runner.live
    monkeypatch.setattr("turnout.spark.views.runner.LIVE_SECONDS", 0.0)
    assert not runner.live


def test_planned_view_needs_no_exchange_and_leaves_no_block(spark: SparkSession) -> None:
    rows = rows_of([1], [1])
    planned = PlannedView(view_session(spark, planned=True), view_of(Join.LEFT).narrow_sql, rows)
    assert planned.usable
    planned.run(rows)
    master: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().master()  # type: ignore[union-attr]
    for leaf in planned._leaves.values():
        assert master.getLocations(leaf._block).isEmpty()


@pytest.mark.parametrize(
    ("sql", "usable"),
    [
        ("SELECT stockExchange, Subquery, count(*) AS n FROM trades GROUP BY ALL", True),
        ("SELECT stockExchange, Subquery, (SELECT count(*) FROM trades) AS n FROM trades", False),
        ("SELECT /*+ REPARTITION(2) */ stockExchange, Subquery, 1 AS n FROM trades", False),
    ],
)
def test_plan_is_kept_whatever_its_columns_are_called(spark: SparkSession, sql: str, usable: bool) -> None:
    rows = pa.table({"stockExchange": ["x", "x"], "Subquery": ["y", "y"]})
    planned = PlannedView(view_session(spark, planned=True), sql, {"trades": rows})
    assert planned.usable == usable


def test_jobs_of_a_batch_leave_the_query_in_its_pool(spark: SparkSession, tmp_path: Path) -> None:
    found: list[str | None] = []

    def on_batch(frame: DataFrame, _: int) -> None:
        context = frame.sparkSession.sparkContext
        found.append(context.getLocalProperty("spark.scheduler.pool"))
        with pool(frame.sparkSession, "g8"):
            found.append(context.getLocalProperty("spark.scheduler.pool"))

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    with pool(spark, "g7"):
        query = source.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: len(found) >= 4 or not query.isActive, what="two batches")
    finally:
        query.stop()
    assert found[:4] == ["g7", "g8", "g7", "g8"]
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None
