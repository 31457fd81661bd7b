"""A broker that comes and goes once, so that its JVM knows which classes it takes and archives them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.java import jars
from turnout.java.jars import making
from turnout.local.broker import EmbeddedBroker
from turnout.local.broker_archive import NAME, archive_file

MAKING_SECONDS = 300


def make_archive() -> Path:
    """The archive of the broker's classes, made where it is not there; that takes some seconds."""
    file = archive_file(jars.resolve("broker"))
    if file.exists():
        return file
    with making(file, NAME) as part, tempfile.TemporaryDirectory(prefix="turnout-rehearsal-") as folder:
        broker = EmbeddedBroker(Path(folder) / "kafka", java_options=[f"-XX:ArchiveClassesAtExit={part}"])
        broker.start()
        broker.stop(MAKING_SECONDS)  # it writes the archive at its end
        if not part.exists():
            raise TurnoutError(
                code="no_class_archive",
                message="the archive of the broker's classes was not made: nothing was written",
                hint="the broker runs without it, and starts a second later",
                status=500,
            )
    return file
