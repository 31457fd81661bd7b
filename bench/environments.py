"""The environments of the peers, in bench/out/env: created on demand, with pinned versions.

If a peer cannot be installed, `Unavailable` is raised with the reason; the bench reports it and continues.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.java import jars

FOLDER = Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER / "out" / "env"
INSTALL_SECONDS = 600

PACKAGES = {
    # Deephaven's metadata omits pytz and a compatible version of bitstring.
    **{
        f"Deephaven {version}": (
            f"deephaven-server=={version}",
            f"pydeephaven-ticking=={version}",
            "pytz==2026.6",
            "bitstring==4.4.0",
        )
        for version in ("42.7", "0.40.2")
    },
    "pathway": ("pathway==0.33.0",),
    "chart": ("matplotlib==3.10.7",),
}


DEEPHAVENS = tuple(name for name in PACKAGES if name.startswith("Deephaven"))
"""Both versions, with the newest first; ratios and targets compare with the newest."""
FAST_CYCLE = ", 100 ms cycle"
"""The suffix of the name of a Deephaven with this cycle instead of one second."""

NEEDED = {"catch-up": (*DEEPHAVENS, "pathway"), "latency": DEEPHAVENS}


class Unavailable(Exception):  # noqa: N818 - not an error: the reason why a peer is not in the table
    """The peer cannot run on this machine."""


_unavailable: dict[str, str] = {}


def install(measures: Iterable[str]) -> None:
    """Install the environments of these measures in advance; a failure is raised when the environment is used."""
    names = {environment for measure in measures for environment in NEEDED.get(measure, ())}
    # In parallel, because an installation mostly waits for downloads.
    with ThreadPoolExecutor() as installers:
        list(installers.map(_try, sorted(names)))


def _try(name: str) -> None:
    try:
        python(name)
    except Unavailable as error:
        _unavailable[name] = str(error)


def python(name: str) -> Path:
    """Return the interpreter of an environment; install the environment if it does not exist."""
    if name in _unavailable:
        raise Unavailable(_unavailable[name])
    folder = ENVIRONMENTS / name
    stamp = folder / ".installed"
    wanted = "\n".join(PACKAGES[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES[name])
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def class_path(set_name: str) -> str:
    """Return the class path of a set of bench/jars.lock, whose jars are fetched and verified like Turnout's own."""
    try:
        files = jars.fetch(_locked(set_name), jars.cache_folder())
    except TurnoutError as error:
        raise Unavailable(str(error)) from error
    return ":".join(map(str, files))


def jar_version(set_name: str, artifact: str) -> str:
    """Return the locked version of a jar."""
    return next(jar.version for jar in _locked(set_name) if jar.artifact == artifact)


def _locked(set_name: str) -> list[jars.Jar]:
    lock = json.loads((FOLDER / "jars.lock").read_text(encoding="utf-8"))
    return [_jar(**entry) for entry in lock["sets"][set_name]]


def _jar(coordinates: str, size: int, sha256: str) -> jars.Jar:
    group, artifact, version = coordinates.split(":")
    return jars.Jar(group, artifact, version, size, sha256)


def java_command(source: Path, set_name: str) -> list[str]:
    """Compile a peer's source file, and return the command that runs it."""
    if shutil.which("javac") is None:
        raise Unavailable("no JDK: a JRE cannot compile the peer's source")
    jars_of_set = class_path(set_name)
    classes = ENVIRONMENTS / set_name
    _run("javac", "-nowarn", "-cp", jars_of_set, "-d", str(classes), str(source))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util", "java.time")]
    return ["java", "-Xmx4g", *opened, "-cp", f"{classes}:{jars_of_set}", source.stem]


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise Unavailable(f"cannot be installed: {last[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"cannot be installed within {INSTALL_SECONDS} s") from error
