"""Archives of the classes that a JVM loads: a JVM that maps its archive starts in about half the time.

An archive is optional: a JVM that it does not fit ignores it. It is written by a training run: a JVM that is started
with an option for it, loads the classes that it needs, and ends. What that run does is the caller's.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.java.jars import cached_file, writing
from turnout.java.runtime import find_java, java_version

TRAINING_SECONDS = 900
"""The longest time that a training run may take."""
_OLDEST_WITH_CACHE = 25
"""From this version on, a cache (JEP 483, 514) has linked classes and lambdas too, and needs no archive of the JDK."""


def written_at(file: Path) -> int:
    """When a file was written, in seconds, as a JVM compares it: images of containers have no parts of them."""
    return int(file.stat().st_mtime)


class ClassArchive:
    """The archive of one program's classes for this Java and these parts (jars and their times): it fits no others."""

    def __init__(self, program: str, name: str, parts: Iterable[object]) -> None:
        java = find_java().resolve()
        self.program = program
        self._name = f"{name}-*.jsa"
        self._cache = (java_version(java) or 0) >= _OLDEST_WITH_CACHE
        self.file = cached_file(self._name, [java, written_at(java), *parts])

    def options(self) -> list[str]:
        """The options of a JVM that maps the archive; none where there is no archive."""
        return [f"-XX:{'AOTCache' if self._cache else 'SharedArchiveFile'}={self.file}"] if self.file.exists() else []

    def make(self, train: Callable[[str], object]) -> bool:
        """Make the archive where there is none, by a training run; return whether it was made.

        `train` gets the option by which a JVM writes the archive at its end, and returns after that end.
        """
        if self.file.exists():
            return False
        with writing(self.file, self._name) as part:
            try:
                train(f"-XX:{'AOTCacheOutput' if self._cache else 'ArchiveClassesAtExit'}={part}")
            except subprocess.TimeoutExpired:
                raise self._not_made(f"not done within {TRAINING_SECONDS} seconds") from None
            except subprocess.CalledProcessError as error:
                last = error.stderr.strip().splitlines() or ["its process failed"]
                raise self._not_made(last[-1]) from None
            if not part.exists():
                raise self._not_made("nothing was written")
        return True

    def _not_made(self, why: str) -> TurnoutError:
        return TurnoutError(
            code="no_class_archive",
            message=f"the archive of the classes of {self.program} was not made: {why}",
            hint="Turnout runs without it, but starts some seconds later",
            status=500,
        )
