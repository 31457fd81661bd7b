"""Run the SQL text of a view on Spark: over the rows of a few keys, or over the files of a whole generation."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.plan.joins import KEY
from turnout.plan.tables import ViewTable
from turnout.spark.folders import Frame, frame_of, read_parquet
from turnout.spark.java_errors import is_too_large
from turnout.spark.session import pool, view_session
from turnout.spark.views.planned import MAX_BYTES, Plans

FIRST_SLICES = 8
MOST_SLICES = 512


class ViewSessions:
    """What all generations share to run views: sessions, and what was planned in them.

    A session takes time to make, and a swap waits for it: each is made when it is first needed, and kept.
    """

    def __init__(self, session: SparkSession) -> None:
        self.context = session.sparkContext
        self._session = session
        self._lock = threading.RLock()
        self._plans: dict[bool, Plans] = {}
        self._idle: dict[bool, SimpleQueue[SparkSession]] = {True: SimpleQueue(), False: SimpleQueue()}
        """Sessions for views with and without own SQL: their names of relations are those of one view at a time."""

    def plans(self, *, own: bool) -> Plans:
        """Those of views with or without own SQL."""
        with self._lock:
            if own not in self._plans:
                self._plans[own] = Plans(view_session(self._session, own=own, planned=True))
            return self._plans[own]

    @contextlib.contextmanager
    def one(self, *, own: bool) -> Iterator[SparkSession]:
        """A session that nobody else uses meanwhile."""
        try:
            session = self._idle[own].get_nowait()
        except Empty:
            session = view_session(self._session, own=own)
        try:
            yield session
        finally:
            self._idle[own].put(session)


_sharing = threading.Lock()
_shared: list[ViewSessions] = []


def sessions_of(session: SparkSession) -> ViewSessions:
    """Those of the JVM of this session; a process has one at a time."""
    with _sharing:
        if not _shared or _shared[0].context is not session.sparkContext:
            _shared[:] = [ViewSessions(session)]
        return _shared[0]


class ViewRunner:
    """The ways to run a view's SQL."""

    def __init__(self, session: SparkSession) -> None:
        self._sessions = sessions_of(session)

    def over_rows(self, view: ViewTable, rows: Mapping[str, pa.Table], *, unique: bool = False) -> pa.Table:
        """The view over rows held in memory, by its relations; of a joined view the ids.

        With `unique` no two right rows of a source have one key.
        """
        sql = view.narrow_sql_if_unique if unique else view.narrow_sql
        if unique and not view.own:
            rows = {name: table.select([KEY, "_id"]) for name, table in rows.items()}
        if not view.own and not any(table.num_rows for table in rows.values()):
            return pa.table({name: pa.array([], pa.int64()) for name in view.ids})
        if sum(table.nbytes for table in rows.values()) <= MAX_BYTES:
            planned = self._sessions.plans(own=view.own).plan(sql, rows)
            if planned.usable:
                return planned.run(rows)
        with self._sessions.one(own=view.own) as session, ExitStack() as held:
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
        cores = self._sessions.context.defaultParallelism

        def run(files: Mapping[str, Sequence[Path]], condition: str = "") -> pa.Table | Exception:
            self._sessions.context.addJobTag(name)
            try:
                with self._sessions.one(own=own) as session, pool(session, name), ExitStack() as held:
                    for relation, paths in files.items():
                        rows = held.enter_context(frame(session, paths))
                        rows.coalesce(1).createOrReplaceTempView(f"`{relation}`")
                    return session.sql(f"SELECT * FROM ({sql}) WHERE {condition}" if condition else sql).toArrow()
            except Exception as error:
                if not is_too_large(error):
                    raise
                return error

        def whole(files: Mapping[str, Sequence[Path]], found: pa.Table | Exception) -> Iterator[pa.Table]:
            yield from in_slices(lambda where: run(files, where), found) if isinstance(found, Exception) else [found]

        with ThreadPoolExecutor(cores) as workers:
            waiting = deque((files, workers.submit(run, files)) for files in parts[:cores])
            for following in parts[cores:]:
                files, done = waiting.popleft()
                found = done.result()
                waiting.append((following, workers.submit(run, following)))
                yield from whole(files, found)
            while waiting:
                files, done = waiting.popleft()
                yield from whole(files, done.result())


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
