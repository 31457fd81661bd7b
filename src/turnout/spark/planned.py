"""A view's SQL that Spark plans once and runs again for each small batch.

Planning costs more than running over a few rows. The leaves of the plan read blocks of Spark's block manager, which
are put before a run and taken away after it, so one plan serves all batches, on executors elsewhere too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from turnout.layout import ViewTable

MAX_BYTES = 1 << 20
"""Rows cross to the JVM as text within a call: more than this goes faster through a file."""

_NUMBERS = itertools.count()


class PlannedView:
    """One view, planned for rows of one shape; used on one thread."""

    def __init__(self, session: SparkSession, view: ViewTable, rows: Mapping[str, pa.Table]) -> None:
        self._leaves = {source: _Leaf(session, table.schema) for source, table in rows.items()}
        for source, leaf in self._leaves.items():
            leaf.frame.coalesce(1).createOrReplaceTempView(f"`{source}`")
        self._frame = session.sql(view.sql)
        plan = self._frame._jdf.queryExecution().executedPlan().toString()
        # What crosses an exchange, or a subquery gave, is kept with the plan: the next run would see that of this one.
        self.usable = "Exchange" not in plan and "Subquery" not in plan

    def run(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The view over these rows."""
        try:
            for source, table in rows.items():
                self._leaves[source].put(table)
            return self._frame.toArrow()
        finally:
            for leaf in self._leaves.values():
                leaf.clear()


class _Leaf:
    """The rows of one source: a block whose name stays while its content changes."""

    def __init__(self, session: SparkSession, schema: pa.Schema) -> None:
        context = session.sparkContext
        jvm: Any = context._jvm
        struct = from_arrow_schema(schema, prefer_timestamp_ntz=False)
        self._schema = to_arrow_schema(struct, timezone="UTC")
        self._json = struct.json()
        self._session = session._jsparkSession
        # Each name of a class that is looked up in the JVM costs a message for each of its parts.
        self._list = jvm.java.util.ArrayList
        self._converters = jvm.scala.jdk.javaapi.CollectionConverters
        self._reader = jvm.org.apache.spark.sql.api.python.PythonSQLUtils
        self._blocks = jvm.org.apache.spark.SparkEnv.get().blockManager()
        self._level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        row = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        self._tag = jvm.scala.reflect.ClassTag.apply(row)
        self._block = jvm.org.apache.spark.storage.StreamBlockId(0, next(_NUMBERS))
        blocks = context._gateway.new_array(jvm.org.apache.spark.storage.BlockId, 1)  # type: ignore[union-attr]
        blocks[0] = self._block
        rdd = jvm.org.apache.spark.rdd.BlockRDD(context._jsc.sc(), blocks, self._tag)
        parsed = jvm.org.apache.spark.sql.types.DataType.fromJson(self._json)
        self.frame = DataFrame(self._session.internalCreateDataFrame(rdd, parsed, False), session)

    def put(self, rows: pa.Table) -> None:
        batches = self._list()
        for batch in rows.cast(self._schema).combine_chunks().to_batches():
            batches.add(batch.serialize().to_pybytes())
        arrived = self._reader.toDataFrame(self._converters.asScala(batches.iterator()), self._json, self._session)
        found = arrived.queryExecution().logical().data().iterator()
        self._blocks.putIterator(self._block, found, self._level, True, self._tag)

    def clear(self) -> None:
        self._blocks.removeBlock(self._block, True)
