"""One Turnout at work on a Kafka, with a steady producer and control messages, and all of it held against Kafka."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil
import pyarrow as pa

import oracle
from decompression_bombs import send_bomb
from faults.kafkas import Kafka
from faults.load import SteadyProducer
from faults.sender import ControlSender
from in_process_turnout import ServedTurnout
from kafka_log import read_all
from turnout.config.settings import MAX_ROWS_PER_KEY
from turnout.plan.joins import Duplicates, Join
from turnout.testing import create_topic, patience
from turnout_process import RunningTurnout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
TABLES = ("users_ui", "accounts_ui", "final_ui", "bad_records")
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
"""The settings of a topic whose records may be of any time."""

Bag = Counter[Hashable]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The tables against the oracle: how many rows were looked for, which are missing and which are too many."""

    rows: int
    lost: int
    doubled: int
    details: tuple[str, ...] = ()
    seconds: float = 0.0
    """From the moment that a recovery is counted from, until the tables were equal."""

    @property
    def equal(self) -> bool:
        return not self.lost and not self.doubled


@dataclass(frozen=True, slots=True)
class Expected:
    """What the tables must hold, by the oracle."""

    join: str
    tables: Mapping[str, Bag]
    quality: Mapping[str, Any]

    @property
    def totals(self) -> dict[str, int]:
        return {table: bag.total() for table, bag in self.tables.items()}


@dataclass(slots=True)
class Topics:
    """The topics of the plan that Turnout shows, and what they held before it was removed from them."""

    users: str
    accounts: str
    gone: list[oracle.Sent] = field(default_factory=list)
    refused: list[Hashable] = field(default_factory=list)
    """The rows of bad_records of what cannot be read from Kafka."""

    @property
    def pair(self) -> tuple[str, str]:
        return self.users, self.accounts


