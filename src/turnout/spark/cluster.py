"""What Spark needs when its executors are on other machines: an address to call back, jars, a Python and its packages.

A local master needs none of it. All of it are plain Spark properties, so `spark.conf` can say otherwise.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.config import SparkSettings
from turnout.spark.packages import FOLDER, archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Where executors find the driver: loopback alone, or its address on the way to the master.

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
