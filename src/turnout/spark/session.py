"""The Spark session of the process: its jars, its settings, and its end.

Knows nothing of generations. Settings here are those that measurements asked for; each has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from turnout.config import SparkSettings
from turnout.jars import resolve
from turnout.java import find_java

_SETTINGS = {
    "spark.app.name": "turnout",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A swap's build must not starve the published generation: each has a pool of its own.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    # The view's SQL text is shared with DuckDB, which quotes names this way.
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # Hadoop's checksummed local file system forks a process for each commit file: 56 ms a batch instead of 6.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.metricsEnabled": "false",
    # A dead broker must be noticed, not waited for.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
}


def start_session(settings: SparkSettings, work: Path) -> SparkSession:
    """The one session of this process; `work` takes Spark's local files."""
    find_java()
    jars = [str(path) for path in resolve("spark-kafka")]
    work.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(settings.master)
    chosen = dict(_SETTINGS)
    chosen["spark.jars"] = ",".join(jars)
    chosen["spark.driver.memory"] = settings.driver_memory
    chosen["spark.local.dir"] = str(work)
    chosen["spark.sql.warehouse.dir"] = str(work / "warehouse")
    # Walking a record's text by regular expression recurses; see json_text.
    chosen["spark.driver.extraJavaOptions"] = chosen["spark.executor.extraJavaOptions"] = "-Xss4m"
    for name, value in (chosen | dict(settings.conf)).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def view_session(session: SparkSession) -> SparkSession:
    """A session for a view's SQL over a few rows: one partition, one job, nothing planned again while it runs."""
    small = session.newSession()
    small.conf.set("spark.sql.adaptive.enabled", "false")
    small.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    small.conf.set("spark.sql.shuffle.partitions", "1")
    return small


def build_session(session: SparkSession) -> SparkSession:
    """A session for a view's SQL over whole generations: as many partitions as there are cores."""
    large = session.newSession()
    large.conf.set("spark.sql.shuffle.partitions", str(max(2, session.sparkContext.defaultParallelism)))
    return large


@contextmanager
def pool(session: SparkSession, name: str) -> Iterator[None]:
    """Run the jobs of this thread in the scheduler pool `name`."""
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
