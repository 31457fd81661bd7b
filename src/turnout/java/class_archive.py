"""Archives of the classes that a JVM loads: a JVM that maps its archive starts in about half the time.

Owns the files and their making; what a JVM must do to load its classes is the caller's. An archive is optional: a JVM
that it does not fit passes over it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from turnout.errors import TurnoutError
from turnout.java.jars import made_file, making
from turnout.java.runtime import find_java, java_version

MAKING_SECONDS = 300
_OLDEST_WITH_CACHE = 25
"""From this version on, a cache (JEP 483, 514) has linked classes and lambdas too, and needs no archive of the JDK."""


class ClassArchive:
    """The archive of one program's classes for this Java and these parts (jars and their times): it fits no others."""

    def __init__(self, program: str, name: str, parts: Iterable[object]) -> None:
        java = find_java().resolve()
        self.program = program
        self._name = f"{name}-*.jsa"
        self._cache = (java_version(java) or 0) >= _OLDEST_WITH_CACHE
        self.file = made_file(self._name, [java, java.stat().st_mtime_ns, *parts])

    def options(self) -> list[str]:
        """The options of a JVM that maps the archive; none where it was not made."""
        return [f"-XX:{'AOTCache' if self._cache else 'SharedArchiveFile'}={self.file}"] if self.file.exists() else []

    @contextlib.contextmanager
    def making(self) -> Iterator[str]:
        """Give the option of a JVM that writes the archive at its end, which must come within the block."""
        with making(self.file, self._name) as part:
            yield f"-XX:{'AOTCacheOutput' if self._cache else 'ArchiveClassesAtExit'}={part}"
            if not part.exists():
                raise self.not_made("nothing was written")

    def not_made(self, why: str) -> TurnoutError:
        return TurnoutError(
            code="no_class_archive",
            message=f"the archive of the classes of {self.program} was not made: {why}",
            hint="Turnout runs without it, and starts some seconds later",
            status=500,
        )
