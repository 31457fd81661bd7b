"""The tables equal a plain computation over all records, whatever the records, batches, replays and restarts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from fed_generation import Course, FedGeneration, courses
from lengths import BATCHES_EXAMPLES
from oracle import Sent
from turnout.config import Settings, parse
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


USERS = {"userId": "string", "name": "string", "age": "int64", "born": "date", "seen": "timestamp"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
TOPICS = {"users": "u", "accounts": "a"}

keys = st.sampled_from(['"k1"', '"k2"', '"k3"', '"ключ"', '"k\\u00e9"', "null", "7", "7.50", '""', '{"a" : 1.0}'])
texts = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters='"\\', min_codepoint=32), max_size=6).map(
        lambda t: f'"{t}"'
    ),
    st.sampled_from(['"a\\"b"', "12", "1.50", "-0", "1e3", "true", "null", "[1, 2.0]", '{"x": {"y": "}"}}', '"🚂"']),
)
integers = st.one_of(
    st.integers(-5, 5).map(str), st.sampled_from(["null", "1.0", '"5"', "true", "99999999999999999999"])
)
doubles = st.one_of(
    st.floats(-9, 9).map(repr), st.sampled_from(["null", '"x"', "1e999", "[]", "3", "true", "9007199254740993"])
)
# Also of years that Python's `datetime` does not have, and just beyond what the store holds.
days = st.sampled_from(
    [
        *('"2026-01-31"', '"2026-02-30"', '"0000-02-29"', '"58844-07-17"', '"+058844-07-17"', '"-0043-03-15"', "null"),
        *('"5881580-07-10"', '"5881580-07-11"', '"-5877641-06-25"', '"-5877641-06-24"', '"+9999999-01-01"', "7", "{}"),
    ]
)
moments = st.sampled_from(
    [
        *('"2026-01-31T12:00:00.5Z"', '"2026-01-31"', '"58844-07-17T01:02:03.000004Z"', "null", "true", "1767225600"),
        *('"-000043-03-15T00:00:00+05:30"', '"-290308-12-22T00:00:00Z"', '"-290308-12-21T23:59:59Z"', "9223372036854"),
        *('"294247-01-10T04:00:54.775806Z"', '"294247-01-10T04:00:54.775807Z"', '"9999999-01-01"', "9223372036855"),
    ]
)
times = st.one_of(
    st.integers(0, 4),
    st.sampled_from([-(2**63), -(10**17), -62_135_596_800_001, -1, 1_794_787_200_000_000, 10**17, 2**63 - 1]),
)
space = st.sampled_from(["", " ", "\n", "\t "])


@st.composite
def objects(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[str]]) -> bytes:
    """A JSON object with some of the fields, perhaps an unknown one, perhaps the key twice (then the last counts)."""
    pairs = [(name, draw(values)) for name, values in fields.items() if draw(st.integers(0, 9)) > 0]
    if draw(st.integers(0, 5)) == 0:
        pairs.insert(
            draw(st.integers(0, len(pairs))), ("other", draw(st.sampled_from(["1", '{"userId": "no"}', '"}"'])))
        )
    if draw(st.integers(0, 9)) == 0:
        pairs.append(("userId", draw(fields["userId"])))
    gap = draw(space)
    return (gap + "{" + f",{gap}".join(f'{gap}"{n}"{gap}:{gap}{v}' for n, v in pairs) + gap + "}" + gap).encode()


malformed = st.sampled_from(
    [
        b"",
        b"  ",
        b"nope",
        b"[]",
        b"null",
        b'"text"',
        b"12",
        b'{"userId":"k1"',
        b'{"userId":"k1"} x',
        b"{'userId':'k1'}",
        b'{"userId":"k1"}{"userId":"k2"}',
        b'{"userId":"k1","age":NaN}',
        b'{"userId":"\xff"}',
        b"\xff\xfe",
        b'{"age":01}',
        b'{"userId":"k1",}',
        b'{"userId":"k1"}]',
        b'{"userId":"k1"},7] ',
        b'[{"userId":"k1"}]',
        b'{"a":{"b":1}} }',
    ]
)


@st.composite
def values(draw: st.DrawFn, topic: str) -> bytes | None:
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(malformed)
    if kind <= 2:
        return None
    if topic == "u":
        return draw(objects({"userId": keys, "name": texts, "age": integers, "born": days, "seen": moments}))
    return draw(objects({"userId": keys, "accountType": texts, "balance": doubles}))


@st.composite
def histories(draw: st.DrawFn) -> list[Sent]:
    """Records of both topics in an order in which they may be read: offsets rise within a partition, times need not."""
    ends: dict[tuple[str, int], int] = {}
    records = []
    for _ in range(draw(st.integers(0, 24))):
        topic, partition = draw(st.sampled_from(["u", "a"])), draw(st.integers(0, 2))
        offset = ends.get((topic, partition), 0) + draw(st.sampled_from([0, 0, 0, 3]))
        ends[topic, partition] = offset + 1
        key = draw(st.sampled_from([None, b"k1", b"k2", b"7", "ключ".encode(), b"\xff"]))
        value = draw(values(topic))
        if value is None and key == b"\xff":
            key = None
        records.append(Sent(topic, partition, offset, draw(times), key, value))
    return records


@dataclass(frozen=True, slots=True)
class Case:
    """One random run, and what is configured."""

    course: Course
    rows: tuple[str, str]
    max_rows: int | None
    duplicates: Duplicates
    joins: list[Join]
    max_rows_per_key: int | None = None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = draw(st.tuples(st.sampled_from(["all", "latest"]), st.sampled_from(["all", "latest"])))
    return Case(
        course=draw(courses(histories())),
        rows=rows,
        max_rows=draw(st.sampled_from([None, None, 3, 6])) if rows[0] == "all" else None,
        duplicates=draw(st.sampled_from(list(Duplicates))),
        joins=draw(st.lists(st.sampled_from(list(Join)), min_size=2, max_size=3, unique=True)),
        max_rows_per_key=draw(st.sampled_from([None, 1, 2, 4])),
    )


def settings_of(case: Case, folder: Path, prefix: str = "", views: dict[str, Any] | None = None) -> Settings:
    users: dict[str, Any] = {
        "topic": f"{prefix}u",
        "table": "users_ui",
        "key": "userId",
        "columns": USERS,
        "rows": case.rows[0],
    }
    if case.max_rows:
        users["max_rows"] = case.max_rows
    accounts = {
        "topic": f"{prefix}a",
        "table": "accounts_ui",
        "key": "userId",
        "columns": ACCOUNTS,
        "rows": case.rows[1],
    }
    view: dict[str, Any] = {"left": "users", "right": "accounts", "on": "userId", "duplicates": case.duplicates.value}
    view |= {"max_rows_per_key": case.max_rows_per_key} if case.max_rows_per_key else {}
    views = views or {f"by_{join}": view | {"join": join.value} for join in case.joins}
    return parse({"sources": {"users": users, "accounts": accounts}, "views": views}, folder, {})


class Runner(FedGeneration):
    """The generation of a case."""

    def __init__(
        self, spark: SparkSession, case: Case, folder: Path, prefix: str = "", views: dict[str, Any] | None = None
    ) -> None:
        """`prefix` stands before the names of its topics, which are real ones then; `views` in place of the case's."""
        self._case = case
        self._prefix = prefix
        before = Offsets({(f"{prefix}{t}", p): 0 for t in ("u", "a") for p in range(3)})
        settings = settings_of(case, folder, prefix, views)
        super().__init__(spark, settings, folder, before, case.course.target(before))

    def play(self, *, replays: bool = True) -> None:
        self._case.course.play(self, self.start, partial(compare, self._case, self), replays=replays)

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = super().rows(table)
        for row in found:
            if "topic" in row:
                row["topic"] = row["topic"].removeprefix(self._prefix)
        return found


