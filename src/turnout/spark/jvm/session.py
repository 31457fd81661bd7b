"""The Spark session of the process: its jars, its settings, its log file, and its end.

Knows nothing of generations. The settings are those that measurements asked for; each has its reason beside it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from turnout.config import SparkSettings
from turnout.config.secrets import SPARK_SECRET_NAMES
from turnout.errors import TurnoutError
from turnout.java.class_archive import ClassArchive, written_at
from turnout.java.jars import resolve
from turnout.java.runtime import find_java, java_environment, property_text
from turnout.spark.jvm.callbacks import start_callbacks
from turnout.spark.jvm.checkpoints import is_url
from turnout.spark.jvm.cluster import carried, is_local, python_of_workers, reached_at
from turnout.spark.jvm.launch import HOME_VARIABLE, find_home, java_command

TEMPORARY = "tmp"
"""The folder for what the JVM, its libraries and Python workers would put into the system's temporary folder."""

VIEW_FILES = "build"
"""The folder for files of views that are being built, in Spark's local folder or in a checkpoint."""

_SCRATCH = ("blockmgr-*", "spark-*", "bulk-*", VIEW_FILES, TEMPORARY)
"""The folders that Spark and we make in Spark's local folder, and remove at an end in order."""

OUTPUT_FILE = "java.log"
"""What the JVM prints by itself: why it did not start, or crashed. That of the start before has `.1` at its end."""

CRASH_FILE = "java-crash-%p.log"
"""What the JVM writes when it crashes, with its process id."""

START_SECONDS = 180.0
"""A JVM that has not given its address by then is ended: with a full disk it can give none, and would wait forever."""

_SETTINGS = {
    "spark.app.name": "turnout",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A swap's build must not starve the published generation: each has a pool of its own.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    # The view's SQL text is shared with DuckDB, which quotes names this way.
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stopTimeout": "5s",
    # How long a query that has read nothing yet rests between two questions; later it is held in its last batch.
    "spark.sql.streaming.pollingDelay": "100ms",
    # What a page of Spark's would show of queries and jobs that are over, which nobody looks at: 40 kB a swap.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # Every run of a plan is written down for that page; the short form takes less time.
    "spark.sql.ui.explainMode": "simple",
}

