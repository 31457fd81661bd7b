"""Differences between two generations, held against a plain comparison of both tables."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filled_store import Filling
from lengths import DIFFERENCE_EXAMPLES
from turnout.config import Settings
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.plan.offsets import Offsets
from turnout.plan.where import parse_sort, parse_terms
from turnout.store.database import Database
from turnout.store.outgoing import SinkPosition
from turnout.store.query import difference
from turnout.store.query.difference import DifferenceQuestion, DifferenceResult, open_difference, read_difference
from turnout.store.query.windows import Window, read_window
from turnout.store.row_json import record_key_sql, record_value_sql
from turnout_client.column_types import ColumnType

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

    def make(
        self,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        *joins: Join,
        settings: Settings | None = None,
        same_places: bool = False,
    ) -> None:
        """Publish a generation, and make another beside it, whose records may have the same places in Kafka."""
        for number in filter(None, self.numbers):
            self.filling.drop(number)
        self.filling.settings, self.filling._offset = Settings(), 0
        self.filling.swap(joins[0] if joins else Join.LEFT, **old)
        first = self._number()
        self.filling.settings = settings or self.filling.settings
        self.filling._offset = 0 if same_places else self.filling._offset
        self.filling.generation(joins[-1] if joins else Join.LEFT)
        self.filling.batch(**new)
        self.numbers = first, self._number()

    def _number(self) -> int:
        assert self.filling.tables is not None
        return self.filling.tables.generation

    def compare(self, table: str, change: str | None = None, **window: Any) -> DifferenceResult:
        return read_difference(self.database, DifferenceQuestion(Window(table, **window), *self.numbers, change))

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
    pairs: list[Pair] = []
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


def plain_difference(old: Sequence[Row], new: Sequence[Row], key: Sequence[str]) -> tuple[list[Pair], int]:
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


@settings(max_examples=DIFFERENCE_EXAMPLES)
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


def records_of(pairs: Pairs, table: str) -> list[dict[str, str]]:
    """What a topic holds that a sink has brought to the table of each generation: key -> value."""
    assert pairs.filling.tables is not None
    key = pairs.filling.tables.layout.of(table).key
    found = []
    for number in pairs.numbers:
        columns = read_window(pairs.database, Window(f"{table}@{number}", limit=0)).columns
        kinds = {column.name: ColumnType.parse(column.type) for column in columns}
        sql = f"SELECT {record_key_sql(key, kinds[key])}, {record_value_sql(kinds)} FROM g{number}.{table}"
        with pairs.database.read() as cursor:
            found.append(dict(cursor.execute(sql).fetchall()))
    return found


def records_of_swap(pairs: Pairs, table: str) -> int:
    """How many records bring a topic from the one table to the other."""
    old, new = records_of(pairs, table)
    return len(old.keys() - new.keys()) + sum(old.get(key) != value for key, value in new.items())


@settings(max_examples=DIFFERENCE_EXAMPLES)
@given(old=RECORDS, new=RECORDS, join=JOINS, shift=st.booleans())
def test_sinks_of_a_difference_count_the_records_that_a_swap_writes(
    pairs: Pairs, old: Mapping[str, Any], new: Mapping[str, Any], join: Join, shift: bool
) -> None:
    pairs.make(old, new, Join.LEFT, join, same_places=not shift)
    for table in ("users_ui", "final_ui"):
        pairs.database.sinks.put("out", SinkPosition(table, 100))
        assert pairs.compare(table).sinks == {"out": records_of_swap(pairs, table)}
    assert pairs.compare("users_ui").sinks == {}
    pairs.database.sinks.remove("out")


USER = {"userId": "a", "name": "x", "email": None, "age": 1}


@settings(max_examples=DIFFERENCE_EXAMPLES)
@given(old=RECORDS, new=RECORDS, page=st.integers(1, 5))
def test_where_and_change_keep_what_is_asked_for_and_pages_follow_the_sort(
    pairs: Pairs, old: Mapping[str, Any], new: Mapping[str, Any], page: int
) -> None:
    pairs.make(old, new)
    whole = pairs.compare("final_ui")
    where, sort = parse_terms("age = 1"), parse_sort("-age,name")
    found = pairs.compare("final_ui", where=where, sort=sort)
    kept = [pair for pair in pairs_of(whole) if any(side is not None and side["age"] == 1 for side in pair[1:])]
    assert bag(pairs_of(found)) == bag(kept)
    assert found.total == len(kept) == sum(found.counts[change] for change in ("added", "removed", "changed"))
    before, _ = pairs.rows("final_ui")
    old_ones = [row for row in before if row["age"] == 1]
    gone = [pair for pair in pairs_of(whole) if pair[1] is not None and pair[1]["age"] == 1]
    assert found.counts["same"] == len(old_ones) - len(gone)
    shown = [new or old or {} for _, old, new in pairs_of(found)]
    assert [row["age"] for row in shown] == sorted((row["age"] for row in shown), key=lambda a: (a is None, -(a or 0)))
    pages = [
        pairs.compare("final_ui", where=where, sort=sort, offset=start, limit=page)
        for start in range(0, max(1, found.total), page)
    ]
    assert [one.counts for one in pages] == [found.counts] * len(pages)
    assert in_order(pair for one in pages for pair in pairs_of(one)) == in_order(pairs_of(found))
    for change in difference.CHANGES:
        alone = pairs.compare("final_ui", change, where=where, sort=sort)
        wanted = in_order(pair for pair in pairs_of(found) if pair[0] == change)
        assert in_order(pairs_of(alone)) == wanted
        assert (alone.counts, alone.columns, alone.total) == (found.counts, found.columns, len(wanted))
        last = pairs.compare("final_ui", change, where=where, sort=sort, offset=page, limit=page)
        assert in_order(pairs_of(last)) == wanted[page : 2 * page]


def in_order(pairs: Iterable[Pair]) -> list[tuple[Any, ...]]:
    return [(change, cells(old), cells(new)) for change, old, new in pairs]


def test_each_side_tells_how_many_records_of_its_topics_it_had_not_read(pairs: Pairs) -> None:
    pairs.make({"users": [USER]}, {"users": [USER]})
    assert pairs.compare("users_ui").lags == (None, None), "nothing was measured"
    first, second = pairs.numbers
    with pairs.database.write() as cursor:
        for number, read in ((first, {"users": {"0": 5, "1": 7}}), (second, {"users2": {"0": 3}})):
            cursor.execute(f"UPDATE g{number}.progress SET offsets = ?", [json.dumps(read)])
    ends: dict[tuple[str, int], int] = {("users", 0): 9, ("users", 1): 7, ("others", 0): 99}
    pairs.database.ends = Offsets(ends)
    assert pairs.compare("users_ui").lags == (4, None), "the ends of users2 are not known"
    pairs.database.ends = Offsets(ends | {("users2", 0): 3})
    assert pairs.compare("final_ui").lags == (4, 0)
    pairs.database.ends = Offsets({("users", 0): 9, ("users2", 0): 4})
    assert pairs.compare("final_ui").lags == (None, 1), "the end of a partition is not known"
    with pairs.database.write() as cursor:
        cursor.execute(f"UPDATE g{second}.progress SET offsets = '{{}}'")
    assert pairs.compare("final_ui").lags == (None, None), "nothing was read since a start that is not known"
    pairs.database.ends = Offsets({})


def of_users(key: str, columns: Mapping[str, str]) -> Settings:
    """Settings of one source."""
    users = {"topic": "users", "table": "users_ui", "key": key, "columns": columns}
    return Settings.model_validate({"sources": {"users": users}, "views": {}})


def test_tables_with_other_columns_are_compared_by_those_that_both_have(pairs: Pairs) -> None:
    columns = {"userId": "string", "name": "string", "age": "string", "city": "string"}
    other = of_users("userId", columns)
    pairs.make({"users": [USER]}, {"users": [{"userId": "a", "name": "y", "age": "1", "city": "Ulm"}]}, settings=other)
    pairs.database.sinks.put("out", SinkPosition("users_ui", 100))
    found = pairs.compare("users_ui")
    pairs.database.sinks.remove("out")
    assert [(column.name, column.changed) for column in found.columns] == [("userId", 0), ("name", 1)]
    assert (found.only_from, found.only_to) == (("email", "age"), ("age", "city"))
    assert pairs_of(found) == [("changed", {"userId": "a", "name": "x"}, {"userId": "a", "name": "y"})]
    assert found.sinks == {"out": 2}  # a row with other columns, from another place in Kafka: one goes, one comes


def test_table_of_one_generation_alone_is_all_added_or_all_removed(pairs: Pairs) -> None:
    without = Settings.model_validate({"views": {}})
    pairs.make({"users": [USER]}, {"users": [USER]}, settings=without)
    found = pairs.compare("final_ui")
    assert (found.missing, found.counts["removed"], found.total) == ("to", 1, 1)
    assert (found.positions[0].version, found.positions[1].version) == (1, 0)
    back = read_difference(pairs.database, DifferenceQuestion(Window("final_ui"), *pairs.numbers[::-1]))
    assert (back.missing, back.counts["added"], back.total) == ("from", 1, 1)


def test_tables_without_a_common_key_or_column_say_so(pairs: Pairs) -> None:
    pairs.make(
        {"users": [USER]},
        {"users": [{"name": "x", "n": "a"}]},
        settings=of_users("n", {"name": "string", "n": "string"}),
    )
    found = pairs.compare("users_ui")
    assert (found.key, found.counts) == (("name",), {"added": 0, "removed": 0, "changed": 0, "same": 1})
    pairs.make({"users": [USER]}, {"users": [{"n": "a"}]}, settings=of_users("n", {"n": "string"}))
    with pytest.raises(TurnoutError, match="no column in common") as raised:
        pairs.compare("users_ui")
    assert raised.value.code == "bad_parameter"


@pytest.mark.parametrize(
    ("table", "numbers", "code"),
    [
        ("nothing", (1, 2), "unknown_table"),
        ("versions", (1, 2), "unknown_table"),
        ("outgoing:users_ui", (1, 2), "unknown_table"),
        ("swaps", (1, 2), "unknown_table"),
        ("users_ui@1", (1, 2), "unknown_table"),
        ("users_ui", (1, 9), "unknown_generation"),
        ("users_ui", (9, 2), "unknown_generation"),
        ("users_ui", (1, 1), "bad_parameter"),
        ("users_ui", (None, None), "no_candidate"),
        ("users_ui", (2, None), "no_candidate"),
    ],
)
def test_wrong_questions_are_told(
    tmp_path: Path, table: str, numbers: tuple[int | None, int | None], code: str
) -> None:
    database = Database.open(tmp_path)
    try:
        filling = Filling(database)
        filling.swap(users=[USER])
        filling.generation()
        with pytest.raises(TurnoutError) as raised:
            read_difference(database, DifferenceQuestion(Window(table), *numbers))
    finally:
        database.close()
    assert raised.value.code == code
    assert raised.value.hint


def test_candidate_is_compared_with_what_is_shown(pairs: Pairs) -> None:
    pairs.make({"users": [USER]}, {"users": [USER, {**USER, "userId": "b"}]})
    with pairs.database.write() as cursor:
        cursor.execute("UPDATE turnout.published SET candidate = ?", [pairs.numbers[1]])
    found = read_difference(pairs.database, DifferenceQuestion(Window("users_ui")))
    assert found.positions == pairs.compare("users_ui").positions
    assert found.counts == {"added": 1, "removed": 0, "changed": 0, "same": 1}
    with open_difference(pairs.database, DifferenceQuestion(Window("users_ui"))) as opened:
        assert opened.rows.read_all() == found.rows
