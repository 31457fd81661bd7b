"""The training run for the archive of classes does what Turnout does with Spark: if a way changes, it must follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turnout.spark.training_run import use_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_training_run_runs_to_its_end_and_leaves_no_query(spark: SparkSession, tmp_path: Path) -> None:
    use_spark(spark, tmp_path)
    assert spark.streams.active == []
