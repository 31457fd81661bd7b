"""Folders of checkpoints, on this machine's disk or on a file system that Spark reaches by a URL.

A checkpoint has the offsets of Spark's batches, and for a moment the files of a view that is being built.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def is_url(location: Path | str) -> bool:
    """Whether a location is on a file system of Spark's, such as s3a://bucket/folder, rather than a path."""
    return isinstance(location, str) and "://" in location


class LocalFolder:
    """A folder on a disk, or on one that is mounted here; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)
        self.name = path.name

    def clear(self) -> None:
        """Make the folder, or empty it."""
        self.remove()
        self.path.mkdir(parents=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def names(self) -> list[str]:
        """List the files and folders in it; none where it does not exist."""
        return [one.name for one in self.path.iterdir()] if self.path.is_dir() else []

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def below(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)


class SparkFolder:
    """A folder on a file system that Spark knows, by Hadoop's client in the driver's JVM."""

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
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._path)]

    def read(self, name: str) -> str:
        opened = self._files.open(self._at(f"{self.location}/{name}"))
        try:
            return bytes(opened.readAllBytes()).decode()
        finally:
            opened.close()

    def below(self, name: str) -> SparkFolder:
        return SparkFolder(self._session, f"{self.location}/{name}")

    def copy_in(self, file: Path, name: str) -> str:
        """Copy a file of this machine into the folder, and return its location there."""
        target = f"{self.location}/{name}"
        source = self._jvm.java.io.File(str(file))
        # Not `copyFromLocalFile`, which insists on Hadoop's checksummed local file system.
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(
            source, self._files, self._at(target), False, self._files.getConf()
        )
        return target


Folder = LocalFolder | SparkFolder


def folder_at(session: SparkSession, location: Path | str) -> Folder:
    """The folder at a path or a URL."""
    return SparkFolder(session, str(location)) if is_url(location) else LocalFolder(Path(location))
