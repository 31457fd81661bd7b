"""Differences between two generations, held against a plain comparison of both tables."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filling import Filling
from turnout.config import Settings
from turnout.plan.joins import Join
from turnout.store.database import Database
from turnout.store.query import difference
from turnout.store.query.difference import Difference, DifferenceResult, read_difference
from turnout.store.query.windows import Window, read_window

Row = Mapping[str, Any]
Pair = tuple[str, Row | None, Row | None]

KEYS = st.sampled_from(["a", "b", None])
BALANCES = st.sampled_from([1.5, -0.0, 0.0, float("nan"), None])
USERS = st.fixed_dictionaries(
    {"userId": KEYS, "name": st.sampled_from("xy"), "email": st.just(None), "age": st.integers(1, 2) | st.none()}
)
ACCOUNTS = st.fixed_dictionaries({"userId": KEYS, "accountType": st.sampled_from("gs"), "balance": BALANCES})
RECORDS = st.fixed_dictionaries(
    {
        "users": st.lists(USERS | st.none(), max_size=12),
        "accounts": st.lists(ACCOUNTS, max_size=5),
    }
)
JOINS = st.sampled_from([Join.LEFT, Join.INNER, Join.RIGHT, Join.FULL])


class Pairs:
    """A store in which two generations are made again and again: to open one takes longer than to fill them."""

    def __init__(self, folder: Path) -> None:
        self.database = Database.open(folder)
        self.filling = Filling(self.database)
        self.numbers = (0, 0)

    def make(self, old: Mapping[str, Any], new: Mapping[str, Any], *joins: Join, **sections: Any) -> None:
        """Publish a generation, and make another beside it, of other settings where sections are given."""
        for number in filter(None, self.numbers):
            self.filling.drop(number)
        self.filling.settings = Settings()
        self.filling.swap(joins[0] if joins else Join.LEFT, **old)
        first = self._number()
        self.filling.settings = Settings(**sections) if sections else self.filling.settings
        self.filling.generation(joins[-1] if joins else Join.LEFT)
        self.filling.batch(**new)
        self.numbers = first, self._number()

    def _number(self) -> int:
        assert self.filling.tables is not None
        return self.filling.tables.generation

    def compare(self, table: str, **window: Any) -> DifferenceResult:
        return read_difference(self.database, Difference(Window(table, **window), *self.numbers))

    def rows(self, table: str) -> list[list[Row]]:
        """The rows of a table in both generations."""
        return [read_window(self.database, Window(f"{table}@{n}")).rows.to_pylist() for n in self.numbers]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    made = Pairs(tmp_path_factory.mktemp("store"))
    yield made
    made.database.close()


def pairs_of(found: DifferenceResult) -> list[Pair]:
    """The rows as they are answered: change, old row, new row."""
    names = [column.name for column in found.columns]
    pairs = []
    for row in found.rows.to_pylist():
        change = row["change"]
        old = None if change == "added" else {name: row[f"from.{name}"] for name in names}
        new = None if change == "removed" else {name: row[f"to.{name}"] for name in names}
        pairs.append((change, old, new))
    return pairs


def plain(value: Any) -> Any:
    """A value that is equal to what SQL takes for the same: NaN is NaN, 0.0 is -0.0."""
    return "NaN" if isinstance(value, float) and value != value else value


def cells(row: Row | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(map(plain, row.values()))


def order(row: Row) -> tuple[Any, ...]:
    """The order of rows by all columns: nulls last, NaN after all numbers."""
    return tuple((value is None, value == "NaN", value if value != "NaN" else 0) for value in cells(row) or ())


def sortable(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [(null, nan, 0 if null else value) for null, nan, value in order(row)])


def plain_difference(old: list[Row], new: list[Row], key: Sequence[str]) -> tuple[list[Pair], int]:
    """All changes, and how many rows are the same, without SQL."""
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((old, new)):
        for row in rows:
            groups[tuple(row[name] for name in key)][side].append(row)
    pairs: list[Pair] = []
    same = 0
    for olds, news in groups.values():
        equal = Counter(map(cells, olds)) & Counter(map(cells, news))
        same += equal.total()
        one, other = (sortable(without(rows, equal)) for rows in (olds, news))
        together = matched(one, other)
        pairs += [("changed", one[at], other[to]) for at, to in together.items()]
        pairs += [("removed", row, None) for at, row in enumerate(one) if at not in together]
        pairs += [("added", None, row) for at, row in enumerate(other) if at not in together.values()]
    return pairs, same


def without(rows: list[Row], equal: Counter[Any]) -> list[Row]:
    left, kept = Counter(equal), []
    for row in rows:
        if left[cells(row)]:
            left[cells(row)] -= 1
        else:
            kept.append(row)
    return kept


def matched(olds: list[Row], news: list[Row]) -> dict[int, int]:
    """The number of the new row that belongs to the number of an old one."""
    if max(len(olds), len(news)) > difference.MAX_ALIKE:
        return {at: at for at in range(min(len(olds), len(news)))}
    ranked = sorted(
        (sum(a != b for a, b in zip(cells(old) or (), cells(new) or (), strict=True)), at, to)
        for (at, old), (to, new) in itertools.product(enumerate(olds), enumerate(news))
    )
    together: dict[int, int] = {}
    for _, at, to in ranked:
        if at not in together and to not in together.values():
            together[at] = to
    return together


def bag(pairs: Sequence[Pair]) -> Counter[Any]:
    return Counter((change, cells(old), cells(new)) for change, old, new in pairs)


@given(old=RECORDS, new=RECORDS, joins=st.tuples(JOINS, JOINS), most=st.sampled_from([2, 8]))
def test_difference_is_that_of_a_plain_comparison(
    pairs: Pairs, old: Mapping[str, Any], new: Mapping[str, Any], joins: tuple[Join, Join], most: int
) -> None:
    pairs.make(old, new, *joins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "MAX_ALIKE", most)
        for table in ("users_ui", "accounts_ui", "final_ui", "bad_records", "join_quality"):
            found = pairs.compare(table)
            names = [column.name for column in found.columns]
            before, after = ([{name: row[name] for name in names} for row in rows] for rows in pairs.rows(table))
            wanted, same = plain_difference(before, after, found.key)
            assert bag(pairs_of(found)) == bag(wanted)
            counts = Counter(change for change, *_ in wanted)
            assert found.counts == {**{c: counts[c] for c in ("added", "removed", "changed")}, "same": same}
            changed = [(cells(o), cells(n)) for change, o, n in wanted if change == "changed"]
            assert [c.changed for c in found.columns] == [
                sum((o or ())[at] != (n or ())[at] for o, n in changed) for at in range(len(names))
            ]
