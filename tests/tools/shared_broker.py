"""One broker for all workers of a run: the first that needs it starts it, and stops it when the others are done."""

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
    # Records of tests have times of any year; a broker looks every five minutes for what is older than a week.
    "log.retention.ms": "-1",
}


class BorrowedBroker(EmbeddedBroker):
    """A broker of another process: it has an address and a folder, and is neither started nor stopped here."""

    def __init__(self, address: str, data: Path) -> None:
        super().__init__(data)
        self._address = address

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    def launch(self) -> None:
        raise RuntimeError("the broker that all tests share is not started by one: take an EmbeddedBroker of your own")

    def stop(self, timeout_seconds: float = 0) -> None:
        raise RuntimeError("the broker that all tests share is not stopped by one: take an EmbeddedBroker of your own")


def formatted(broker: EmbeddedBroker, folder: Path) -> Path:
    """A folder for a broker of one node, whose making, a JVM of its own, this broker has paid for."""
    (folder / "logs").mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(broker.data / "logs" / name, folder / "logs" / name)
    return folder


@contextmanager
def shared_broker(folder: Path) -> Iterator[EmbeddedBroker]:
    """The broker of the run whose folder this is.

    `users` is locked (shared) by each process that uses the broker; the lock goes with the process, however it ends.
    `guard` is held for moments: while somebody looks whether there is a broker, starts one, or gives it up.
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
    """Return when nobody uses the broker, and nobody will: who comes now starts another."""
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
