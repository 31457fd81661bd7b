"""The Python packages that Spark's workers need, as one archive that Spark itself carries to them.

A worker's host then needs a Python of this one's version and nothing in it. The archive has binaries: hosts of another
system or processor must bring the packages themselves (`spark.ship_packages: false`).
"""

from __future__ import annotations

import sys
import sysconfig
import tarfile
from importlib import metadata
from pathlib import Path, PurePosixPath

from turnout.errors import TurnoutError
from turnout.java.jars import made_file, making

NEEDED = ("pyarrow", "numpy", "fastavro", "confluent-kafka")
"""What the tasks of bulk reads, and PySpark's own worker for `mapInArrow`, import."""

IF_THERE = ("protobuf",)
"""What they import for sources that can only be there if the package is."""

FOLDER = "turnout-python"
"""What the unpacked archive is called in an executor's folder."""

_FORM = 3
"""Goes up when an archive of the same versions would have other files."""

_NAME = "python-*.tar.gz"
# A third of all, used by no worker: clients of object stores and of Flight, headers, tests.
_LEFT_OUT_FOLDERS = frozenset({"tests", "include", "includes", "src", "f2py", "..", "bin"})
_LEFT_OUT_NAMES = ("flight", "_s3", "azurefs", "gcsfs", "_hdfs", "gandiva", "_cpp_tests")
_LEFT_OUT_ENDINGS = (".pyx", ".pxd", ".pxi", ".h", ".a", ".cmake")


def archive() -> Path:
    """The archive of these versions, made where it is not there: that takes some seconds."""
    versions = [f"{name} {_found(name).version}" for name in _carried()]
    parts = [str(_FORM), sys.implementation.cache_tag, sysconfig.get_platform(), *versions]
    file = made_file(_NAME, parts)
    if not file.exists():
        _write(file)
    return file


def _carried() -> list[str]:
    installed = {found.name for found in metadata.distributions()}
    return [*NEEDED, *(name for name in IF_THERE if name in installed)]


def _write(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = [source for name in _carried() for source in _found(name).files or [] if wanted(source)]
    try:
        with making(file, _NAME) as part, tarfile.open(part, "w:gz", compresslevel=1) as written:
            for source in packed:
                written.add(str(source.locate()), str(source))
    except OSError as error:
        raise TurnoutError(
            code="no_package_archive",
            message=f"the archive of Python packages for Spark's workers was not written: {error.strerror}: {file}",
            hint="free some 80 MB there, or set TURNOUT_CACHE to another folder",
            status=500,
        ) from error


def wanted(file: PurePosixPath) -> bool:
    """Whether a worker needs a file of a package."""
    if _LEFT_OUT_FOLDERS.intersection(file.parts):
        return False
    return not file.name.endswith(_LEFT_OUT_ENDINGS) and not any(name in file.name for name in _LEFT_OUT_NAMES)


def _found(name: str) -> metadata.Distribution:
    try:
        found = metadata.distribution(name)
        if found.files:
            return found
    except metadata.PackageNotFoundError:
        pass
    raise TurnoutError(
        code="no_package_archive",
        message=f"it is not known which files the Python package {name} has, so it cannot be sent to Spark's workers",
        hint=f"install {name} with pip, or set spark.ship_packages to false where workers have it themselves",
        status=500,
    )
