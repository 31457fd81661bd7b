"""The rehearsal for the archive of classes does what Turnout does with Spark: if a way changes, it must follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turnout.spark.rehearsal import rehearse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rehearsal_runs_to_its_end_and_leaves_no_query(spark: SparkSession, tmp_path: Path) -> None:
    rehearse(spark, tmp_path)
    assert spark.streams.active == []
