"""Finds the Java that Spark and the embedded broker run on; it starts nothing but ``java -version``."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from turnout.errors import TurnoutError

OLDEST = 17
REMEDY = (
    f"install Java {OLDEST} or newer (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
    " and put it on the PATH, or set JAVA_HOME"
)


def find_java() -> Path:
    """The ``java`` of JAVA_HOME, else of the PATH; new enough, or a TurnoutError that says how to get one."""
    if home := os.environ.get("JAVA_HOME", "").strip():
        java = Path(home) / "bin" / "java"
        # Spark obeys JAVA_HOME too, so a wrong one is reported, not passed over.
        if not os.access(java, os.X_OK):
            raise _error("java_missing", f"JAVA_HOME is {home}, which has no bin/java that can be run")
    elif found := shutil.which("java"):
        java = Path(found)
    else:
        raise _error("java_missing", "no Java: JAVA_HOME is not set and 'java' is not on the PATH")
    version = _version(java)
    if version is None:
        raise _error("java_broken", f"{java} does not run, or does not print its version")
    if version < OLDEST:
        raise _error("java_too_old", f"{java} is Java {version}; Turnout needs {OLDEST} or newer")
    return java


@functools.cache
def _version(java: Path) -> int | None:
    """The major version, 8 for the old style ``1.8.0``."""
    try:
        done = subprocess.run(
            [java, "-XX:-UsePerfData", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def _error(code: str, message: str) -> TurnoutError:
    return TurnoutError(code=code, message=message, hint=REMEDY, status=500)
