"""A random history of swaps with real Kafka, and a simple model of the tables after each swap.

The model has the written records, and for each source its topic and the offsets at which reading started.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import oracle
from in_process_orchestrator import Orchestrated
from turnout.plan.control import Outcome
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets
from turnout.testing import Record, create_topic, patience, produce, wait_until

PARTITIONS = 2
FIRST_MS = 1_700_000_000_000
COLUMNS = {
    "users": {"userId": "string", "name": "string", "age": "int64"},
    "accounts": {"userId": "string", "accountType": "string", "balance": "double", "branchId": "string"},
    "branches": {"branchId": "string", "city": "string"},
}
KEYS = {"users": "userId", "accounts": "userId", "branches": "branchId"}
FILE_JOINS = {"final_ui": "left", "paired_ui": "inner", "chained_ui": "inner"}
"""The views that a file may have, with their joins."""
SECOND_STEP = "left"
"""The join of the chain's step to the branches; the step to the accounts has the view's join."""
JOINS = ("left", "inner", "right", "full", "semi", "anti")

Firsts = Mapping[str, tuple[int, ...]]
"""For each source the first read offset of each partition."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan as requested by messages and files; a view without a join does not exist."""

    topics: Mapping[str, str]
    joins: Mapping[str, str]
    start: str = "latest"
    starts: Mapping[str, str] | None = None

    def readers(self, topic: str) -> set[str]:
        return {source for source, one in self.topics.items() if one == topic}

    def start_of(self, source: str) -> str:
        return (self.starts or {}).get(source, self.start)


@dataclass(frozen=True, slots=True)
class Shown:
    """A published generation: its plan, and the first read offsets of each source."""

    asked: Asked
    firsts: Firsts