_CHECKPOINTS_BY_PATH = {
    # Hadoop's checksummed local file system forks a process for each commit file: 56 ms a batch instead of 6.
    # Clients of object stores do not work without it.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# A core file would hold every secret that the JVM knows.
# Nobody reads the JVM's performance data, which would be a file in the system's temporary folder.
_JAVA_OPTIONS = "-XX:-CreateCoredumpOnCrash -XX:-UsePerfData"

FEW_CORES = 4
"""Up to so many cores, what the JVM compiles thoroughly and collects side by side is taken from the records' work."""

# Half the processor time of a start, and a third of that of small batches on two cores.
_FEW_CORES_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
# What a catch-up needed is given back when it is over: 1.1 GB less for 1M + 1M records.
_MANY_CORES_OPTIONS = "-XX:G1PeriodicGCInterval=15000 -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"


def java_options(cores: int) -> str:
    """The options of a JVM that has so many cores; `spark.conf` can add others, which win."""
    return f"{_JAVA_OPTIONS} {_FEW_CORES_OPTIONS if cores <= FEW_CORES else _MANY_CORES_OPTIONS}"


# A Spark that has this machine only: its ports take Java objects, without a secret, which the JVM then makes up, from
# every user of the machine.
_ALONE = {"spark.authenticate": "true"}

# Whatever Spark shows of properties and options, of these it shows only that they are set.
_REDACTED = {
    "spark.redaction.regex": SPARK_SECRET_NAMES,
    "spark.sql.redaction.options.regex": f"{SPARK_SECRET_NAMES}|url",
}
_ADDED = {
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.jars": ",",
    "spark.archives": ",",
    "spark.executorEnv.PYTHONPATH": os.pathsep,
}
"""Settings that add to ours, and what stands between the two."""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = FOLDER/spark.log
appender.file.filePattern = FOLDER/spark.log.%i
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


Java = subprocess.Popen[bytes]
"""The process of Spark's JVM, which leads a process group of its own."""


def clear_scratch(work: Path) -> None:
    """Take away what a session left that was killed or had no time: blocks, files of bulk reads and of views."""
    for left in _SCRATCH:
        for folder in work.glob(left):
            shutil.rmtree(folder, ignore_errors=True)


def scratch(session: SparkSession) -> Path:
    """Spark's local folder on this machine, the first where it has several; for files that are not kept."""
    named = session.sparkContext.getConf().get("spark.local.dir")
    return Path(named.split(",")[0] if named else tempfile.gettempdir())


def start_session(settings: SparkSettings, work: Path, on_java: Callable[[Java], None] | None = None) -> SparkSession:
    """The one session of this process. `work` takes Spark's local files and its log.

    `on_java` gets the JVM's process when it has begun, seconds before the session is there.
    """
    find_java()
    home = find_home()
    _silence_py4j()
    os.environ["PYSPARK_PYTHON"] = python_of_workers(settings, os.environ)
    # Each thread of Python has one of the JVM's, over one connection: `callbacks` needs it.
    os.environ["PYSPARK_PIN_THREAD"] = "true"
    jars = resolve("spark-kafka")
    work.mkdir(parents=True, exist_ok=True)
    clear_scratch(work)
    temporary = work / TEMPORARY
    temporary.mkdir(mode=0o700)
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOGGING.replace("FOLDER", property_text(str(work))))
    options = [f"-XX:ErrorFile={work / CRASH_FILE}", f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}"]
    options += [f"-Djava.io.tmpdir={temporary}", *spark_archive(home, jars).options()]
    os.environ[HOME_VARIABLE] = str(home)
    checkpoints = {} if is_url(settings.shared_dir or "") else _CHECKPOINTS_BY_PATH
    chosen = {**_SETTINGS, **checkpoints, **_REDACTED} | {
        **carried(settings, jars),
        **reached_at(settings),
        **({**_ALONE, "spark.executorEnv.TMPDIR": str(temporary)} if is_local(settings.master) else {}),
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.extraJavaOptions": f"{java_options(os.cpu_count() or 1)} {shlex.join(options)}",
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    }
    given = given_settings(chosen, settings.conf)
    began: list[Java] = []
    output = work / OUTPUT_FILE
    with contextlib.suppress(FileNotFoundError):
        output.replace(output.with_name(f"{OUTPUT_FILE}.1"))
    with output.open("wb") as log:
        try:
            first = _conf(settings.master, visible_settings(given))
            # Without that, Spark looks up the name of this machine, which a container may not know.
            known = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(settings.master) else {}
            with _launching(java_command(home, given), known, began, on_java):
                popen = {"stdout": log, "stderr": log, "process_group": 0}
                gateway = java_gateway.launch_gateway(first, popen)  # type: ignore[no-untyped-call]
            start_callbacks(gateway)
            context = SparkContext(conf=_conf(settings.master, given), gateway=gateway)
            return SparkSession(context)
        except Exception as error:
            for java in began:
                end_java(java)
            _forget()
            raise not_started(output, error) from error


def spark_archive(home: Path, jars: Sequence[Path]) -> ClassArchive:
    """The archive of the classes of Spark in this home, with these jars."""
    # A JVM passes over an archive whose jars have another time, such as those of a Spark that was installed again.
    installed = max(map(written_at, (home / "jars").glob("*.jar")), default=0)
    return ClassArchive("Spark", "classes", [home, installed, *jars])


@contextlib.contextmanager
def _launching(
    command: list[str], variables: Mapping[str, str], began: list[Java], on_java: Callable[[Java], None] | None
) -> Iterator[None]:
    """Make PySpark start the JVM by our command, and tell of its process at once. The environment may overrule ours.

    PySpark itself tells of it only when the JVM is up: too late to end one that is starting. Its wait has no limit.
    """

    def end() -> None:
        for java in began:
            end_java(java)

    def popen(arguments: list[str], *, env: dict[str, str], preexec_fn: object = None, **kwargs: Any) -> Java:
        # PySpark's function would run in a fork of this process with all its threads, and was seen to crash there. It
        # ignores SIGINT, so that Ctrl-C does not reach the JVM; so does the shell here, which Java replaces.
        ignoring = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
        variables_of_java = java_environment({**variables, **env})
        java = subprocess.Popen([*ignoring, *command, *arguments[1:]], env=variables_of_java, **kwargs)
        began.append(java)
        if on_java is not None:
            on_java(java)
        return java

    overdue = threading.Timer(START_SECONDS, end)
    overdue.daemon = True
    overdue.start()
    java_gateway.__dict__["Popen"] = popen
    try:
        yield
    finally:
        overdue.cancel()
        java_gateway.__dict__["Popen"] = subprocess.Popen


