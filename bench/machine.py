"""The description of the machine and the versions, for the results."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import environments
import turnout


def describe() -> dict[str, Any]:
    """Return the machine and the versions, without which the results cannot be compared."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "processor": _processor(),
            "memory_gib": psutil.virtual_memory().total / 2**30,
            "system": f"{platform.system()} {platform.release()}",
            "load_before": os.getloadavg()[0],
        },
        "versions": {
            "Turnout": turnout.__version__,
            "Python": platform.python_version(),
            "Java": _java(),
            **{name: version(package) for name, package in _PACKAGES.items()},
            "Deephaven": " and ".join(map(_pinned, environments.DEEPHAVENS)),
            "Pathway": _pinned("pathway"),
            **{name: environments.jar_version(*jar) for name, jar in _JARS.items()},
        },
    }


_PACKAGES = {"PySpark": "pyspark", "DuckDB": "duckdb", "librdkafka client": "confluent-kafka"}
_JARS = {"Kafka Streams": ("kafka-streams", "kafka-streams"), "Flink": ("flink", "flink-clients")}


def _pinned(environment: str) -> str:
    return environments.PACKAGES[environment][0].partition("==")[2]


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else "unknown"
