"""`prepare`: what makes starts faster, once."""

from __future__ import annotations

from turnout.cli import output
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout prepare"))
def prepare() -> None:
    """Make starts faster, once for each version: fetch jars and archive their classes (half a minute).

    It takes 240 MB of the jar cache for each version of Java, Spark and Turnout. A JVM that maps its archive starts in
    about half the time. It is optional: without it, starts take some seconds more. `make setup` runs it.
    """
    from turnout.java.jars import resolve
    from turnout.local import broker
    from turnout.local.spinner import waiting
    from turnout.spark import training_run
    from turnout.spark.jvm.launch import find_home
    from turnout.spark.jvm.session import spark_archive

    kafka, spark = resolve("broker"), resolve("spark-kafka")
    runs = {
        spark_archive(find_home(), spark): training_run.train,
        # The demo looks whether this last one is there.
        broker.broker_archive(kafka): broker.train,
    }
    for archive, train in runs.items():
        with waiting(f"Archiving the classes of {archive.program}", output.console()):
            made = archive.make(train)
        size = archive.file.stat().st_size / 1e6
        print(
            f"Archived the classes of {archive.program} ({size:.0f} MB): it starts faster from now on"
            if made
            else f"The classes of {archive.program} are archived already"
        )
