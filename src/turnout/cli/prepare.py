"""`prepare`: what makes starts faster, once."""

from collections.abc import Callable
from pathlib import Path

from turnout.cli import output
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout prepare"))
def prepare() -> None:
    """Make starts faster, once for each version: fetch jars and archive their classes (half a minute).

    240 MB in the cache of jars, once for each version of Java, Spark and Turnout. A JVM that maps its archive starts in
    about half the time. It is optional: without it, starts take some seconds more. `make setup` runs it.
    """
    from turnout.java import jars
    from turnout.local import broker_archive
    from turnout.local.broker_rehearsal import make_archive
    from turnout.spark import class_archive as spark_archive

    spark, broker = jars.resolve("spark-kafka"), jars.resolve("broker")
    _archived("Spark", spark_archive.archive_file(spark), lambda: spark_archive.make(spark))
    _archived("the broker", broker_archive.archive_file(broker), make_archive)


def _archived(whose: str, file: Path, make: Callable[[], Path]) -> None:
    if file.exists():
        print(f"The classes of {whose} are archived already")
        return
    with output.console().status(f"Archiving the classes of {whose} ..."):
        made = make()
    print(f"Archived the classes of {whose} ({made.stat().st_size / 1e6:.0f} MB): it starts earlier from now on")
