"""Run the SQL text of a view on Spark: over the rows of a few keys, or over the files of a whole generation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from turnout.layout import ViewTable
from turnout.spark.session import build_session, view_session


class ViewRunner:
    """The two ways to run a view's SQL; one generation has one, and only its thread uses it."""

    def __init__(self, session: SparkSession) -> None:
        self._small = view_session(session)
        self._large = build_session(session)

    def over_rows(self, view: ViewTable, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The view over rows held in memory, named as its sources."""
        for source, table in rows.items():
            self._small.createDataFrame(table).coalesce(1).createOrReplaceTempView(f"`{source}`")
        result: pa.Table = self._small.sql(view.sql).toArrow()
        return result

    def over_files(self, view: ViewTable, files: Mapping[str, Path], result: Path) -> None:
        """The view over Parquet files, named as its sources, into Parquet files in the folder `result`."""
        for source, file in files.items():
            self._large.read.parquet(str(file)).createOrReplaceTempView(f"`{source}`")
        frame: DataFrame = self._large.sql(view.sql)
        frame.write.mode("overwrite").parquet(str(result))
