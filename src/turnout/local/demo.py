"""`turnout demo`: an embedded broker, sample data that never ends, and Turnout on top, in one process to stop.

It owns the order in which these start and stop. The server itself is `service.py`, the data `demo_data.py`.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
from rich.console import Console
from rich.markup import escape

from turnout.config import KafkaSettings, Settings, parse
from turnout.java import jars
from turnout.java.runtime import find_java
from turnout.kafka.clients import TopicAdmin
from turnout.kafka.topics import Topics
from turnout.local.broker import HOST, EmbeddedBroker, broker_archive, free_port, on_signals
from turnout.local.demo_data import HARBOUR, SUMMIT, People, SampleProducer, Theme
from turnout.local.spinner import waiting

PAIRS: tuple[tuple[str, str, Theme], ...] = (("users", "accounts", HARBOUR), ("users2", "accounts2", SUMMIT))
CONTROL = "control"
PARTITIONS = 2
BACKLOG_USERS = 500
KAFKA_PORT = 9092
_POLL_SECONDS = 0.2
_CREATE_SECONDS = 60.0


class _StopRequested(BaseException):
    """A signal, as an exception: what was started so far is stopped on the way out."""


def _stop() -> None:
    raise _StopRequested


def run(*, port: int = 10000, records_per_second: float = 20, data: Path | None = None) -> None:
    """Start everything, and block until SIGINT or SIGTERM; for the main thread. `data` keeps what there is."""
    screen = Console(highlight=False)
    with suppress(_StopRequested), on_signals(_stop), ExitStack() as open_things:
        folder = data or Path(open_things.enter_context(tempfile.TemporaryDirectory(prefix="turnout-demo-")))
        folder = folder.absolute()
        find_java()
        for name in jars.read_lock():  # what the first run has to fetch, with a progress bar of its own
            jars.resolve(name)
        _done(screen, "Jars")
        broker = EmbeddedBroker(folder / "kafka", free_port(KAFKA_PORT))
        open_things.callback(_stop_broker, broker, data is None)
        with waiting("Starting Kafka", screen):
            broker.start()
        _done(screen, f"Kafka at {broker.bootstrap_servers}")
        producer = SampleProducer(broker.bootstrap_servers)
        open_things.callback(producer.stop)
        with waiting("Writing sample data", screen):
            written, people = _fill(broker.bootstrap_servers, producer)
        _done(screen, f"Sample data: {written:,} records, then {records_per_second:g} a second")
        producer.start([one.live() for one in people], records_per_second)
        web_port = free_port(port)
        if port and web_port != port:
            screen.print(f"[yellow]![/] Port {port} is taken; the page is at port {web_port}")
        url, stopping = f"http://{HOST}:{web_port}", threading.Event()
        arguments = (screen, url, banner(url, broker.bootstrap_servers, folder if data else None), stopping)
        banner_thread = threading.Thread(
            target=_show_when_ready, args=arguments, name="turnout-demo-banner", daemon=True
        )
        banner_thread.start()
        open_things.callback(banner_thread.join, 2)
        open_things.callback(stopping.set)
        open_things.callback(screen.print, "Stopping ...")
        # Late: it loads Spark, which takes a moment that is better spent with something to see.
        from turnout import service

        service.run(settings(folder, broker.bootstrap_servers, web_port))


def settings(folder: Path, bootstrap_servers: str, port: int) -> Settings:
    """The demo's configuration: the default one, from the start of the topics, in a folder of its own."""
    document = {
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "control": {"topic": CONTROL},
        "start": "earliest",
        "server": {"port": port},
        "data_dir": str(folder / "turnout"),
    }
    return parse(document, folder, {})


