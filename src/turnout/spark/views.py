"""Run the SQL text of a view on Spark: over the rows of a few keys, or over the files of a whole generation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.layout import ViewTable
from turnout.spark.folders import Frame, frame_of, read_parquet
from turnout.spark.planned import MAX_BYTES, PlannedView
from turnout.spark.results import TooLarge, in_slices, is_too_large
from turnout.spark.session import own_session, planned_session, pool, view_session


class ViewRunner:
    """The ways to run a view's SQL; one generation has one, and only its thread uses it."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._planned: dict[str, PlannedView] = {}
        self._idle: dict[bool, SimpleQueue[SparkSession]] = {}
        """Sessions for parts, of views with and without own SQL: kept, because large batches follow each other."""

    # A session takes time to make, and a swap waits for it: each is made when it is first needed.

    @cached_property
    def _few(self) -> SparkSession:
        return planned_session(self._session)

    @cached_property
    def _own_few(self) -> SparkSession:
        return own_session(planned_session(self._session))

    @cached_property
    def _small(self) -> SparkSession:
        return view_session(self._session)

    @cached_property
    def _own_small(self) -> SparkSession:
        return own_session(view_session(self._session))

    def over_rows(self, view: ViewTable, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The view over rows held in memory, named as its sources."""
        if sum(table.nbytes for table in rows.values()) <= MAX_BYTES:
            planned = self._planned.get(view.table)
            if planned is None:
                planned = self._planned[view.table] = PlannedView(self._own_few if view.own else self._few, view, rows)
            if planned.usable:
                return planned.run(rows)
        session = self._own_small if view.own else self._small
        with ExitStack() as held:
            for source, table in rows.items():
                frame = held.enter_context(frame_of(session, table))
                frame.coalesce(1).createOrReplaceTempView(f"`{source}`")
            result: pa.Table = session.sql(view.sql).toArrow()
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
        """The view over parts that share no key, each given as Parquet files by source: the rows of each part.

        A part is one task without a shuffle; as many are under way as there are cores, and no more are held. Their
        jobs have the tag and the pool `name`. A part whose rows are too many for the driver comes in slices.
        """
        cores = self._small.sparkContext.defaultParallelism
        sessions = self._idle.setdefault(own, SimpleQueue())
        for _ in range(min(cores, len(parts)) - sessions.qsize()):
            session = view_session(self._small)
            sessions.put(own_session(session) if own else session)

        def run(files: Mapping[str, Sequence[Path]], condition: str = "") -> pa.Table | TooLarge:
            session = sessions.get()
            session.sparkContext.addJobTag(name)
            try:
                with pool(session, name), ExitStack() as held:
                    for source, paths in files.items():
                        rows = held.enter_context(frame(session, paths))
                        rows.coalesce(1).createOrReplaceTempView(f"`{source}`")
                    return session.sql(f"SELECT * FROM ({sql}) WHERE {condition}" if condition else sql).toArrow()
            except Exception as error:
                if not is_too_large(error):
                    raise
                return TooLarge(error)
            finally:
                sessions.put(session)

        def whole(files: Mapping[str, Sequence[Path]], found: pa.Table | TooLarge) -> Iterator[pa.Table]:
            yield from [found] if isinstance(found, pa.Table) else in_slices(lambda where: run(files, where), found)

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
