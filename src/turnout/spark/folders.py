"""Folders of a generation, on this machine's disk or on a file system that Spark reaches by a URL.

And how rows that the store wrote to files come to Spark's tasks: which of the ways depends on who can read the files.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from turnout.spark.cluster import runs_here
from turnout.spark.views import sent_rows

cloudpickle.register_pickle_by_value(sent_rows)  # type: ignore[no-untyped-call]

FEW_BYTES = 16 << 20
"""Up to this size rows go to another machine as a part of the task's message."""

BUILD = "build"
"""The folder for files of a view that is being built: inside the checkpoint, so that nothing outlives a crash."""

Frame = Callable[[SparkSession, Sequence[Path]], AbstractContextManager[DataFrame]]
"""How Parquet files become a frame for tasks anywhere, for a block."""


@contextlib.contextmanager
def read_parquet(session: SparkSession, files: Sequence[Path]) -> Iterator[DataFrame]:
    """Files that tasks see by the same path."""
    yield _reader(session, files).parquet(*(str(file) for file in files))


def _reader(session: SparkSession, files: Sequence[Path]) -> DataFrameReader:
    """A reader that knows what is in the files: Spark would run a job to find out."""
    return session.read.schema(from_arrow_schema(pq.read_schema(files[0]), prefer_timestamp_ntz=False))


def is_url(place: Path | str) -> bool:
    """Whether a place is on a file system of Spark's, such as s3a://bucket/folder, rather than a path."""
    return isinstance(place, str) and "://" in place


class LocalFolder:
    """A folder on a disk, or on one that is mounted here; it may not be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)
        self.name = path.name

    def clear(self) -> None:
        """Leave it there and empty."""
        self.remove()
        self.path.mkdir(parents=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def names(self) -> list[str]:
        """What is in it; nothing where it is not there."""
        return [one.name for one in self.path.iterdir()] if self.path.is_dir() else []

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def below(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)


class SparkFolder:
    """The same on a file system that Spark knows, by Hadoop's client in the driver's JVM."""

    def __init__(self, session: SparkSession, location: str) -> None:
        self.location = location.rstrip("/")
        self.name = self.location.rpartition("/")[2]
        self._session = session
        self._jvm: Any = session.sparkContext._jvm
        self._path = self._at(self.location)
        self._files = self._path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def _at(self, location: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(location)

    def clear(self) -> None:
        self.remove()
        self._files.mkdirs(self._path)

    def remove(self) -> None:
        self._files.delete(self._path, True)

    def names(self) -> list[str]:
        if not self._files.exists(self._path):
            return []
        return [str(found.getPath().getName()) for found in self._files.listStatus(self._path)]

    def read(self, name: str) -> str:
        opened = self._files.open(self._at(f"{self.location}/{name}"))
        try:
            return bytes(opened.readAllBytes()).decode()
        finally:
            opened.close()

    def below(self, name: str) -> SparkFolder:
        return SparkFolder(self._session, f"{self.location}/{name}")

    def take(self, file: Path, name: str) -> str:
        """Copy a file of this machine into the folder; its location there."""
        target = f"{self.location}/{name}"
        source = self._jvm.java.io.File(str(file))
        # Not `copyFromLocalFile`, which insists on Hadoop's checksummed local file system.
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(
            source, self._files, self._at(target), False, self._files.getConf()
        )
        return target


Folder = LocalFolder | SparkFolder


def scratch(session: SparkSession) -> Path:
    """Where Spark keeps what it does not need for long on this machine; the first where it has several places."""
    named = session.sparkContext.getConf().get("spark.local.dir")
    return Path(named.split(",")[0] if named else tempfile.gettempdir())


def checkpoints_of(shared_dir: str | None, data_dir: Path) -> Path | str:
    """Where the checkpoints of all generations are: with the data, or where the configuration says."""
    return f"{shared_dir.rstrip('/')}/checkpoints" if shared_dir else data_dir / "checkpoints"


def folder_at(session: SparkSession, place: Path | str) -> Folder:
    """The folder at a path or a URL."""
    return SparkFolder(session, str(place)) if is_url(place) else LocalFolder(Path(place))


@contextlib.contextmanager
def send_rows(session: SparkSession, files: Sequence[Path]) -> Iterator[DataFrame]:
    """Files that nobody else sees: their rows are sent."""
    # The names of their folders are no column.
    with sent(session, pq.read_table([str(file) for file in files], partitioning=None)) as frame:
        yield frame


@contextlib.contextmanager
def frame_of(session: SparkSession, rows: pa.Table) -> Iterator[DataFrame]:
    """Rows of this process as a frame for tasks anywhere."""
    if rows.nbytes <= FEW_BYTES or runs_here(session):
        # Spark takes an empty batch for the end: rows after an empty chunk would be lost.
        yield session.createDataFrame(rows.combine_chunks())
    else:
        with sent(session, rows) as frame:
            yield frame


@contextlib.contextmanager
def sent(session: SparkSession, rows: pa.Table) -> Iterator[DataFrame]:
    """Rows that are sent apart from the task that takes them."""
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=False)
    value = session.sparkContext.broadcast(sent_rows.packed(rows))
    try:
        yield _mapped(session.range(0, 1, 1, 1), sent_rows.reader(value), schema)
    finally:
        value.destroy()


def _mapped(frame: DataFrame, reader: Callable[..., Iterator[pa.RecordBatch]], schema: StructType) -> DataFrame:
    """What `frame.mapInArrow` gives: that one wants pandas to be installed, which neither it nor we use."""
    function = UserDefinedFunction(reader, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*(frame[name] for name in frame.columns))
    java: Any = frame
    return DataFrame(java._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


@contextlib.contextmanager
def _move(target: SparkFolder, session: SparkSession, files: Sequence[Path]) -> Iterator[DataFrame]:
    """Files that are copied to where tasks reach them by a URL."""
    taken = [target.take(file, f"{uuid.uuid4().hex}.parquet") for file in files]
    yield _reader(session, files).parquet(*taken)


@contextlib.contextmanager
def room(session: SparkSession, checkpoint: Folder, *, shared: bool) -> Iterator[tuple[Path, Frame]]:
    """A folder of this machine for Parquet files that the store writes, and how they become a frame; for a block.

    `shared` where the checkpoint is in a folder that executors see.
    """
    target = checkpoint.below(BUILD)
    if isinstance(target, SparkFolder):
        local = LocalFolder(scratch(session) / BUILD).below(checkpoint.name)
        frame: Frame = partial(_move, target)
    else:
        local = target
        frame = read_parquet if shared or runs_here(session) else send_rows
    try:
        target.clear()
        local.clear()
        yield local.path, frame
    finally:
        local.remove()
        target.remove()