def _fill(bootstrap_servers: str, producer: SampleProducer) -> tuple[int, list[People]]:
    """Create the topics that are missing, and write the first people of each pair; how many records, and who."""
    written = 0
    people = []
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    with closing(Topics(kafka)) as topics:
        known = topics.names()
        wanted = {topic: PARTITIONS for users, accounts, _ in PAIRS for topic in (users, accounts)} | {CONTROL: 1}
        for topic, partitions in wanted.items():
            if topic not in known:
                TopicAdmin(kafka, "demo", _CREATE_SECONDS).create(topic, partitions)
        for users, accounts, theme in PAIRS:
            # More than there are users, so that a later run on the same data brings new ones.
            before = sum(topics.end_offsets([users, accounts]).next.values())
            people.append(People(users, accounts, theme, first_user=before + 1))
            written += producer.write(people[-1].backlog(0 if before else BACKLOG_USERS))
    return written, people


def _show_when_ready(screen: Console, url: str, text: str, stopping: threading.Event) -> None:
    """Show that Spark starts, and the text once the tables are there; on a thread, while the server runs."""
    ready = False
    # One client for all questions: each new one reads the certificates of the system, while Spark wants the processor.
    with waiting("Starting Spark and building the tables", screen), httpx.Client(timeout=5) as client:
        while not ready:
            if stopping.wait(_POLL_SECONDS):
                return
            with suppress(httpx.HTTPError):
                ready = client.get(f"{url}/readyz").is_success
    _done(screen, "Spark, and the tables")
    screen.print(text, soft_wrap=True)  # commands must survive being copied
    _archive_classes(screen, stopping)


def _archive_classes(screen: Console, stopping: threading.Event) -> None:
    """Make later starts faster by `turnout prepare`, beside the demo and at the lowest priority, until that stops."""
    if broker_archive(jars.resolve("broker")).file.exists():  # it is made last
        return
    screen.print("[dim]Archiving Java classes in the background: the next start will be faster.[/]")
    command = ["nice", "-n", "19", sys.executable, "-m", "turnout", "prepare"]
    with suppress(OSError):  # without it, the next start is as slow as this one
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None:
            if stopping.wait(_POLL_SECONDS):
                process.kill()


def banner(url: str, bootstrap_servers: str, kept: Path | None) -> str:
    """What to open, and what to try; with Rich's markup."""
    option = "" if url == "http://127.0.0.1:10000" else f" --url {url}"
    python, turnout = (escape(_called(Path(sys.executable).with_name(name))) for name in ("python", "turnout"))
    message = '{"usersTopic": "users2", "accountsTopic": "accounts2"}'
    script = (
        f"from confluent_kafka import Producer as P; p = P({{'bootstrap.servers': '{bootstrap_servers}'}}); "
        f"p.produce('{CONTROL}', '{message}'); p.flush()"
    )
    lines = [
        "",
        f"[bold green]Turnout is running.[/] Open [bold cyan]{url}[/]",
        "",
        f"  Watch       {turnout} watch final_ui{option}",
        f"  Swap        {turnout} swap --topic users=users2 --topic accounts=accounts2{option}",
        f"  Back        {turnout} rollback{option}",
        f"  Status      {turnout} status{option}",
        "",
        f"Or swap by a record on the topic [bold]{CONTROL}[/] of Kafka at [bold]{bootstrap_servers}[/]:",
        "",
        f"  echo '{message}' | kcat -P -b {bootstrap_servers} -t {CONTROL}",
        "",
        f'  {python} -c "{script.replace(chr(34), chr(92) + chr(34))}"',
        "",
        f"Data is kept in {escape(str(kept))}" if kept else "Nothing is kept (turnout demo --data DIR keeps it).",
        "Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def _called(program: Path) -> str:
    """How to call a program in this folder: by its path where the name alone is another one, or none."""
    found = shutil.which(program.name)
    if found and Path(found) == program:
        return program.name
    return shlex.quote(str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program))


def _done(screen: Console, text: str) -> None:
    screen.print(f"[green]✓[/] {text}")


def _stop_broker(broker: EmbeddedBroker, temporary: bool) -> None:
    # Its data goes with it: an orderly end, which takes a second or more, would keep nothing.
    pid = broker.pid
    if temporary and pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    broker.stop()
