"""Run the SQL text of a view on Spark: over the rows of a few keys, or over the files of a whole generation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from turnout.layout import ViewTable
from turnout.spark.planned import MAX_BYTES, PlannedView
from turnout.spark.session import build_session, planned_session, view_session


class ViewRunner:
    """The ways to run a view's SQL; one generation has one, and only its thread uses it."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._planned: dict[str, PlannedView] = {}

    # A session takes time to make, and a swap waits for it: each is made when it is first needed.

    @cached_property
    def _few(self) -> SparkSession:
        return planned_session(self._session)

    @cached_property
    def _small(self) -> SparkSession:
        return view_session(self._session)

    @cached_property
    def _large(self) -> SparkSession:
        return build_session(self._session)

    def over_rows(self, view: ViewTable, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The view over rows held in memory, named as its sources."""
        if sum(table.nbytes for table in rows.values()) <= MAX_BYTES:
            planned = self._planned.get(view.table)
            if planned is None:
                planned = self._planned[view.table] = PlannedView(self._few, view, rows)
            if planned.usable:
                return planned.run(rows)
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
