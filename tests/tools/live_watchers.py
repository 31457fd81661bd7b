"""Viewers on separate threads that detect errors, and counts of the files and threads of the test's process."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Any

import psutil

from live_socket import Follower, Socket
from turnout_client.messages import Problem, ServerMessage, StatusNow


class Watcher(threading.Thread):
    """A viewer on a separate thread with one subscription; `fault` has the first error that it detects."""

    def __init__(self, url: str, kind: str) -> None:
        super().__init__(name=f"watcher-{kind}")
        self.kind = kind
        self.follower = Follower("final_ui")
        self.last: Any = None
        self.generation = 0
        self.fault: BaseException | None = None
        self.ending = threading.Event()
        self.socket = Socket(url)
        subjects: dict[str, dict[str, Any]] = {
            "window": {"table": "users_ui", "sort": "-age", "limit": 10},
            "summary": {"table": "final_ui", "by": "accountType", "values": "count,sum(balance)"},
            "sql": {"sql": "select count(*) as n, max(age) as age from users_ui", "live": True},
            "changes": {"table": "final_ui"},
            "status": {},
        }
        self.socket.send(type=kind, id="f", **subjects[kind])
        self.start()

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                with contextlib.suppress(TimeoutError):
                    self.take(self.socket.receive(0.2))
        except BaseException as error:
            self.fault = error

    def take(self, message: ServerMessage) -> None:
        assert not isinstance(message, Problem), message
        generation = (
            message.status["generation"] if isinstance(message, StatusNow) else getattr(message, "generation", 0)
        )
        assert generation >= self.generation, "an older generation after a newer one"
        if self.kind == "changes":
            self.follower.apply(message)
            shown: Any = self.follower.rows.values() if self.follower.place else [[]]
        else:
            shown = getattr(message, "rows", None) or getattr(message, "groups", None) or [message]
            assert not hasattr(message, "rows") or message.rows, "an empty frame"
            assert not hasattr(message, "groups") or message.groups, "an empty frame"
        assert shown, "an empty frame"
        if hasattr(message, "columns") and self.kind != "changes":
            assert {len(row) for row in shown} == {len(message.columns)}
        self.last, self.generation = message, generation

    def stop(self) -> None:
        self.ending.set()
        self.join()
        self.socket.raw.close()


def held() -> list[int]:
    """Return the number of open files and of threads of this process."""
    gc.collect()
    return [psutil.Process().num_fds(), threading.active_count()]


def grown(before: list[int], times: int) -> bool:
    """Whether files or threads have grown with the number of applies or candidates.

    A small growth is allowed, because pools of threads and of connections to the JVM grow on demand.
    """
    return any(now >= then + times // 2 for now, then in zip(held(), before, strict=True))
