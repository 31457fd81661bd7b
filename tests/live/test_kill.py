"""A process that is killed at any moment comes back with what it showed, and loses and doubles nothing.

It comes back with the plan, too: the message of a swap in which it was killed has exactly one outcome. Nothing of it
stays in the system's temporary folder, whichever way it ends.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import killed_turnout
import oracle
from background_work import beside
from isolated_turnout import INSIDE, IsolatedTurnout
from kafka_log import read_all
from kafka_writer import writing
from lengths import KILLS, LONG
from turnout.local.broker import EmbeddedBroker
from turnout.plan.joins import Duplicates, Join
from turnout.testing import Record, create_topic, produce, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout
from two_topics import assert_ends_soon

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
FIRST = 30
KILLED_IN = tuple((point,) for point in killed_turnout.POINTS) if LONG else (killed_turnout.APART,)
"""For each message the points at which it is killed, life by life, before the message has its outcome."""


def random_record(random_: random.Random, topic: str) -> Record:
    key = f"k{random_.randrange(200)}"
    chance = random_.random()
    if chance < 0.02:
        return Record(b"{nope", partition=random_.randrange(2))
    if chance < 0.05:
        return Record(None, key=key.encode(), partition=random_.randrange(2))
    if "users" in topic:
        value: dict[str, Any] = {
            "userId": key,
            "name": f"{topic} {random_.random()}",
            "email": "e",
            "age": random_.randrange(99),
        }
        if chance < 0.08:
            value["age"] = "old"
    else:
        value = {"userId": key, "accountType": random_.choice(["gold", "basic"]), "balance": random_.random()}
    return Record(value, partition=random_.randrange(2))


@contextmanager
def steady_load(bootstrap: str, topics: Sequence[str], seed: int) -> Iterator[None]:
    """Some hundred records a second, in the short form some dozen, until the block ends."""
    random_ = random.Random(seed)

    def run(stopped: threading.Event) -> None:
        with writing(bootstrap) as writer:
            while not stopped.wait(0.05 if LONG else 0.2):
                for topic in topics:
                    writer.write(topic, [random_record(random_, topic) for _ in range(random_.randrange(20))])

    with beside(run):
        yield


def assert_tables_equal_kafka(turnout: RunningTurnout, bootstrap: str, topics: tuple[str, str]) -> None:
    """Compare every table with the plain computation over what Kafka holds."""
    records = read_all(bootstrap, topics)
    users = oracle.Source("users", topics[0], "userId", USERS, latest=False)
    accounts = oracle.Source("accounts", topics[1], "userId", ACCOUNTS, latest=True)
    (left, left_bad), (right, right_bad) = oracle.read_source(users, records), oracle.read_source(accounts, records)
    right = oracle.shown(accounts, right)
    accounts_now = oracle.bag(kept.row for kept in right)
    wait_until(lambda: turnout.total("users_ui") >= len(left), interval=ASKED_SECONDS, what="all users to be read")
    with contextlib.suppress(TimeoutError):  # what is wrong is told by the comparison
        wait_until(lambda: oracle.bag(turnout.rows("accounts_ui")) == accounts_now, interval=ASKED_SECONDS)
    assert oracle.bag(turnout.rows("users_ui")) == oracle.bag(kept.row for kept in left)
    assert oracle.bag(turnout.rows("accounts_ui")) == accounts_now
    expected = oracle.join_rows(users, left, accounts, right, Join.LEFT, Duplicates.LATEST)
    assert oracle.bag(turnout.rows("final_ui")) == oracle.bag(expected)
    assert len(turnout.rows("bad_records")) == len(left_bad | right_bad)
    [quality] = turnout.rows("join_quality")
    assert quality == {"view": "final_ui"} | oracle.quality(users, left, accounts, right)


class Killed:
    """A Turnout that is killed again and again, on topics that are written to meanwhile."""

    def __init__(self, folder: Path, bootstrap: str, topic_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.users = (topic_name("users"), topic_name("users"))
        self.accounts, self.control, self.acks = (topic_name(name) for name in ("accounts", "control", "acks"))
        for topic in (*self.users, self.accounts):
            create_topic(bootstrap, topic, 2)
            produce(bootstrap, topic, [random_record(random.Random(n), topic) for n in range(FIRST)])
        for topic in (self.control, self.acks):
            create_topic(bootstrap, topic, 1)
        users = {"topic": self.users[0], "table": "users_ui", "key": "userId", "columns": USERS}
        accounts = {"topic": self.accounts, "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS}
        self.turnout = IsolatedTurnout(
            folder,
            bootstrap,
            start="earliest",
            control={"topic": self.control, "ack_topic": self.acks},
            swap={"linger_seconds": 0.5},
            sources={"users": users, "accounts": {**accounts, "rows": "latest"}},
        )
        self._flag = folder / "flag"
        self.turnout.program = [sys.executable, str(Path(killed_turnout.__file__)), str(INSIDE / self._flag.name)]
        self._traces = [self.turnout.data_dir / place / "left" for place in ("spark/tmp", "tmp", "store.tmp")]
        self.shown = 0

    def load(self, seed: int) -> contextlib.AbstractContextManager[None]:
        return steady_load(self.bootstrap, (*self.users, self.accounts), seed)

    def kill_at_random_moments(self, kills: int) -> None:
        """Half of the moments are in the start, when batches are replayed; the others come while it reads."""
        turnout, random_ = self.turnout, random.Random(7)
        for number in range(kills):
            turnout.start(ready=False)
            if number % 2:
                turnout.wait_answer()
                time.sleep(random_.uniform(0, 4))
            else:
                turnout.wait_ready()
                assert turnout.total("users_ui") >= self.shown, "rows that were shown are gone"
                time.sleep(random_.uniform(0, 2))
                self.shown = turnout.total("users_ui")
            turnout.kill()
            self.assert_nothing_is_left()

    def kill_in_a_swap(self, topic: str, points: Sequence[str]) -> str:
        """Kill it at each of the points: every life takes the message up again, and gets further. Its request id."""
        request = "-".join(points)
        self._flag.write_text(points[0])
        produce(self.bootstrap, self.control, [{"usersTopic": topic, "requestId": request}])
        for point in (*points[1:], ""):
            self.turnout.wait_killed()
            self.assert_nothing_is_left()
            self._flag.write_text(point)
            if point:
                self._come_back()
            else:
                self.turnout.start()
            assert self._left() == []
            killed_turnout.hold_of(self._flag).unlink(missing_ok=True)
        return request

    def _come_back(self) -> None:
        """As far as the first point, where it waits: it shows the plan of before, and all its rows."""
        killed_turnout.hold_of(self._flag).touch()
        self.turnout.start(ready=False)
        self.turnout.wait_answer()
        assert self.turnout.total("users_ui") >= self.shown, "rows that were shown are gone"
        wait_until(lambda: not self._left(), what="the start to clear what the last life left")

    def assert_nothing_is_left(self) -> None:
        """After a kill nothing in the system's folder; what it left in its own is gone after the next start."""
        self.turnout.wait_gone()
        assert self.turnout.left() == []
        for folder in self._traces:
            folder.mkdir(parents=True, exist_ok=True)

    def _left(self) -> list[Path]:
        return [folder for folder in self._traces if folder.exists()]

    def assert_applied(self, request: str, topic: str) -> None:
        turnout = self.turnout
        wait_until(
            lambda: None not in outcomes_of(turnout, request),
            interval=ASKED_SECONDS,
            what=f"an outcome of {request}",
        )
        assert outcomes_of(turnout, request) == ["applied"], request
        assert turnout.status()["usersTopic"] == topic, request
        applied = [row for row in turnout.rows("swaps") if row["requestId"] == request]
        assert [row["outcome"] for row in applied] == ["applied"], request
        assert_tables_equal_kafka(turnout, self.bootstrap, (topic, self.accounts))
        wait_until(
            lambda: leftovers(turnout) == [f"g{turnout.status()['generation']}"],
            interval=ASKED_SECONDS,
            what=f"nothing left of {request}",
        )

    def acknowledged(self) -> dict[str, set[str]]:
        told: dict[str, set[str]] = {}
        for record in read_all(self.bootstrap, [self.acks]):
            assert record.key is not None
            assert record.value is not None
            told.setdefault(record.key.decode(), set()).add(json.loads(record.value)["outcome"])
        return told


