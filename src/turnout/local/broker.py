"""A real Apache Kafka broker of one node (KRaft, no ZooKeeper) for the demo, for tests and for trials.

It owns the broker's process, folder and settings. Records are not its business: see ``testing``.
"""

import base64
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from turnout.errors import TurnoutError
from turnout.java import jars
from turnout.java.class_archive import TRAINING_SECONDS, ClassArchive, written_at
from turnout.java.runtime import find_java, java_environment, property_text
from turnout.kafka.clients import SILENT
from turnout.local.spinner import waiting

HOST = "127.0.0.1"
STOP_SECONDS = 20
TAIL_LINES = 15
LOCK_SECONDS = 5

# 0.4 s less of a 2.7 s start, and 30 MB less memory. A broker mostly moves bytes: writing and reading 1.5M
# records cost it no more CPU with the first compiler tier alone than with both.
JVM_FLAGS = (
    "-Xmx512m",
    "-XX:-CreateCoredumpOnCrash",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # a file in the system's temporary folder
    "-Djava.awt.headless=true",
)

# One node cannot have replicas, and one partition for each internal topic keeps start and stop short.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c{1})%n%throwable
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""

# java takes the place of the shell, so the pid that we know is java's. The small process beside it waits for
# the end of our pipe: that comes when this process ends in any way, kill -9 included. A word on the pipe
# means that java is known to be gone. PR_SET_PDEATHSIG would be shorter, but fires when the *thread* that
# started java ends.
LAUNCH = """\
exec 3<&0 </dev/null
(
  read -r word <&3 && exit
  kill -TERM $$; n=0
  while [ $n -lt 100 ] && kill -0 $$; do sleep 0.1; n=$((n + 1)); done
  kill -KILL $$
) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""


class EmbeddedBroker:
    """A broker on ``data``; start it again on the same folder and its topics and its port are still there.

    ``port`` 0 picks a free one. ``properties`` add to or replace any of the broker's settings; when they
    replace ``listeners``, ``port`` must be given and be one of them. ``properties["cluster.id"]`` is the id
    used for formatting, so that several nodes can form one cluster. ``client`` are librdkafka settings for
    the ready check, needed when the listener on ``port`` is a secured one. ``java_options`` come after Turnout's own
    and so replace them (``-Xmx1g``); ``classpath`` adds plugins of Kafka.
    """

    def __init__(
        self,
        data: Path,
        port: int = 0,
        properties: Mapping[str, str] = {},
        *,
        client: Mapping[str, str] = {},
        java_options: Sequence[str] = (),
        classpath: Sequence[Path] = (),
    ) -> None:
        self.data = data.absolute()
        self.log_file = self.data / "broker.log"
        self._port_file = self.data / "port.json"
        self._temporary = self.data / "tmp"
        self._wanted_port = port
        self._properties = properties
        self._client = client
        self._java_options = java_options
        self._classpath = classpath
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        if not self._port:
            raise RuntimeError("the broker has no address before it is started")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The pid of the JVM while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Launch, and return when a client gets an answer."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the JVM and do not wait: the nodes of a larger cluster must all run before one is ready."""
        if self._process is not None:
            raise RuntimeError("the broker is started already")
        kafka = jars.resolve("broker")
        java = [str(find_java()), *JVM_FLAGS, f"-Djava.io.tmpdir={self._temporary}", *broker_archive(kafka).options()]
        java += [*self._java_options, "-cp", os.pathsep.join(map(str, [*kafka, *self._classpath]))]
        self.data.mkdir(parents=True, exist_ok=True)
        lock = _lock(self.data)
        try:
            self._process = self._spawn(java, lock)
        finally:
            os.close(lock)  # the JVM has it now

    def _spawn(self, java: list[str], lock: int) -> subprocess.Popen[bytes]:
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        shutil.rmtree(self._temporary, ignore_errors=True)  # what a broker left that was killed
        self._temporary.mkdir(mode=0o700)
        settings = self._settings()
        server = self.data / "server.properties"
        server.touch(mode=0o600)  # properties may hold passwords
        lines = (f"{key}={property_text(value)}\n" for key, value in settings.items())
        server.write_text("".join(lines), encoding="ascii")
        self._format(java, server, Path(settings["log.dirs"].split(",")[0]))
        log4j = self.data / "log4j2.properties"
        log4j.write_text(LOG4J, encoding="utf-8")
        command = [*java, f"-Dlog4j2.configurationFile={log4j.as_uri()}", "kafka.Kafka", str(server)]
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", LAUNCH, "turnout-broker", *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.data, pass_fds=(lock,),
                env=java_environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for us; we then stop the broker in order
            )  # fmt: skip

    def wait_ready(self, timeout_seconds: float = 300) -> None:
        """Return when a client gets an answer; when that does not come, stop and show the end of the log."""
        deadline = time.monotonic() + timeout_seconds
        try:
            while not self._answers():
                if not self.running:
                    code = self._process.returncode if self._process else None
                    raise self.failed(f"the broker ended with exit code {code} before it was ready")
                if time.monotonic() > deadline:
                    raise self.failed(f"the broker was not ready within {timeout_seconds:g} s")
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise
        self._port_file.write_text(json.dumps({"port": self._port}), encoding="utf-8")

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """End the JVM: in order, by force when it takes too long. Does nothing when none runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with suppress(OSError):  # the waiting process was killed too
            process.stdin.write(b"gone\n")
            process.stdin.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _settings(self) -> dict[str, str]:
        own = self._properties
        self._port = self._wanted_port if "listeners" in own else self._choose_port()
        if not self._port:
            raise ValueError("properties replace 'listeners', so port must say which of them clients use")
        controller = free_port()
        places = {
            "listeners": f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.voters": f"{own.get('node.id', '1')}@{HOST}:{controller}",
            "log.dirs": str(self.data / "logs"),
        }
        if "controller.quorum.bootstrap.servers" in own or "controller.quorum.voters" in own:
            del places["controller.quorum.voters"]
        return {key: value for key, value in {**SETTINGS, **places, **own}.items() if key != "cluster.id"}

    def _choose_port(self) -> int:
        if is_free(self._wanted_port):  # as 0 always is
            return self._wanted_port or free_port(self._last_port())
        raise TurnoutError(
            code="broker_port_busy",
            message=f"port {self._wanted_port} on {HOST} is in use",
            hint="end the program that uses it, or choose another port (0 picks a free one)",
            status=500,
        )

    def _last_port(self) -> int:
        """The port of the last run, which its clients know; 0 where there is none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(self._port_file.read_text(encoding="utf-8"))["port"])
        return 0

    def _format(self, java: list[str], server: Path, folder: Path) -> None:
        """Kafka's own tool, although it costs 0.7 s: what it writes depends on the Kafka release."""
        if (folder / "meta.properties").exists():
            return
        own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # As one argument: an id may begin with a dash.
        cluster = f"--cluster-id={self._properties.get('cluster.id', own)}"
        command = [*java, "kafka.tools.StorageTool", "format", cluster, "--config", str(server)]
        with self.log_file.open("ab") as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, start_new_session=True,
                env=java_environment(),
            )  # fmt: skip
        if done.returncode:
            raise self.failed(f"the broker's folder {folder} could not be formatted")

    def _answers(self) -> bool:
        # Silent: it asks before the broker listens, and nobody needs to read the client's errors about that.
        config: dict[str, Any] = {"log_level": 0, **self._client, "bootstrap.servers": self.bootstrap_servers}
        with suppress(OSError, KafkaException):
            # First without a client, which would wait for its time to pass.
            socket.create_connection((HOST, self._port), timeout=1).close()
            return bool(AdminClient(config, logger=SILENT).list_topics(timeout=2).brokers)
        return False

    def failed(self, message: str) -> TurnoutError:
        """An error that shows the end of the log, without Java's stack frames: the causes are in the lines between."""
        lines: list[str] = []
        with suppress(OSError):
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        causes = [f"  {line}" for line in lines if not line.startswith(("\tat ", "\t... "))]
        hint = "\n".join([f"{self.log_file} ends with:", *causes[-TAIL_LINES:]])
        return TurnoutError(code="broker_failed", message=message, hint=hint, status=500)


