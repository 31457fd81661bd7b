"""Run the SQL text of a view on Spark: over the rows of a few keys, or over the files of a whole generation.

Over few rows planning costs more than running, so the SQL is planned once and run again for each small batch, whichever
generation that belongs to. The leaves of the plan read blocks of Spark's block manager, which are put before a run and
taken away after it, so one plan serves all batches, on executors elsewhere too.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from turnout.plan.tables import ViewTable
from turnout.spark.jvm.java_errors import is_too_large
from turnout.spark.jvm.session import TEMPORARY, pool, scratch, view_session
from turnout.spark.views.row_files import Frame, frame_of, read_parquet

MAX_BYTES = 32 << 20
"""Up to this size (48 MB) Spark has rows that it reads from a file at hand, and not only when a task asks."""

LIVE_SECONDS = 2.0
"""So long after a small batch another one is expected."""

_NUMBERS = itertools.count()

FIRST_SLICES = 8
MOST_SLICES = 512


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


class ViewRunner:
    """Runs views for all generations: they share its sessions, and what was planned in them.

    A session takes time to make, and a swap waits for it: each is made when it is first needed, and kept.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.planned: dict[tuple[object, ...], PlannedView] = {}
        """By the SQL, and the columns of the rows that it is over."""
        self._session = session
        self._joined_at = float("-inf")
        self._planning = threading.Lock()
        self._planners: dict[bool, SparkSession] = {}
        self._idle: dict[bool, SimpleQueue[SparkSession]] = {True: SimpleQueue(), False: SimpleQueue()}
        """Sessions for views with and without own SQL: their names of relations are those of one view at a time."""

    def _plan(self, sql: str, rows: Mapping[str, pa.Table], *, own: bool) -> PlannedView:
        """The plan of a view's SQL for rows of this shape; made if there is none yet."""
        shape = (own, sql, *((name, *table.schema) for name, table in rows.items()))
        found = self.planned.get(shape)
        if found is None:
            # One at a time: the names of relations are those of the session.
            with self._planning:
                if own not in self._planners:
                    self._planners[own] = view_session(self._session, own=own, planned=True)
                found = self.planned.get(shape) or PlannedView(self._planners[own], sql, rows)
                self.planned[shape] = found
        return found

    @contextlib.contextmanager
    def _one(self, *, own: bool) -> Iterator[SparkSession]:
        """A session that nobody else uses meanwhile."""
        try:
            session = self._idle[own].get_nowait()
        except Empty:
            session = view_session(self._session, own=own)
        try:
            yield session
        finally:
            self._idle[own].put(session)

    @property
    def live(self) -> bool:
        """Whether small batches come: each waits for the end of a task of somebody else, who should have short ones."""
        return time.monotonic() - self._joined_at < LIVE_SECONDS

    def over_rows(self, view: ViewTable, rows: Mapping[str, pa.Table], *, unique: bool = False) -> pa.Table:
        """The view over rows held in memory, by its relations; of a joined view the ids.

        With `unique` no two right rows of a source have one key.
        """
        self._joined_at = time.monotonic()
        sql = view.narrow_sql_if_unique if unique else view.narrow_sql
        own = view.own_sql
        if unique and not own:
            rows = {
                name: table.select([one for one in table.column_names if one != "_ts"]) for name, table in rows.items()
            }
        if not own and not any(table.num_rows for table in rows.values()):
            return pa.table({name: pa.array([], pa.int64()) for name in view.ids})
        if sum(table.nbytes for table in rows.values()) <= MAX_BYTES:
            planned = self._plan(sql, rows, own=own)
            if planned.usable:
                return planned.run(rows)
        with self._one(own=own) as session, ExitStack() as held:
            for name, table in rows.items():
                frame = held.enter_context(frame_of(session, table))
                frame.coalesce(1).createOrReplaceTempView(f"`{name}`")
            result: pa.Table = session.sql(sql).toArrow()
        return result

    def over_parts(
        self,
        sql: str,
        parts: Sequence[Mapping[str, Sequence[Path]]],
        name: str,
        frame: Frame = read_parquet,
        *,
        own: bool = False,
    ) -> Iterator[pa.Table]:
        """The view over parts that share no key, each given as Parquet files by relation: the rows of each part.

        A part is one task without a shuffle; as many are under way as there are cores, and no more are held. Their
        jobs have the tag and the pool `name`. A part whose rows are too many for the driver comes in slices.
        """
        cores = self._context.defaultParallelism

        def run(files: Mapping[str, Sequence[Path]], condition: str = "") -> pa.Table | Exception:
            self._context.addJobTag(name)
            try:
                with self._one(own=own) as session, pool(session, name), ExitStack() as held:
                    for relation, paths in files.items():
                        rows = held.enter_context(frame(session, paths))
                        rows.coalesce(1).createOrReplaceTempView(f"`{relation}`")
                    return session.sql(f"SELECT * FROM ({sql}) WHERE {condition}" if condition else sql).toArrow()
            except Exception as error:
                if not is_too_large(error):
                    raise
                return error

        with ThreadPoolExecutor(cores) as workers:
            waiting = deque((files, workers.submit(run, files)) for files in parts[:cores])
            following = iter(parts[cores:])
            while waiting:
                files, done = waiting.popleft()
                found = done.result()
                waiting.extend((more, workers.submit(run, more)) for more in itertools.islice(following, 1))
                if isinstance(found, Exception):
                    yield from in_slices(partial(run, files), found)
                else:
                    yield found


_sharing = threading.Lock()
_shared: list[ViewRunner] = []


def view_runner(session: SparkSession) -> ViewRunner:
    """The runner of this session's JVM; there is one for each process."""
    with _sharing:
        if not _shared or _shared[0]._context is not session.sparkContext:
            _shared[:] = [ViewRunner(session)]
        return _shared[0]


def in_slices(run: Callable[[str], pa.Table | Exception], whole: Exception) -> Iterator[pa.Table]:
    """The rows of a query in slices by a hash of the whole row: each row is in one, whatever the query is.

    `run` runs it with a condition on its rows, and returns Spark's error where they are too large for the driver. Such
    a slice is sliced once more; rows that are all the same cannot be told apart: the error of the `whole` result is
    raised where even the finest slice is too large.
    """
    slices = [(FIRST_SLICES, number) for number in reversed(range(FIRST_SLICES))]
    while slices:
        count, number = slices.pop()
        part = run(f"pmod(xxhash64(*), {count}) = {number}")
        if isinstance(part, Exception):
            finer = count * FIRST_SLICES
            if finer > MOST_SLICES:
                raise whole
            slices += [(finer, one) for one in reversed(range(number, finer, count))]
        else:
            yield part
