"""`prepare`: what makes starts faster, once."""

from turnout.cli import output
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout prepare"))
def prepare() -> None:
    """Make starts faster, once for each version: fetch Spark's jars and archive its classes (half a minute).

    190 MB in the cache of jars, once for each version of Java, Spark and Turnout. A JVM that maps the archive starts in
    about half the time. It is optional: without it, starts take some seconds more. `make setup` runs it.
    """
    from turnout.java.jars import resolve
    from turnout.spark import class_archive

    jars = resolve("spark-kafka")
    if class_archive.archive_file(jars).exists():
        print("Spark's classes are archived already")
        return
    with output.console().status("Archiving Spark's classes ..."):
        file = class_archive.make(jars)
    print(f"Archived Spark's classes ({file.stat().st_size / 1e6:.0f} MB): starts take some seconds less from now on")