class RandomSwaps:
    """The topics, their records and the published generation; the same seed gives the same history."""

    def __init__(self, bootstrap: str, seed: int, topics: Mapping[str, tuple[str, str]], control: str) -> None:
        self.random = random.Random(seed)
        self.records: list[oracle.Sent] = []
        self._bootstrap = bootstrap
        self._topics = topics
        self._control = control
        self._rows = {source: self.random.choice(["all", "latest"]) for source in topics}
        self._begins = {topic: (0,) * PARTITIONS for pair in topics.values() for topic in pair}
        """The first offsets that Kafka still has, by topic."""
        for topic in self._begins:
            create_topic(bootstrap, topic, PARTITIONS)
        create_topic(bootstrap, control, 1)
        asked = Asked({source: pair[0] for source, pair in topics.items()}, {"final_ui": "left"})
        self.write()
        self.shown = Shown(asked, {source: self._ends(topic) for source, topic in asked.topics.items()})
        self.before: Shown | None = None
        self.lingers = False

    def sections(self, views: Collection[str]) -> dict[str, Any]:
        """Return the configuration with these views."""
        return {
            "kafka": {"bootstrap_servers": self._bootstrap},
            "control": {"topic": self._control},
            "sources": {
                source: {
                    "topic": pair[0],
                    "table": f"{source}_ui",
                    "key": KEYS[source],
                    "columns": COLUMNS[source],
                    "rows": self._rows[source],
                }
                for source, pair in self._topics.items()
            },
            "views": {view: self._view(view) for view in views},
            "swap": {"linger_seconds": 100_000, "max_linger_generations": 1},
        }

    def _view(self, view: str) -> dict[str, Any]:
        to_accounts = {"right": "accounts", "on": "userId"}
        if view != "chained_ui":
            return {"left": "users", **to_accounts, "join": FILE_JOINS[view]}
        to_branches = {"right": "branches", "on": "branchId", "join": SECOND_STEP}
        return {"left": "users", "join": FILE_JOINS[view], "steps": [to_accounts, to_branches]}

    # -- records

    def write(self) -> None:
        """Write some records to each topic, at least one of them valid."""
        for source, pair in self._topics.items():
            for topic in pair:
                some = [self._sent(source, topic) for _ in range(self.random.randint(0, 6))]
                some.append(self._sent(source, topic, good=True))
                produce(
                    self._bootstrap,
                    topic,
                    [Record(one.value, one.key, one.partition, one.timestamp_ms) for one in some],
                )

    def _sent(self, source: str, topic: str, *, good: bool = False) -> oracle.Sent:
        key = f"{'b' if source == 'branches' else 'k'}{self.random.randrange(6)}"
        partition, time = self.random.randrange(PARTITIONS), FIRST_MS + self.random.randrange(5)
        sent = oracle.Sent(
            topic,
            partition,
            self._ends(topic)[partition],
            time,
            key.encode() if self.random.random() < 0.8 else None,
            self._good_value(source, key) if good else self._value(source, key),
        )
        self.records.append(sent)
        return sent

    def _value(self, source: str, key: str) -> bytes | None:
        chance = self.random.random()
        if chance < 0.2:
            return None
        if chance < 0.3:
            return b"nope"
        if chance < 0.4:
            return b'{"userId": "k1", "age": "old", "balance": "much"}'
        if chance < 0.5:
            return b'{"userId": null, "name": "nobody"}'
        return self._good_value(source, key)

    def _good_value(self, source: str, key: str) -> bytes:
        number = self.random.randrange(100)
        branch = f"b{number % 6}"
        rows: dict[str, dict[str, Any]] = {
            "users": {"userId": key, "name": f"n{number}", "age": number},
            "accounts": {"userId": key, "accountType": f"t{number}", "balance": number / 2, "branchId": branch},
            "branches": {"branchId": key, "city": f"c{number}"},
        }
        return json.dumps(rows[source]).encode()

    def _ends(self, topic: str) -> tuple[int, ...]:
        counts = Counter(record.partition for record in self.records if record.topic == topic)
        return tuple(counts[partition] for partition in range(PARTITIONS))

    def end_offsets(self) -> Offsets:
        """Return the offsets after all written records."""
        ends = {topic: enumerate(self._ends(topic)) for topic in self._begins}
        return Offsets({(topic, partition): end for topic, some in ends.items() for partition, end in some})

    def remove_old_records(self) -> None:
        """Delete some or all of the first records of a topic, as retention does."""
        topic = self.random.choice(list(self._begins))
        ends = self._ends(topic)
        self._begins[topic] = tuple(
            self.random.randint(begin, end) for begin, end in zip(self._begins[topic], ends, strict=True)
        )
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        firsts = [TopicPartition(topic, partition, first) for partition, first in enumerate(self._begins[topic])]
        for done in admin.delete_records(firsts).values():
            done.result(patience())

    # -- the rule

    def publish(self, asked: Asked, read: Collection[str] = ()) -> None:
        """Publish another plan: a source is kept unless its topic changes or its start is given.

        Sources of the same topic are kept together or not at all; otherwise the earliest of their starts applies.
        """
        old, firsts = self.shown, {}
        for source, topic in asked.topics.items():
            readers = asked.readers(topic)
            if readers == old.asked.readers(topic) and not readers.intersection(read):
                firsts[source] = old.firsts[source]
            else:
                latest = all(asked.start_of(reader) == "latest" for reader in readers)
                firsts[source] = self._ends(topic) if latest else self._begins[topic]
        self.shown, self.before, self.lingers = Shown(asked, firsts), old, True

    def roll_back(self) -> Outcome:
        """Roll back: a lingering generation is published again, otherwise its plan is built."""
        if self.before is None:
            return Outcome.REJECTED
        if self.lingers:
            self.shown, self.before = self.before, self.shown
        else:
            self.publish(self.before.asked)
        return Outcome.ROLLED_BACK

    # -- messages

    def message(self, kind: str) -> tuple[dict[str, Any], Outcome]:
        """Return a random message of a kind and its outcome, and update the model."""
        asked = self.shown.asked
        more: dict[str, Any] = {}
        joins = [join for join in JOINS if join != asked.joins["final_ui"]]
        if kind == "join" or (kind.startswith("start") and self.random.random() < 0.5):
            more, asked = self._other_join(self.random.choice(joins))
        if kind == "start all":
            start = self.random.choice(["latest", "earliest"])
            return self._decided({**more, "start": start}, replace(asked, start=start, starts=None), tuple(COLUMNS))
        if kind == "start one":
            source, start = self.random.choice(list(COLUMNS)), self.random.choice(["latest", "earliest"])
            starts = dict(asked.starts or {}) | {source: start}
            return self._decided({**more, "start": {source: start}}, replace(asked, starts=starts), (source,))
        if kind == "join":
            return self._decided(more, asked)
        if kind == "same":
            moved = {"users": asked.topics["accounts"]}
        else:
            moved = {source: self._other_topic(source) for source in (COLUMNS if kind == "all" else (kind,))}
        fields = {f"{source}Topic": topic for source, topic in moved.items()}
        return self._decided(fields, replace(asked, topics=dict(asked.topics) | moved))

    def _decided(
        self, fields: dict[str, Any], asked: Asked, read: Collection[str] = ()
    ) -> tuple[dict[str, Any], Outcome]:
        if asked == self.shown.asked:
            return fields, Outcome.UNCHANGED
        if asked.joins.get("chained_ui") in ("semi", "anti"):  # these leave no column to join the branches by
            return fields, Outcome.REJECTED
        self.publish(asked, read)
        return fields, Outcome.APPLIED

    def _other_join(self, join: str) -> tuple[dict[str, Any], Asked]:
        asked = self.shown.asked
        if self.random.random() < 0.5:
            return {"joinType": join}, replace(asked, joins=dict.fromkeys(asked.joins, join))
        return {"final_uiJoinType": join}, replace(asked, joins=dict(asked.joins) | {"final_ui": join})

    def _other_topic(self, source: str) -> str:
        return next(topic for topic in self._topics[source] if topic != self.shown.asked.topics[source])

    def apply(self) -> list[str]:
        """Add or remove a view by a file; return the views of the file."""
        asked = self.shown.asked
        joins = dict(asked.joins)
        view = self.random.choice(["paired_ui", "chained_ui"])
        if view in joins:
            del joins[view]
        else:
            joins[view] = FILE_JOINS[view]
        self.publish(replace(asked, joins=joins))
        return list(joins)

    # -- the comparison

    def wait_equal(self, running: Orchestrated) -> None:
        """Wait until all tables equal the model."""
        expected = self._expected()

        def differences() -> dict[str, Any]:
            found = {table: _bag(table, running.rows(table)) for table in expected}
            return {
                table: {"lacks": rows - found[table], "too many": found[table] - rows}
                for table, rows in expected.items()
                if rows != found[table]
            }

        wait_until(lambda: not differences(), interval=0.1, what=lambda: f"{self.shown}: {differences()}")

    def _expected(self) -> dict[str, Counter[Hashable]]:
        rows: dict[str, list[oracle.Kept]] = {}
        tables: dict[str, Counter[Hashable]] = {"bad_records": Counter()}
        sources = {
            source: oracle.Source(source, topic, KEYS[source], COLUMNS[source], self._rows[source] == "latest")
            for source, topic in self.shown.asked.topics.items()
        }
        for name, source in sources.items():
            first = self.shown.firsts[name]
            records = [record for record in self.records if record.offset >= first[record.partition]]
            read, bad = oracle.read_source(source, records)
            rows[name] = oracle.shown(source, read)
            tables[source.name + "_ui"] = Counter(oracle.bag(kept.row for kept in rows[name]))
            # Two sources of a topic that report the same fault of a record give one row.
            tables["bad_records"] |= Counter(bad)
        for view, join in self.shown.asked.joins.items():
            joined = _chained(rows, join) if view == "chained_ui" else _joined(sources, rows, join)
            tables[view] = Counter(oracle.bag(joined))
        return tables


def _joined(sources: Mapping[str, oracle.Source], rows: Mapping[str, list[oracle.Kept]], join: str) -> list[oracle.Row]:
    left, right = sources["users"], sources["accounts"]
    return oracle.join_rows(left, rows["users"], right, rows["accounts"], Join(join), Duplicates.LATEST)


def _chained(rows: Mapping[str, list[oracle.Kept]], join: str) -> list[oracle.Row]:
    links = [
        oracle.Link("accounts", "userId", "userId", Join(join), Duplicates.LATEST),
        oracle.Link("branches", "branchId", "branchId", Join(SECOND_STEP), Duplicates.LATEST),
    ]
    nothing: dict[str, set[Any]] = {"accounts": set(), "branches": set()}
    columns = {source: list(names) for source, names in COLUMNS.items()}
    return oracle.chain_rows(rows, "users", columns, links, nothing)


def _bag(table: str, rows: list[dict[str, Any]]) -> Counter[Hashable]:
    if table != "bad_records":
        return Counter(oracle.bag(rows))
    return Counter((r["topic"], r["partition"], r["offset"], r["field"], r["reason"].split(",")[0]) for r in rows)