class World:
    """`with World(...)` starts Turnout on fresh topics; `producer` writes to them once it is resumed.

    The users' rows are all shown, of the accounts the newest of each key, unless `account_rows` is `all`. `sections`
    add to turnout.yaml. With a `session` there is no process: Turnout is in this one, for faults that leave its process
    alone.
    """

    def __init__(
        self,
        folder: Path,
        kafka: Kafka,
        *,
        per_second: int = 400,
        most_keys: int | None = None,
        user_columns: Mapping[str, str] = USERS,
        account_rows: str = "latest",
        session: SparkSession | None = None,
        **sections: Any,
    ) -> None:
        self.kafka = kafka
        self.user_columns = dict(user_columns)
        self._account_rows = account_rows
        self._name = folder.name
        self._numbers = itertools.count(1)
        control, acks = f"{self._name}-control", f"{self._name}-outcomes"
        for topic in (control, acks):
            create_topic(kafka.bootstrap_servers, topic, config=ANY_TIME, replicas=kafka.replicas)
        self.topics = self.make_topics()
        document: dict[str, Any] = {
            "control": {"topic": control, "ack_topic": acks},
            "sources": {
                "users": {"table": "users_ui", "key": "userId", "columns": self.user_columns},
                "accounts": {"table": "accounts_ui", "key": "userId", "columns": ACCOUNTS, "rows": account_rows},
            },
            "start": "earliest",
            "swap": {"linger_seconds": 1},
            "store": {"bad_rows": 2_000_000},  # each is looked for
        }
        for source, topic in zip(document["sources"].values(), self.topics.pair, strict=True):
            source["topic"] = topic
        self.turnout: RunningTurnout
        if session is None:
            self.turnout = RunningTurnout(folder, kafka.turnout_servers, **document | sections)
        else:
            self.turnout = ServedTurnout(folder, session, kafka.turnout_servers, **document | sections)
        self.producer = SteadyProducer(kafka.bootstrap_servers, per_second, most_keys=most_keys)
        self.producer.write_to(self.topics.pair, 2)
        self.control = ControlSender(kafka.bootstrap_servers, control, acks, self.turnout)

    def __enter__(self) -> Self:
        try:
            self.turnout.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self.producer.close()
        if not isinstance(self.turnout, ServedTurnout) and self.turnout.running:
            family = psutil.Process(self.turnout.pid).children(recursive=True)
            self.turnout.kill()
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=patience())
        self.turnout.close()

    @property
    def process(self) -> RunningTurnout:
        """Turnout, for faults that happen to its process."""
        assert not isinstance(self.turnout, ServedTurnout), "this world has no process of its own"
        return self.turnout

    @property
    def bootstrap(self) -> str:
        """Where tests reach Kafka, whatever is between it and Turnout."""
        return self.kafka.bootstrap_servers

    def make_topics(self, partitions: int = 2, config: Mapping[str, str] | None = None) -> Topics:
        """Another pair of topics; `move` takes Turnout there."""
        number = next(self._numbers)
        made = Topics(f"{self._name}-users-{number}", f"{self._name}-accounts-{number}")
        for topic in made.pair:
            create_topic(self.bootstrap, topic, partitions, config, replicas=self.kafka.replicas)
        return made

    def move(self, topics: Topics | None = None, partitions: int = 2, **message: Any) -> None:
        """Swap to other topics, fresh ones where none are given; from then on those alone are compared."""
        self.producer.pause()
        topics = topics or self.make_topics(partitions)
        answer = self.control.post({"usersTopic": topics.users, "accountsTopic": topics.accounts, **message})
        assert answer.get("outcome") == "applied", answer
        self.follow(topics, partitions)

    def follow(self, topics: Topics, partitions: int = 2) -> None:
        """Compare, and produce to, these topics; Turnout is told by other means."""
        self.producer.pause()
        self.producer.write_to(topics.pair, partitions)
        self.topics = topics

    def forget(self, records: Iterable[oracle.Sent]) -> None:
        """Records that Turnout has shown are about to be removed from Kafka; their rows must stay."""
        self.topics.gone += records

    def send_bomb(self, codec: str, value: bytes, reason: str) -> None:
        """Write a user's record that is much when it is unpacked; `{offset}` in the reason is its own."""
        offset = send_bomb(self.bootstrap, self.topics.users, codec, value)
        self.topics.refused.append((self.topics.users, 0, offset, None, reason.format(offset=offset).split(",")[0]))

    def settle(self) -> None:
        """Pause the producer, and return when Turnout has taken everything that Kafka holds; TimeoutError if not."""
        self.producer.pause()
        self._settled(self.records(), time.monotonic() + patience())

    def compare(self) -> Comparison:
        """All tables and control messages, as they are now, against Kafka; only while the producer is paused."""
        return self._compare(self.expected(self.records(), self.turnout.status()["joinType"]))

    def recover(self, since: float) -> Comparison:
        """Pause the producer, and compare until all is equal; `since` is when the fault ended."""
        self.producer.pause()
        records, deadline = self.records(), time.monotonic() + patience()
        while True:
            try:
                expected = self._settled(records, deadline)
            except TimeoutError as error:
                return self._timed_out(records, str(error), time.monotonic() - since)
            found = self._compare(expected, time.monotonic() - since)
            if found.equal or time.monotonic() >= deadline:
                return found
            time.sleep(0.1)

    def _timed_out(self, records: list[oracle.Sent], error: str, seconds: float) -> Comparison:
        try:
            found = self._compare(self.expected(records, self.turnout.status()["joinType"]), seconds)
        except httpx.HTTPError as unanswered:
            return Comparison(0, len(records), 0, (error, repr(unanswered)), seconds)
        return replace(found, lost=max(found.lost, 1), details=(error, *found.details))

    def records(self) -> list[oracle.Sent]:
        """Everything that Kafka holds of the topics."""
        return read_all(self.bootstrap, self.topics.pair)

    def expected(self, records: list[oracle.Sent], join: str) -> Expected:
        """The oracle's tables over the records, and over what was shown and is gone from Kafka."""
        users = oracle.Source("users", self.topics.users, "userId", self.user_columns, latest=False)
        accounts = oracle.Source("accounts", self.topics.accounts, "userId", ACCOUNTS, self._account_rows == "latest")
        (left, left_bad), (right, right_bad) = self._read(users, records), self._read(accounts, records)
        right = oracle.shown(accounts, right)
        sides = ((users, left), (accounts, right))
        out = oracle.left_out(Join(join), Duplicates.LATEST, MAX_ROWS_PER_KEY, *sides)
        lefts, rights = ([kept for kept in rows if kept.row["userId"] not in out] for _, rows in sides)
        joined = oracle.join_rows(users, lefts, accounts, rights, Join(join), Duplicates.LATEST)
        tables: dict[str, Bag] = {
            "users_ui": Counter(oracle.bag(kept.row for kept in left)),
            "accounts_ui": Counter(oracle.bag(kept.row for kept in right)),
            "final_ui": Counter(oracle.bag(joined)),
            "bad_records": Counter([*left_bad, *right_bad, *self.topics.refused]),
        }
        return Expected(join, tables, oracle.quality(users, left, accounts, right, len(out)))

    def _read(self, source: oracle.Source, records: list[oracle.Sent]) -> tuple[list[oracle.Kept], list[Hashable]]:
        """Rows and bad records. What is gone is read apart: a topic that was made anew has the same places again, and
        what it holds is newer than what it held, as if that had been in other partitions."""
        gone, bad_gone = oracle.read_source(source, self.topics.gone)
        apart = [replace(kept, record=replace(kept.record, partition=kept.record.partition - 1000)) for kept in gone]
        rows, bad = oracle.read_source(source, records)
        return [*apart, *rows], [*bad_gone, *bad]

    def _settled(self, records: list[oracle.Sent], deadline: float) -> Expected:
        """What the tables must hold, once they have as many rows and every message has an outcome."""
        expected: Expected | None = None
        missing: dict[str, Any] = {"answer": "none"}
        while True:
            try:
                join = self.turnout.status()["joinType"]
                if expected is None or expected.join != join:
                    expected = self.expected(records, join)
                missing = self._missing(expected)
            except httpx.HTTPError as error:
                missing = {"answer": repr(error)}
            if expected is not None and not missing:
                return expected
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not settled in time: {missing}")
            time.sleep(0.1)

    def _missing(self, expected: Expected) -> dict[str, Any]:
        """What Turnout does not have yet, by the numbers of rows: table -> (has, should have)."""
        totals = {table: self.turnout.total(table) for table in TABLES}
        found: dict[str, Any] = {
            table: (totals[table], total) for table, total in expected.totals.items() if totals[table] < total
        }
        if undecided := self.control.undecided():
            found["control messages without outcome"] = undecided
        if not found and not (status := self.turnout.status())["ready"]:
            found["ready"] = status.get("reason")
        return found

    def _compare(self, expected: Expected, seconds: float = 0.0) -> Comparison:
        lost, doubled = (list(some) for some in self.control.differences())
        rows, missing, surplus = len(self.control.sent), len(lost), len(doubled)
        for table, wanted in expected.tables.items():
            found = self._bag(table)
            rows += wanted.total()
            too_few, too_many = wanted - found, found - wanted
            missing, surplus = missing + too_few.total(), surplus + too_many.total()
            lost += [f"{table} lacks {row}"[:300] for row in itertools.islice(too_few, 3)]
            doubled += [f"{table} has too many of {row}"[:300] for row in itertools.islice(too_many, 3)]
        [quality] = self.turnout.rows("join_quality")
        if quality != {"view": "final_ui"} | dict(expected.quality):
            missing += 1
            lost.append(f"join_quality is {quality}, should be {expected.quality}")
        return Comparison(rows + 1, missing, surplus, (*lost, *doubled), seconds)

    def _bag(self, table: str) -> Bag:
        rows = self.read(table)
        if table == "bad_records":
            return Counter(
                (row["topic"], row["partition"], row["offset"], row["field"], row["reason"].split(",")[0])
                for row in rows
            )
        return Counter(oracle.bag(rows))

    def read(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, however many."""
        response = self.turnout.http.get(f"/api/tables/{table}/rows", params={"format": "arrow"})
        response.raise_for_status()
        return oracle.numbered(pa.ipc.open_stream(response.content).read_all())

    def said(self, *parts: str) -> bool:
        """Whether a line of Turnout's log has all these parts."""
        lines = self.turnout.rows("orchestrator_logs")
        return any(all(part in line["msg"] for part in parts) for line in lines)
