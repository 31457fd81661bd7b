"""Spark's home in the cache: links to the jars of the PySpark that is installed.

All environments with the same PySpark have the same home, so that one archive of classes fits them all. PySpark's own
home has its Python code once more, in a zip that each worker would compile at its start; a home of links has none, and
workers import the code that is installed, which is compiled already.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import pyspark

from turnout.java.jars import UNUSED_SECONDS, made_file

HOME_VARIABLE = "SPARK_HOME"
_NAME = f"spark-{pyspark.__version__}-*"
_JARS = "jars"


def find_home() -> Path:
    """The home that the environment names, else that of links; PySpark's own where no links can be made."""
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named)
    installed = Path(pyspark.__file__).parent
    try:
        return _linked(installed)
    except OSError:
        return installed


def _linked(installed: Path) -> Path:
    files = sorted(file for file in (installed / _JARS).iterdir() if file.is_file())
    home = made_file(_NAME, (f"{file.name} {file.stat().st_size}" for file in files))
    if not home.exists():
        _make(home, files)
    with contextlib.suppress(OSError):  # it may be another user's, for us to read
        os.utime(home)
    return home


def _make(home: Path, files: list[Path]) -> None:
    part = home.with_name(f"{home.name}.{os.getpid()}.part")
    try:
        (part / _JARS).mkdir(parents=True)
        for file in files:
            (part / _JARS / file.name).hardlink_to(file)
        part.rename(home)
    except OSError:
        # Another process was earlier: its home is as good.
        if not home.exists():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for other in home.parent.glob("spark-*"):
        if other != home and time.time() - other.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