def compare(case: Case, runner: Runner, seen: list[Sent], *, views: bool) -> None:
    users = oracle.Source("users", "u", "userId", USERS, case.rows[0] == "latest", case.max_rows)
    accounts = oracle.Source("accounts", "a", "userId", ACCOUNTS, case.rows[1] == "latest")
    (left, left_bad), (right, right_bad) = oracle.read_source(users, seen), oracle.read_source(accounts, seen)
    left, right = oracle.shown(users, left), oracle.shown(accounts, right)
    assert oracle.bag(runner.rows("users_ui")) == oracle.bag(k.row for k in left)
    assert oracle.bag(runner.rows("accounts_ui")) == oracle.bag(k.row for k in right)
    bad = [
        (r["topic"], r["partition"], r["offset"], r["field"], r["reason"].split(",")[0])
        for r in runner.rows("bad_records")
    ]
    assert sorted(bad, key=repr) == sorted(left_bad | right_bad, key=repr)
    if not views:
        return
    expected = {}
    for join in case.joins:
        out = oracle.left_out(join, case.duplicates, case.max_rows_per_key, (users, left), (accounts, right))
        lefts, rights = ([kept for kept in rows if kept.row["userId"] not in out] for rows in (left, right))
        rows = oracle.join_rows(users, lefts, accounts, rights, join, case.duplicates)
        assert oracle.bag(runner.rows(f"by_{join}")) == oracle.bag(rows), join
        assert runner.identities(f"by_{join}") == len(rows)
        expected[f"by_{join}"] = oracle.quality(users, left, accounts, right, len(out))
    assert {row.pop("view"): row for row in runner.rows("join_quality")} == expected


@settings(max_examples=BATCHES_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_tables_equal_a_plain_computation_whatever_the_batches(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Runner(spark, case, Path(folder)).play()
