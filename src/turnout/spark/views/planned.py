"""SQL that Spark plans once and runs again for each small batch, whichever generation the batch belongs to.

Planning costs more than running over a few rows. The leaves of the plan read blocks of Spark's block manager, which
are put before a run and taken away after it, so one plan serves all batches, on executors elsewhere too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from turnout.spark.folders import scratch
from turnout.spark.session import TEMPORARY

MAX_BYTES = 32 << 20
"""Up to this size (48 MB) Spark has rows that it reads from a file at hand, and not only when a task asks."""

_NUMBERS = itertools.count()


class Plans:
    """What was planned in one session, by the SQL and the columns of the rows that it is over."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._planning = threading.Lock()
        self._kept: dict[tuple[object, ...], PlannedView] = {}

    def plan(self, sql: str, rows: Mapping[str, pa.Table]) -> PlannedView:
        """The plan of a view's SQL for rows of this shape; made if there is none yet."""
        shape = (sql, *((name, *table.schema) for name, table in rows.items()))
        found = self._kept.get(shape)
        if found is None:
            # One at a time: the names of relations are those of the session.
            with self._planning:
                found = self._kept.get(shape) or PlannedView(self._session, sql, rows)
                self._kept[shape] = found
        return found

    def __len__(self) -> int:
        return len(self._kept)


class PlannedView:
    """One view's SQL, planned for rows of one shape."""

    def __init__(self, session: SparkSession, sql: str, rows: Mapping[str, pa.Table]) -> None:
        # Runs of several generations share the leaves; a run is over few rows, so that others wait less than they plan.
        self._running = threading.Lock()
        self._leaves = {name: _Leaf(session, table.schema) for name, table in rows.items()}
        for name, leaf in self._leaves.items():
            leaf.frame.coalesce(1).createOrReplaceTempView(f"`{name}`")
        self._frame = session.sql(sql)
        # The next run would see the rows of this one.
        self.usable = not _keeps_rows(self._frame._jdf.queryExecution().executedPlan())

    def run(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The view over these rows."""
        with self._running:
            try:
                for name, table in rows.items():
                    self._leaves[name].put(table)
                return self._frame.toArrow()
            finally:
                for leaf in self._leaves.values():
                    leaf.clear()


def _keeps_rows(plan: Any) -> bool:
    """Whether something in a physical plan keeps what it gave, for whoever asks again: an exchange or a subquery."""
    if str(plan.getClass().getName()).startswith("org.apache.spark.sql.execution.exchange."):
        return True
    below = plan.children()
    return not plan.subqueries().isEmpty() or any(_keeps_rows(below.apply(number)) for number in range(below.size()))


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
        self._reader = jvm.org.apache.spark.sql.api.python.PythonSQLUtils
        self._blocks = jvm.org.apache.spark.SparkEnv.get().blockManager()
        self._level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        row = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        self._tag = jvm.scala.reflect.ClassTag.apply(row)
        number = next(_NUMBERS)
        self._file = scratch(session) / TEMPORARY / f"leaf-{number}.arrow"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._block = jvm.org.apache.spark.storage.StreamBlockId(0, number)
        blocks = context._gateway.new_array(jvm.org.apache.spark.storage.BlockId, 1)  # type: ignore[union-attr]
        blocks[0] = self._block
        rdd = jvm.org.apache.spark.rdd.BlockRDD(context._jsc.sc(), blocks, self._tag)
        parsed = jvm.org.apache.spark.sql.types.DataType.fromJson(self._json)
        self.frame = DataFrame(self._session.internalCreateDataFrame(rdd, parsed, False), session)

    def put(self, rows: pa.Table) -> None:
        # By a file, because within a call rows would be text. The JVM of a driver is always on the driver's machine.
        with pa.OSFile(str(self._file), "wb") as sink, pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_table(rows.cast(self._schema).combine_chunks())
        arrived = self._reader.toDataFrame(
            self._reader.readArrowStreamFromFile(str(self._file)), self._json, self._session
        )
        found = arrived.logicalPlan().data().iterator()
        self._blocks.putIterator(self._block, found, self._level, True, self._tag)

    def clear(self) -> None:
        self._blocks.removeBlock(self._block, True)