def wait_more(turnout: RunningTurnout, shown: int) -> None:
    wait_until(lambda: turnout.total("users_ui") > shown, interval=ASKED_SECONDS, what="new rows")


def outcomes_of(turnout: RunningTurnout, request: str) -> list[str | None]:
    return [row["outcome"] for row in turnout.rows("control_raw") if f'"{request}"' in row["raw"]]


def leftovers(turnout: RunningTurnout) -> list[str]:
    return sorted(path.name for path in (turnout.data_dir / "checkpoints").iterdir())


def test_kill_at_any_moment_and_in_swaps_loses_and_doubles_nothing_and_leaves_no_temporary_file(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    killed = Killed(tmp_path, broker.bootstrap_servers, topic_name)
    turnout, requests = killed.turnout, []
    with closing(turnout):
        with killed.load(seed=7):
            killed.kill_at_random_moments(KILLS)
        turnout.start()
        assert turnout.total("users_ui") >= killed.shown, "rows that were shown are gone"
        assert_tables_equal_kafka(turnout, killed.bootstrap, (killed.users[0], killed.accounts))
        for number, points in enumerate(KILLED_IN):
            wanted = killed.users[(number + 1) % 2]
            killed.shown = turnout.total("users_ui")
            with killed.load(seed=number):
                wait_more(turnout, killed.shown)
                requests.append(killed.kill_in_a_swap(wanted, points))
            killed.assert_applied(requests[-1], wanted)
        assert_ends_soon(turnout, signal.SIGTERM)
        turnout.wait_gone()
        assert (turnout.left(), turnout.temporary()) == ([], [])
    assert killed.acknowledged() == {request: {"applied"} for request in requests}
