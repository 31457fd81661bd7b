"""How rows of the store come to Spark's tasks: by files that tasks can read, or as broadcasts.

The store writes the rows of a view as Parquet files. Tasks read them where they are if they see the folder (a local
master, a shared path), or from a copy at a URL; otherwise their rows are sent as a broadcast of Arrow batches that a
Python worker reads. A frame made of the rows themselves would have them in the task's own message, which Spark limits,
and in the driver's heap several times.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from turnout.spark.jvm.checkpoints import Folder, LocalFolder, SparkFolder
from turnout.spark.jvm.cluster import runs_here
from turnout.spark.jvm.session import VIEW_FILES, scratch

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

FEW_BYTES = 16 << 20
"""Up to this size rows go to another machine as a part of the task's message."""

SENT_BATCH_ROWS = 50_000

Frame = Callable[[SparkSession, Sequence[Path]], AbstractContextManager[DataFrame]]
"""Makes a frame of Parquet files, for tasks anywhere, for a block."""


@contextlib.contextmanager
def view_folder(session: SparkSession, checkpoint: Folder, *, shared: bool) -> Iterator[tuple[Path, Frame]]:
    """Give a folder of this machine for Parquet files of the store, and what makes a frame of them; for a block.

    The folder is inside the checkpoint, so that nothing outlives a crash. `shared` where executors see it by its path.
    """
    target = checkpoint.below(VIEW_FILES)
    if isinstance(target, SparkFolder):
        local = LocalFolder(scratch(session) / VIEW_FILES).below(checkpoint.name)
        frame: Frame = partial(copied_files, target)
    else:
        local = target
        frame = read_parquet if shared or runs_here(session) else sent_files
    try:
        target.clear()
        local.clear()
        yield local.path, frame
    finally:
        local.remove()
        target.remove()


def read_parquet(
    session: SparkSession, files: Sequence[Path], places: Sequence[str] = ()
) -> AbstractContextManager[DataFrame]:
    """Make a frame of files that tasks see by the same path, or at other `places`."""
    # The schema is known: Spark would run a job to find out.
    schema = from_arrow_schema(pq.read_schema(files[0]), prefer_timestamp_ntz=False)
    return contextlib.nullcontext(session.read.schema(schema).parquet(*(places or map(str, files))))


def copied_files(
    target: SparkFolder, session: SparkSession, files: Sequence[Path]
) -> AbstractContextManager[DataFrame]:
    """Make a frame of files that are copied to where tasks reach them by a URL."""
    return read_parquet(session, files, [target.copy_in(file, f"{uuid.uuid4().hex}.parquet") for file in files])


def sent_files(session: SparkSession, files: Sequence[Path]) -> AbstractContextManager[DataFrame]:
    """Make a frame of files that only the driver sees: their rows are sent."""
    # The names of their folders are no column.
    return _sent(session, pq.read_table([str(file) for file in files], partitioning=None))


def frame_of(session: SparkSession, rows: pa.Table) -> AbstractContextManager[DataFrame]:
    """Make a frame of rows of this process, for tasks anywhere."""
    if rows.nbytes <= FEW_BYTES or runs_here(session):
        # Spark takes an empty batch for the end: rows after an empty chunk would be lost.
        return contextlib.nullcontext(session.createDataFrame(rows.combine_chunks()))
    return _sent(session, rows)


@contextlib.contextmanager
def _sent(session: SparkSession, rows: pa.Table) -> Iterator[DataFrame]:
    """Make a frame of rows that are sent apart from the task that takes them."""
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=False)
    value = session.sparkContext.broadcast(_packed(rows))
    try:
        # What `frame.mapInArrow` does, which wants pandas to be installed, although neither it nor we use it.
        function = UserDefinedFunction(sent_reader(value), schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        frame: Any = session.range(0, 1, 1, 1)
        column: Any = function(frame["id"])
        yield DataFrame(frame._jdf.mapInArrow(column._jc, False, None), session)
    finally:
        value.destroy()


def _packed(rows: pa.Table) -> bytes:
    """The rows as one compressed value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows, max_chunksize=SENT_BATCH_ROWS)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def sent_reader(sent: Broadcast[bytes]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over a single row: the rows that were packed.

    A worker gets the inner function by value, so that function uses nothing of Turnout.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from pa.ipc.open_stream(sent.value)

    return run