def broker_archive(kafka: Sequence[Path]) -> ClassArchive:
    """The archive of the broker's classes: it saves 1.7 of the 4.2 processor seconds of a start and a stop."""
    return ClassArchive("the broker", "broker-classes", ((jar, written_at(jar)) for jar in kafka))


def train(option: str) -> None:
    """Start and stop a broker once, with an option by which its JVM archives its classes; that takes some seconds."""
    with tempfile.TemporaryDirectory(prefix="turnout-training-") as folder:
        broker = EmbeddedBroker(Path(folder) / "kafka", java_options=[option])
        broker.start()
        broker.stop(TRAINING_SECONDS)


def serve(port: int, data: Path) -> None:
    """Run a broker until SIGINT or SIGTERM; for the main thread. Prints a line when it is ready."""
    asked = threading.Event()
    with on_signals(asked.set), ExitStack() as running:
        with waiting("Starting Kafka", Console(stderr=True, highlight=False)):
            broker = running.enter_context(EmbeddedBroker(data, port))
        print(f"Kafka is ready at {broker.bootstrap_servers} (data: {broker.data}); Ctrl-C stops it", flush=True)
        while not asked.wait(0.5):
            if not broker.running:
                raise broker.failed("the broker ended by itself")


def free_port(wanted: int = 0) -> int:
    """The wanted port; where it is taken or 0 another that nobody has.

    That is below those that systems give to outgoing connections: these would take it at any time while nobody listens,
    as while a broker is restarted.
    """
    port = wanted
    while not (port and is_free(port)):
        port = 10_000 + secrets.randbelow(20_000)
    return port


@contextmanager
def on_signals(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` at SIGINT and SIGTERM, on the main thread."""
    # SIGINT too: a shell starts background jobs with it ignored, and then there is no KeyboardInterrupt.
    old = {sign: signal.signal(sign, lambda *_: action()) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in old.items():
            signal.signal(sign, handler)


def is_free(port: int) -> bool:
    """Whether the broker or a server of this machine could listen at a port."""
    with socket.socket() as probe:
        # As Kafka does: connections of the last run that are still closing must not look like a busy port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _lock(data: Path) -> int:
    """A file descriptor that holds the folder; the JVM inherits it, and with its end the folder is free.

    Kafka's own lock comes too late: a second node on the folder writes to the cluster metadata before it
    looks. The wait is for a broker that is just ending, its parent killed.
    """
    opened = os.open(data / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    # Not one of the first: `LAUNCH` has 3 for itself, which is free in a process that has opened nothing else.
    lock = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(opened)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(lock)
                raise TurnoutError(
                    code="broker_folder_busy",
                    message=f"another broker runs on {data}",
                    hint="stop that one, or choose another folder",
                    status=500,
                ) from None
            time.sleep(0.05)
        else:
            return lock
