"""What happens during a soak: a swap every so often, and a fault every minute, each kind in its turn."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import httpx
import psutil

from faults.kafkas import OneBroker
from faults.load import NOT_OBJECTS
from faults.world import Topics, World
from turnout.testing import Record, delete_topic, produce, wait_until

CUT_SECONDS = 4
POISON = (
    *NOT_OBJECTS,
    b'{"userId": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"userId": "p", "age": 1e999, "balance": 1e999}',
    b'{"userId": "p", "userId": 7, "name": {"a": [null]}, "age": 12.5, "balance": "NaN"}',
)


class Swaps:
    """Control messages by the topic, in turn, on a thread of its own: faults may hit any moment of a swap.

    Whatever becomes of a message, the producer follows what is published.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        kinds: list[Callable[[], None]] = [
            self._move,
            partial(self._send, {"joinType": "inner"}),
            partial(self._send, {"action": "rollback"}),
            partial(self._send, {"usersTopic": "no-such-topic"}),
            self._move_accounts,
            partial(self._send, {"joinType": "full"}),
            self._malformed,
            partial(self._send, {"joinType": "left"}),
        ]
        self._kinds = itertools.cycle(kinds)
        self._used: list[str] = [*world.topics.pair]
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.outcomes: Counter[str] = Counter()
        self.troubles: list[str] = []

    def start(self, every_seconds: float) -> None:
        self._thread = threading.Thread(target=self._run, args=(every_seconds,), name="swaps", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, every_seconds: float) -> None:
        due = time.monotonic() + every_seconds / 2
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due += every_seconds
            try:
                next(self._kinds)()
                self._follow()
            except Exception as error:
                self.troubles.append(f"swap: {type(error).__name__}: {error}")

    def _move(self) -> None:
        topics = self._world.make_topics()
        self._used += topics.pair
        self._send({"usersTopic": topics.users, "accountsTopic": topics.accounts})

    def _move_accounts(self) -> None:
        topics = self._world.make_topics()
        self._used += topics.pair
        self._send({"accountsTopic": topics.accounts})

    def _malformed(self) -> None:
        self._world.control.send_raw(b'{"usersTopic": ')
        wait_until(self._all_decided, what="the outcome of a malformed message")
        self.outcomes["rejected"] += 1

    def _all_decided(self) -> bool:
        try:
            return self._world.control.undecided() == 0
        except httpx.HTTPError:
            return False

    def _send(self, message: dict[str, str]) -> None:
        request = self._world.control.send(message)
        found: list[str] = []

        def decided() -> bool:
            try:
                outcome = self._world.control.outcome(request)
            except httpx.HTTPError:
                return False
            found.extend([outcome] if outcome else [])
            return bool(found)

        wait_until(decided, interval=0.2, what=f"the outcome of {message}")
        self.outcomes[found[0]] += 1

    def _published(self) -> tuple[str, str]:
        found: list[tuple[str, str]] = []

        def told() -> bool:
            try:
                status = self._world.turnout.status()
            except httpx.HTTPError:
                return False
            found.append((status["usersTopic"], status["accountsTopic"]))
            return True

        wait_until(told, what="the status")
        return found[0]

    def _follow(self) -> None:
        """Write to the topics that are published now, and delete those that no plan of the last minute had."""
        pair = self._published()
        if pair != self._world.topics.pair:
            self._world.follow(Topics(*pair))
            self._world.producer.resume()
        kept = set(self._used[-6:]) | set(pair)
        for topic in [topic for topic in self._used if topic not in kept]:
            delete_topic(self._world.bootstrap, topic)
            self._used.remove(topic)


class Faults:
    """One kind after the other; each returns when Turnout is ready again."""

    def __init__(self, world: World, kafka: OneBroker, *, kills: bool) -> None:
        self._world = world
        self._kafka = kafka
        kinds: dict[str, Callable[[], None]] = {
            "broker restarted": self._restart_broker,
            "network cut": self._cut,
            "poisoned records": self._poison,
        }
        if kills:
            kinds |= {"Turnout killed": self._kill, "Spark's JVM killed": self._kill_jvm}
        self._kinds = itertools.cycle(kinds.items())
        self.played: Counter[str] = Counter()
        self.recovery_seconds: dict[str, list[float]] = {}

    def next(self) -> str:
        name, play = next(self._kinds)
        play()
        ended = time.monotonic()
        self._world.turnout.wait_ready()
        self.played[name] += 1
        self.recovery_seconds.setdefault(name, []).append(time.monotonic() - ended)
        return name

    def _restart_broker(self) -> None:
        self._kafka.broker.stop()
        self._kafka.broker.start()

    def _cut(self) -> None:
        self._kafka.proxy.cut()
        time.sleep(CUT_SECONDS)
        self._kafka.proxy.heal()

    def _kill(self) -> None:
        self._world.process.kill()
        self._world.process.start(ready=False)

    def _kill_jvm(self) -> None:
        children = psutil.Process(self._world.process.pid).children(recursive=True)
        [jvm] = [one.pid for one in children if one.name() == "java"]
        os.kill(jvm, signal.SIGKILL)
        # Not ready first, or the wait for readiness would end before it began.
        wait_until(lambda: self._world.turnout.answer("/readyz") != 200, what="the end of the JVM to be noticed")

    def _poison(self) -> None:
        for topic in self._world.topics.pair:
            produce(self._world.bootstrap, topic, [Record(value, partition=0) for value in POISON])
