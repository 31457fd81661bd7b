"""What Spark needs when its executors are on other machines: an address to call back, jars, a Python and its packages.

A local master needs none of it. All of it are plain Spark properties, so `spark.conf` can say otherwise. Spark itself
carries the packages to workers, as one archive: their hosts then need a Python of this one's version and nothing in it.
The archive has binaries: hosts of another system or processor must bring the packages (`spark.ship_packages: false`).
"""

from __future__ import annotations

import os
import re
import socket
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from turnout.config import SparkSettings
from turnout.errors import TurnoutError
from turnout.java.jars import cached_file, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

_LOCAL = re.compile(r"local(\[.*\])?")
_HOST = re.compile(r"(?:spark|k8s)://(?:https?://)?(\[[0-9a-fA-F:.]+\]|[^:/,\[\]]+):?([0-9]*)")


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process."""
    return _LOCAL.fullmatch(master) is not None


def runs_here(session: SparkSession) -> bool:
    """Whether the tasks of a session run in the driver's own process."""
    return is_local(str(session.sparkContext.master))


def carried(settings: SparkSettings, jars: Sequence[Path]) -> dict[str, str]:
    """How the jars, and on a cluster the Python packages, come to where they are used."""
    # The driver has them on its class path in any case: jars that Spark carries are in no archive of classes.
    own = {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    if is_local(settings.master):
        return own
    own["spark.jars"] = ",".join(map(str, jars))
    if settings.ship_packages:
        # Spark unpacks it into the folder in which an executor, and with it each of its Pythons, is started.
        own |= {"spark.archives": f"{archive()}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}
    return own


def reached_at(settings: SparkSettings) -> dict[str, str]:
    """The address at which executors find the driver: loopback alone, or its address on the way to the master.

    Nothing where that is not known, as with YARN (Spark then takes the address of the host's name), or where the
    configuration says it: another address to bind to would not fit.
    """
    if is_local(settings.master):
        address: str | None = "127.0.0.1"
    else:
        address = None if "spark.driver.host" in settings.conf else address_toward(settings.master)
    return {"spark.driver.bindAddress": address, "spark.driver.host": address} if address else {}


def answers(master: str, timeout_seconds: float) -> str | None:
    """Why nobody listens where the masters should be; None where one does, or where that is not known."""
    named = [_HOST.match(f"spark://{one}") for one in master.removeprefix("spark://").split(",")]
    trouble = None
    for found in named if master.startswith("spark://") else ():
        try:
            host, port = (found[1].strip("[]"), int(found[2])) if found else ("", 0)
            socket.create_connection((host, port), timeout_seconds).close()
        except (OSError, ValueError) as error:
            trouble = str(error)
        else:
            return None
    return trouble


def no_executors(session: SparkSession) -> bool:
    """Whether a cluster has given nothing to run tasks on, and is not told to wait until there are tasks."""
    context = session.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return False
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) <= 1  # the driver is among them


def address_toward(master: str) -> str | None:
    """This host's address on the way to a master that is given by its host."""
    found = _HOST.match(master)
    if found is None:
        return None
    host, port = found[1].strip("[]"), int(found[2] or 443)
    try:
        family, kind, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return None


def python_of_workers(settings: SparkSettings, environ: Mapping[str, str]) -> str:
    """The Python that workers run: this very one, or on a cluster one of its version by name."""
    named = settings.conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON")
    if named:
        return named
    return sys.executable if is_local(settings.master) else f"python{sys.version_info.major}.{sys.version_info.minor}"


def archive() -> Path:
    """The archive of these versions, made where it is not there: that takes some seconds."""
    versions = [f"{name} {_found(name).version}" for name in _carried()]
    parts = [str(_FORM), sys.implementation.cache_tag, sysconfig.get_platform(), *versions]
    file = cached_file(_NAME, parts)
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = [source for name in _carried() for source in _found(name).files or [] if wanted(source)]
    try:
        with writing(file, _NAME) as part, tarfile.open(part, "w:gz", compresslevel=1) as written:
            for source in packed:
                written.add(str(source.locate()), str(source))
    except OSError as error:
        raise TurnoutError(
            code="no_package_archive",
            message=f"the archive of Python packages for Spark's workers was not written: {error.strerror}: {file}",
            hint="free some 80 MB there, or set TURNOUT_CACHE to another folder",
            status=500,
        ) from error
    return file


def _carried() -> list[str]:
    installed = {found.name for found in metadata.distributions()}
    return [*NEEDED, *(name for name in IF_THERE if name in installed)]


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
