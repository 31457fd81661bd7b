"""Folders by path and by URL, and rows that come to Spark by each of the ways."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("place", [lambda path: path, lambda path: path.as_uri()], ids=["path", "url"])
def test_folder_is_cleared_listed_read_and_removed(
    spark: SparkSession, tmp_path: Path, place: Callable[[Path], Path | str]
) -> None:
    from turnout.spark.jvm.checkpoints import folder_at

    folder = folder_at(spark, place(tmp_path / "checkpoints")).below("g1")
    assert (folder.name, folder.names()) == ("g1", [])
    folder.remove()
    folder.clear()
    offsets = tmp_path / "checkpoints" / "g1" / "offsets"
    offsets.mkdir()
    (offsets / "7").write_text("v1\n{}")
    assert (folder.names(), folder.below("offsets").names(), folder.read("offsets/7")) == (["offsets"], ["7"], "v1\n{}")
    folder.clear()
    assert folder.names() == []
    folder.remove()
    assert not offsets.parent.exists()


def test_rows_come_to_tasks_by_every_way(spark: SparkSession, tmp_path: Path) -> None:
    from turnout.spark.jvm.checkpoints import folder_at
    from turnout.spark.views.row_files import sent_files, view_folder

    moment = pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    money = pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))
    rows = pa.table({"userId": ["a", None], "_id": [1, 2], "_ts": moment, "money": money})
    for place in (tmp_path / "local", (tmp_path / "url").as_uri()):
        checkpoint = folder_at(spark, place).below("g1")
        with view_folder(spark, checkpoint, shared=False) as (folder, framed):
            files = [folder / "users" / "_part=0" / "a.parquet", folder / "users" / "_part=0" / "b.parquet"]
            for file in files:
                file.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(rows, file)
            for way in (framed, sent_files):
                with way(spark, files) as frame:
                    assert frame.orderBy("_id").toArrow() == pa.concat_tables([rows, rows]).sort_by("_id")
        assert not folder.exists()
        assert checkpoint.names() == []


def test_rows_after_an_empty_chunk_come_to_tasks_too(spark: SparkSession) -> None:
    from turnout.spark.views.row_files import frame_of

    rows = pa.table({"key": pa.chunked_array([["a"], [], ["b"]], pa.string())})
    with frame_of(spark, rows) as frame:
        assert frame.toArrow().to_pydict() == {"key": ["a", "b"]}


def test_part_that_is_too_large_for_the_driver_comes_in_slices(spark: SparkSession, tmp_path: Path) -> None:
    from turnout.spark.views.runner import view_runner

    numbers = list(range(2_000))
    pq.write_table(pa.table({"n": numbers, "text": [f"{n:0>2000}" for n in numbers]}), tmp_path / "users.parquet")
    conf = spark.sparkContext._jsc.sc().conf()  # asked anew for each job
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        files = {"users": [tmp_path / "users.parquet"]}
        found = list(view_runner(spark).over_parts("SELECT n, text FROM users", [files], "g1"))
    finally:
        conf.set("spark.driver.maxResultSize", before)
    assert len(found) == 8
    assert sorted(n for part in found for n in part["n"].to_pylist()) == numbers
