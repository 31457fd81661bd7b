"""A Spark cluster for tests and the bench: a standalone master and workers, each a process on its own host.

A host is a network namespace on a private bridge, which cannot see some folders of this machine. If namespaces are
not allowed, hosts are addresses of the loopback interface, and `Hosts.why_not` has the reason.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from child_processes import SHORT_LIVED, ending_with_us
from turnout.java.runtime import find_java
from turnout.local.broker import EmbeddedBroker, free_port
from turnout.testing import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
_BRIDGE = "turnout"


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of a cluster: addresses by name, the address of this process, and folders hidden from hosts."""

    here: str
    addresses: Mapping[str, str]
    hidden: Sequence[Path] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""
    """Why the hosts share this machine's network and folders; empty if they do not."""

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on a host."""
        if self.why_not:
            return list(command)
        mounts = [f"mount -t tmpfs -o size=1m none {shlex.quote(str(folder))}" for folder in self.hidden]
        inside = " && ".join([*mounts, 'exec "$@"'])
        return ["ip", "netns", "exec", self.namespaces[name], "sh", "-c", inside, "host", *command]


@contextlib.contextmanager
def hosts(names: Sequence[str], hidden: Sequence[Path] = ()) -> Iterator[Hosts]:
    """Create hosts with these names for a `with` block."""
    why_not, namespaces, bridge = "", {}, ""
    try:
        try:
            number = _free_bridge()
            bridge, net = f"{_BRIDGE}{number}", f"10.213.{number}"
            addresses = {name: f"{net}.{place + 2}" for place, name in enumerate(names)}
            namespaces = {name: f"{bridge}-{name}" for name in names}
            _connect(bridge, f"{net}.1", addresses, namespaces)
        except (OSError, subprocess.CalledProcessError) as error:
            why_not = str(getattr(error, "stderr", "") or error).strip()
        if why_not:
            yield loopback(names, f"network namespaces cannot be made here: {why_not}")
        else:
            yield Hosts(f"{net}.1", addresses, hidden, namespaces)
    finally:
        for namespace in namespaces.values():
            _ip("netns", "delete", namespace, check=False)
        if bridge:
            _ip("link", "delete", bridge, check=False)


def loopback(names: Sequence[str], why: str) -> Hosts:
    """Return hosts that are other addresses of this machine."""
    return Hosts("127.0.0.1", {name: f"127.0.0.{place + 2}" for place, name in enumerate(names)}, why_not=why)


def _free_bridge() -> int:
    """Create a bridge that no other or killed run uses; return its number, which is also in its network."""
    taken = None
    for number in range(1, 255):
        try:
            _ip("link", "add", f"{_BRIDGE}{number}", "type", "bridge")
        except subprocess.CalledProcessError as error:
            if "exists" not in error.stderr:
                raise
            taken = error
        else:
            return number
    raise taken or AssertionError


def _connect(bridge: str, here: str, addresses: Mapping[str, str], namespaces: Mapping[str, str]) -> None:
    _ip("address", "add", f"{here}/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for place, (name, namespace) in enumerate(namespaces.items()):
        near = f"{bridge}v{place}"
        _ip("netns", "add", namespace)
        _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", near, "master", bridge, "up")
        inside = ("netns", "exec", namespace, "ip")
        _ip(*inside, "address", "add", f"{addresses[name]}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip(*inside, "link", "set", device, "up")


def _ip(*arguments: str, check: bool = True) -> None:
    if check or shutil.which("ip"):
        subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def broker_for(place: Hosts, folder: Path, **more: Any) -> tuple[EmbeddedBroker, str]:
    """Return a broker that hosts can reach, not started yet, and its address for them."""
    local, shared, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{local},HOSTS://{place.here}:{shared}"
    properties = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HOSTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    return EmbeddedBroker(folder, local, properties, **more), f"{place.here}:{shared}"


def bare_python(folder: Path) -> Path:
    """Create a Python of this version without packages, and return its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


class Worker:
    """The process of a worker, and its executors."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, work: Path) -> None:
        self.process = process
        self.log = log
        self._work = work

    def is_known(self) -> bool:
        """Whether the worker is registered at the master."""
        return "Successfully registered" in self.log.read_text()

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in family if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]

    def running_tasks(self) -> int:
        """Return the number of running tasks of the executors, by their logs."""
        logs = [log.read_text() for log in self._work.glob("*/*/stderr")]
        return sum(log.count("Executor: Running task") - log.count("Executor: Finished task") for log in logs)

    def kill(self) -> None:
        """Kill the worker, its executors and their Pythons, as a power failure would."""
        for one in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self.process.wait()


class SparkCluster:
    """A standalone master, and workers that can be started and killed; the first host is the master's.

    Clients need its secret; `conf` has the settings for an application.
    """

    def __init__(self, folder: Path, place: Hosts) -> None:
        self._folder = folder
        self._hosts = place
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._master, *self._names = place.addresses
        self.conf = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex()}
        self.master = f"spark://{place.addresses[self._master]}:{self._port}"
        self.workers: dict[str, Worker] = {}

    def __enter__(self) -> SparkCluster:
        self._folder.mkdir(parents=True, exist_ok=True)
        # A file instead of arguments, which every user of a host can see.
        self._properties.touch(mode=0o600)
        self._properties.write_text("".join(f"{name} {value}\n" for name, value in self.conf.items()))
        address = self._hosts.addresses[self._master]
        self._start(self._master, "master.Master", "--host", address, "--port", str(self._port), "--webui-port", "0")
        return self

    @property
    def _properties(self) -> Path:
        return self._folder / "spark.conf"

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.kill()
        for process in self._processes:
            process.kill()
            process.wait()

    def start_workers(self, cores: int = 1, memory: str = "1g", names: Sequence[str] = ()) -> None:
        """Start workers on these hosts, or on all, and wait until they are registered."""
        for name in names or self._names:
            work = self._folder / name
            place = ["--host", self._hosts.addresses[name], "--webui-port", "0", "--work-dir", str(work)]
            asked = ["--cores", str(cores), "--memory", memory, self.master]
            process, log = self._start(name, "worker.Worker", *place, *asked)
            self.workers[name] = Worker(process, log, work)
        for name in names or self._names:
            wait_until(self.workers[name].is_known, what=f"{name} to register")

    def _start(self, name: str, what: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{name}.log"
        java = [
            str(find_java()),
            "-Xmx256m",
            *SHORT_LIVED,
            "-cp",
            f"{SPARK_HOME / 'jars'}/*",
            f"org.apache.spark.deploy.{what}",
        ]
        java += ["--properties-file", str(self._properties)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        local = str(self._folder / f"{name}-local")
        # The environment that Spark's scripts set for these classes.
        environ |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_DIRS": local}
        command = self._hosts.command(name, [*java, *arguments])
        with log.open("wb") as opened:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=opened,
                stderr=opened,
                env=environ,
                start_new_session=True,
                **ending_with_us(),
            )
        self._processes.append(process)
        return process, log