def given_settings(ours: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Our settings with those of the configuration, which win; options of the JVM, jars and redaction add to ours."""
    both = ours.keys() & conf.keys()
    joined = {name: f"{ours[name]}{_ADDED[name]}{conf[name]}" for name in both.intersection(_ADDED)}
    joined |= {name: f"{ours[name]}|{conf[name].removeprefix('(?i)')}" for name in both.intersection(_REDACTED)}
    return {**ours, **conf, **joined}


def visible_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What the JVM is started with, for everyone on the machine to see; the rest goes over py4j's socket."""
    return {
        name: value for name, value in settings.items() if not re.search(SPARK_SECRET_NAMES, name) or name in _REDACTED
    }


def _conf(master: str, values: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False).setMaster(master)
    return conf.setAll(list(values.items()))


def _silence_py4j() -> None:
    """What py4j logs also reaches us as exceptions; some of it goes to the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if _not_of_py4j not in logging.getLogger().filters:
        logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def stop_session(session: SparkSession, timeout_seconds: float = 3.0) -> None:
    """End Spark and its JVM; a JVM that does not end by itself is ended by its process id."""
    java: Java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    stopping = threading.Thread(target=_stop_quietly, args=(session,), daemon=True)
    stopping.start()
    stopping.join(timeout_seconds)
    end_java(java)


def end_java(java: Java, timeout_seconds: float = 0.8) -> None:
    """End a JVM by its process id, with the processes that start it; asked first, then killed."""
    if java.stdin is not None:
        java.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if java.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(java.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            java.wait(timeout_seconds)


def forget_session(session: SparkSession) -> None:
    """Take away what PySpark keeps of a session whose JVM is gone, so that another can be started."""
    context = session.sparkContext
    with contextlib.suppress(Exception):
        context._accumulatorServer.shutdown()
    with contextlib.suppress(Exception):
        context._gateway.shutdown()  # type: ignore[union-attr]
    _forget()


def _forget() -> None:
    """PySpark keeps these for the whole process, and would use a JVM that is gone for the next session."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _stop_quietly(session: SparkSession) -> None:
    # A JVM that is already gone has nothing left to stop.
    with contextlib.suppress(Exception):
        session.stop()


_FEW_ROWS = {
    # One partition, one job, nothing planned again while it runs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
_PLANNED_ONCE = {
    # For rows so few that generating code for them takes longer than they do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The planner would spread rows that may be many over an exchange.
    "spark.sql.defaultSizeInBytes": "1048576",
}
_OWN_SQL = {
    # What cannot be computed is null, so that no record ends a view.
    "spark.sql.ansi.enabled": "false",
    # Spark would put environment variables, Java properties and its settings into the text: `${env:NAME}`.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
}


def view_session(session: SparkSession, *, own: bool = False, planned: bool = False) -> SparkSession:
    """A session for a view's SQL over a few rows; `own`: for SQL that a user wrote, `planned`: for kept plans."""
    small = session.newSession()
    settings = _FEW_ROWS | (_PLANNED_ONCE if planned else {}) | (_OWN_SQL if own else {})
    for name, value in settings.items():
        small.conf.set(name, value)
    return small


class TaskSize(NamedTuple):
    """How much one task of a build takes at most: less while small batches come, each of which waits for its end."""

    usual: int
    short: int

    def most(self, *, live: bool) -> int:
        return self.short if live else self.usual


@contextlib.contextmanager
def pool(session: SparkSession, name: str) -> Iterator[None]:
    """Run the jobs of this thread in the scheduler pool `name`; after that in the one that it had before.

    On the thread of a query that is the query's own: later batches would be in the pool of everybody else.
    """
    context = session.sparkContext
    before = context.getLocalProperty("spark.scheduler.pool")
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", before)  # type: ignore[arg-type]


_TRACE = re.compile(r"at |\.\.\. \d+ more")
"""The lines of a stack trace that say nothing to its reader."""


def not_started(log: Path, error: Exception) -> TurnoutError:
    """Return the error of a JVM that did not start: the last words of its log, else those of `error`."""
    words = (line.strip() for line in log.read_text(errors="replace").splitlines())
    said = [line for line in words if line and not _TRACE.match(line)]
    last = said[-1].removeprefix("Caused by: ") if said else str(error)
    return TurnoutError(
        code="spark_not_started",
        message=f"Spark did not start: {last}",
        hint=f"see {log}; check spark.master, spark.conf, the memory that is free and the room on the disk",
        status=503,
    )
