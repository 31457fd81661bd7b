"""Summaries that are kept up to date by changed rows: the same, to the last bit, as those that are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import fsum, inf, nan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filled_store import Filling
from lengths import KEPT_EXAMPLES, MERGES
from turnout.config import Settings
from turnout.plan.where import parse_terms
from turnout.store.database import Database
from turnout.store.feed import Commit, Delta
from turnout.store.query import summary_read, summary_sql
from turnout.store.query.summary import Summary, parse_by, parse_order, parse_values
from turnout.store.query.summary_read import (
    Advanced,
    KeptGroups,
    SummaryQueries,
    SummaryResult,
    read_groups,
    read_summary,
    wanted,
)
from turnout.store.query.summary_sql import MOST_KEPT

TABLE = "users_ui"
COLUMNS = {
    "userId": "string",
    "kind": "string",
    "age": "int64",
    "score": "double",
    "share": "float",
    "price": "decimal(38,2)",
    "born": "date",
    "seen": "timestamp",
    "good": "boolean",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUERIES = SummaryQueries()


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    database = Database.open(tmp_path_factory.mktemp("store"))
    source = {"topic": "users", "table": TABLE, "key": "userId", "rows": "latest", "columns": COLUMNS}
    yield Filling(database, Settings.model_validate({"sources": {"users": source}, "views": {}}))
    database.close()


class Keeping:
    """A summary that is kept while batches are written, as a live one is."""

    def __init__(self, filling: Filling, summary: Summary) -> None:
        self.filling, self.summary = filling, summary
        self.commits: list[Commit] = []
        self.merged = self.read = 0
        self.shown: SummaryResult | None = None
        feed = filling.database.feed
        feed.want([(TABLE, wanted(summary))], self)
        feed.listen(self.heard)
        self.kept = self._read()

    def heard(self, commit: Commit | None) -> None:
        if commit is not None:
            self.commits.append(commit)

    def close(self) -> None:
        self.filling.database.feed.want([], self)
        self.filling.database.feed.leave(self.heard)

    def _read(self) -> KeptGroups | None:
        self.read += 1
        return read_groups(self.filling.database, self.summary)

    def advance(self) -> None:
        """Take all changes since the last time, at once."""
        advance([self])

    def take(self, made: Advanced | None) -> None:
        self.kept, self.shown = made or (None, None)
        self.merged += self.kept is not None

    def read_if_needed(self) -> None:
        self.commits.clear()
        if self.kept is None:
            self.kept = self._read()

    def compare(self) -> None:
        """What is kept is what is read, to the last bit."""
        expected = read_summary(self.filling.database, self.summary)
        if self.kept is None:  # it cannot be kept, and is read each time
            return
        found = self.shown or QUERIES.show(self.kept)
        assert (found.position, found.total) == (expected.position, expected.total)
        assert repr(found.groups.to_pylist()) == repr(expected.groups.to_pylist())
        assert found.groups.schema == expected.groups.schema
        assert found.columns == expected.columns


def advance(keepings: Sequence[Keeping]) -> None:
    """As a round does: what is merged is merged together."""
    deltas: list[Delta] = [commit.deltas[TABLE] for commit in keepings[0].commits if TABLE in commit.deltas]
    due = [(keeping, keeping.kept) for keeping in keepings if keeping.kept is not None]
    if due and deltas:
        for (keeping, _), made in zip(due, QUERIES.advance([kept for _, kept in due], deltas), strict=True):
            keeping.take(made)
    for keeping in keepings:
        keeping.read_if_needed()


def row(key: int, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "userId": f"u{key}", **more}


def summary(by: str = "", values: str = "count", where: str = "", sort: str = "") -> Summary:
    return Summary(TABLE, parse_by(by), parse_values(values), parse_terms(where), parse_order(sort), limit=1_000)


DOUBLES = st.one_of(
    st.sampled_from([0.1, 0.2, 1 / 3, 1e6 + 0.7, -12.5, 1_767_225_600_123.4567, 2.0**52 + 1]),
    st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda number: number if abs(number) > 1e-4 else 0.0),
)
HOSTILE = st.sampled_from([nan, inf, -inf, 1e300, -1e300, 1e-300, 5e-324])
ROWS = st.builds(
    row,
    st.integers(0, 9),
    kind=st.sampled_from(["a", "b", "", None]),
    age=st.none() | st.integers(-30, 30) | st.sampled_from([2**59, -(2**59)]),
    score=st.none() | DOUBLES,
    share=st.none() | st.floats(-100, 100, width=32).map(lambda number: round(number)),
    price=st.none() | st.decimals(-(10**30), 10**30, places=2),
    born=st.none() | st.dates(date(1960, 1, 1), date(1980, 1, 1)),
    seen=st.none()
    | st.integers(-10_000, 10_000).map(lambda s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=s)),
    good=st.none() | st.booleans(),
)
BATCHES = st.lists(st.lists(ROWS, min_size=1, max_size=8), min_size=1, max_size=6)
BY = st.lists(
    st.sampled_from(["kind", "age:7", "good", "born:10d", "seen:1h", "price:1000000", "score:0.5", "share"]),
    max_size=3,
    unique=True,
).map(",".join)
VALUES = st.lists(
    st.sampled_from(
        [
            *("count", "count(age)", "sum(age)", "avg(age)", "min(age)", "max(age)", "sum(score)", "avg(score)"),
            *("min(score)", "max(score)", "sum(share)", "sum(price)", "avg(price)", "min(price)", "max(kind)"),
            *("min(born)", "max(seen)", "min(good)", "count(kind)"),
        ]
    ),
    min_size=1,
    max_size=5,
    unique=True,
).map(",".join)
WHERE = st.sampled_from(
    ["", "age >= 0", "kind in (a, b)", "score < 1000, kind is not null", "good = true", "* icontains A"]
)


SUMMARIES = st.builds(
    lambda by, values, where, sign: summary(by, values, where, sort=f"{sign}{values.split(',')[0]}" if sign else ""),
    BY,
    VALUES,
    WHERE,
    st.sampled_from(["", "+", "-"]),
)


@given(BATCHES, BATCHES, st.lists(SUMMARIES, min_size=1, max_size=5), st.booleans(), st.sampled_from([1, 2, MOST_KEPT]))
@settings(max_examples=KEPT_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_kept_summaries_are_what_is_read(
    filling: Filling, before: list[Any], batches: list[Any], asked: list[Summary], together: bool, most_kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (summary_sql, summary_read):
            patch.setattr(module, "MOST_KEPT", most_kept)
        filling.swap(users=[record for batch in before for record in batch])
        keepings = [Keeping(filling, one) for one in asked]
        try:
            for batch in batches:
                filling.batch(users=batch)
                if not together or batch is batches[-1]:
                    advance(keepings)
                    for keeping in keepings:
                        keeping.compare()
        finally:
            for keeping in keepings:
                keeping.close()


def test_summary_of_one_row_is_read_again_when_rows_change() -> None:
    assert summary_read.keepable(summary(where="age >= 0"))
    assert not summary_read.keepable(summary(where='age >= 0, _row = "1"'))


def test_a_sum_that_does_not_fit_is_only_its_own_fault(filling: Filling) -> None:
    filling.swap(users=[row(1, age=2**62)])
    keepings = [Keeping(filling, summary(values=values)) for values in ("sum(age)", "count", "max(age)")]
    try:
        filling.batch(users=[row(2, age=2**62)])
        keepings[0].read_if_needed = lambda: None  # type: ignore[method-assign]
        advance(keepings)
        assert [keeping.merged for keeping in keepings] == [0, 1, 1]
        for keeping in keepings[1:]:
            keeping.compare()
    finally:
        for keeping in keepings:
            keeping.close()


@pytest.mark.parametrize("function", ["min", "max"])
def test_of_equal_values_more_may_go_than_are_kept(filling: Filling, function: str) -> None:
    first, second, then = 1 + MOST_KEPT, 1 + 2 * MOST_KEPT, 1 if function == "max" else 3
    filling.swap(users=[row(key, age=2) for key in range(1, first)])
    keeping = Keeping(filling, summary(values=f"{function}(age)"))
    try:
        filling.batch(users=[row(key, age=2) for key in range(first, second)])
        filling.batch(users=[row(key, age=then) for key in range(1, second)])
        keeping.advance()
        keeping.compare()
    finally:
        keeping.close()


ROUGH = st.builds(row, st.integers(0, 9), score=HOSTILE | DOUBLES)


@given(BATCHES, st.lists(st.lists(ROUGH, min_size=1, max_size=8), min_size=1, max_size=6))
@settings(max_examples=KEPT_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_numbers_that_have_no_exact_sum_are_read(filling: Filling, before: list[Any], batches: list[Any]) -> None:
    filling.swap(users=[record for batch in before for record in batch])
    keeping = Keeping(filling, summary("kind", "count,sum(score),avg(score),max(score),min(score)"))
    try:
        for batch in batches:
            filling.batch(users=batch)
            keeping.advance()
            keeping.compare()
    finally:
        keeping.close()


def test_changes_are_merged_and_the_table_is_not_read(filling: Filling) -> None:
    filling.swap(users=[row(n, kind="ab"[n % 2], age=n, score=n / 3, price=Decimal(n)) for n in range(100)])
    keeping = Keeping(filling, summary("kind", "count,sum(score),avg(age),sum(price),max(age),min(age)", "age < 90"))
    for n in range(MERGES):
        filling.batch(users=[row(n + 2, kind="ab"[n % 2], age=n + 2, score=1 / (n + 1), price=Decimal(n))])
        keeping.advance()
        keeping.compare()
    assert (keeping.merged, keeping.read) == (MERGES, 1)
    keeping.close()


def test_the_greatest_value_is_looked_up_again_when_all_known_ones_went(filling: Filling) -> None:
    filling.swap(users=[row(number, age=100 - number // 2) for number in range(MOST_KEPT + 2)])
    keeping = Keeping(filling, summary(values="max(age),count"))
    for number in range(MOST_KEPT):
        assert keeping.read == 1
        filling.batch(users=[row(number, age=1)])
        keeping.advance()
        keeping.compare()
    assert keeping.read == 2
    keeping.close()


def test_a_sum_of_doubles_does_not_depend_on_the_order_of_rows(filling: Filling) -> None:
    numbers = [0.1 * n + 1e9 / (n + 1) for n in range(5_000)]
    sums = set[float]()
    for order in (numbers, numbers[::-1], numbers[2_500:] + numbers[:2_500]):
        filling.swap(users=[row(n, score=number) for n, number in enumerate(order)])
        [group] = read_summary(filling.database, summary(values="sum(score)")).groups.to_pylist()
        sums.add(group["sum(score)"])
    [found] = sums
    assert found == pytest.approx(fsum(numbers), rel=1e-15)


def test_summary_of_many_groups_is_not_kept(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    filling.swap(users=[row(n) for n in range(11)])
    assert read_groups(filling.database, summary("userId")) is not None
    monkeypatch.setattr(summary_read, "MAX_KEPT_GROUPS", 10)
    assert read_groups(filling.database, summary("userId")) is None
