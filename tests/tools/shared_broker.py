"""A broker for all workers of a run: the first worker that needs it starts it, and stops it after the others."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from turnout.testing import EmbeddedBroker

RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Test records have times of any year, and by default a broker deletes records older than a week.
    "log.retention.ms": "-1",
}


class BorrowedBroker(EmbeddedBroker):
    """A broker of another process, with its address and folder; it cannot be started or stopped here."""

    def __init__(self, address: str, data: Path) -> None:
        super().__init__(data)
        self._address = address

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    def launch(self) -> None:
        raise RuntimeError("a test must not start the shared broker; use your own EmbeddedBroker")

    def stop(self, timeout_seconds: float = 0) -> None:
        raise RuntimeError("a test must not stop the shared broker; use your own EmbeddedBroker")


def formatted(broker: EmbeddedBroker, folder: Path) -> Path:
    """Create a folder for a single-node broker by copying formatted files, which saves a JVM."""
    (folder / "logs").mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(broker.data / "logs" / name, folder / "logs" / name)
    return folder


@contextmanager
def shared_broker(folder: Path) -> Iterator[EmbeddedBroker]:
    """Return the broker of the run with this folder.

    Each process that uses the broker holds a shared lock on `users`, which ends with the process. `guard` is locked
    briefly, while a process checks for a broker, starts it, or gives it up.
    """
    folder.mkdir(exist_ok=True)
    address, data = folder / "address", folder / "données du broker"
    with (folder / "guard").open("w") as guard, (folder / "users").open("w") as users:
        own = None
        with _held(guard):
            if not address.exists():
                own = EmbeddedBroker(data, properties=RULES)
                own.start()
                address.write_text(own.bootstrap_servers)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield BorrowedBroker(address.read_text(), data)
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if own is not None:
                _wait_for_others(guard, users, address)
                own.stop()


@contextmanager
def _held(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _wait_for_others(guard: IO[str], users: IO[str], address: Path) -> None:
    """Wait until no process uses the broker, and remove its address, so that a later process starts another."""
    while True:
        with _held(guard):
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                address.unlink()
                return
        time.sleep(0.2)
