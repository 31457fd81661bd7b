"""An archive of the classes that Spark loads: a JVM that maps it starts in about half the time.

Owns the archive's file and its making. Spark works without it: a JVM that it does not fit passes over it by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.java.jars import made_file, making
from turnout.java.runtime import find_java
from turnout.spark.home import find_home

MAKING_SECONDS = 300
_NAME = "classes-*.jsa"


def archive_file(jars: Sequence[Path]) -> Path:
    """Where the archive for this Java, this Spark and these jars is, or would be: it fits no others."""
    java = find_java().resolve()
    home = find_home()
    # A JVM passes over an archive whose jars have another time, such as those of a Spark that was installed again.
    installed = max((jar.stat().st_mtime_ns for jar in (home / "jars").glob("*.jar")), default=0)
    parts = [java, java.stat().st_mtime_ns, home, installed, *jars]
    return made_file(_NAME, parts)


def use(file: Path) -> str:
    """The option of a JVM that maps the archive; empty where there is none."""
    return f'"-XX:SharedArchiveFile={file}"' if file.exists() else ""


def write_at_exit(file: Path) -> str:
    """The option of a JVM that writes at its end what it has loaded."""
    return f'"-XX:ArchiveClassesAtExit={file}"'


def make(jars: Sequence[Path]) -> Path:
    """The archive, made where it is not there; that takes half a minute, in a process of its own."""
    file = archive_file(jars)
    if file.exists():
        return file
    with making(file, _NAME) as part:
        command = [sys.executable, "-m", "turnout.spark.rehearsal", str(part)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAKING_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise _not_made(f"not done within {MAKING_SECONDS} seconds") from None
        if done.returncode != 0 or not part.exists():
            raise _not_made((done.stderr.strip().splitlines() or ["nothing was written"])[-1])
    return file


def _not_made(why: str) -> TurnoutError:
    return TurnoutError(
        code="no_class_archive",
        message=f"the archive of Spark's classes was not made: {why}",
        hint="Turnout runs without it, and starts some seconds later",
        status=500,
    )
