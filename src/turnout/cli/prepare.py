"""`prepare`: what makes starts faster, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from turnout.cli import output
from turnout.cli.app import app, examples

if TYPE_CHECKING:
    from turnout.java.class_archive import ClassArchive


@app.command(epilog=examples("turnout prepare"))
def prepare() -> None:
    """Make starts faster, once for each version: fetch jars and archive their classes (half a minute).

    240 MB in the cache of jars, once for each version of Java, Spark and Turnout. A JVM that maps its archive starts in
    about half the time. It is optional: without it, starts take some seconds more. `make setup` runs it.
    """
    from turnout.java.jars import resolve
    from turnout.local import broker
    from turnout.spark import rehearsal
    from turnout.spark.session import spark_archive

    kafka, spark = resolve("broker"), resolve("spark-kafka")
    _archived(spark_archive(spark), lambda: rehearsal.make_archive(spark))
    _archived(broker.broker_archive(kafka), broker.make_archive)


def _archived(archive: ClassArchive, make: Callable[[], object]) -> None:
    if archive.file.exists():
        print(f"The classes of {archive.program} are archived already")
        return
    with output.console().status(f"Archiving the classes of {archive.program} ..."):
        make()
    size = archive.file.stat().st_size / 1e6
    print(f"Archived the classes of {archive.program} ({size:.0f} MB): it starts earlier from now on")
