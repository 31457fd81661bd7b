"""What a batch tells followers of a table is the difference between its rows before the batch and after it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filled_store import Filling
from lengths import EXAMPLES
from turnout.config import Settings, parse
from turnout.decode.decoder import Decoded
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.position import NOTHING
from turnout.store.database import Database
from turnout.store.feed import Commit, Wanted
from turnout.store.identity import ROW
from turnout.store.outgoing import BOOK, SinkPosition

SIDES = ("users", "accounts", "cities")
COLUMNS = {"users": ["k", "name"], "accounts": ["k", "type", "name"], "cities": ["k", "city"]}

Row = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record, of which a row or a tombstone comes."""

    side: int
    partition: int
    key: str | None
    time: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class Case:
    """The configuration of a generation, what is followed of each table, and its batches."""

    latest: tuple[bool, bool, bool]
    max_rows: int | None
    rights: int
    join: Join
    duplicates: Duplicates
    max_rows_per_key: int | None
    wanted: Mapping[str, Wanted]
    sink: bool
    batches: Sequence[Sequence[Record]]

    def settings(self, folder: Path) -> Settings:
        sources: dict[str, Any] = {}
        for side, name in enumerate(SIDES):
            columns = dict.fromkeys(COLUMNS[name], "string")
            rows = "latest" if self.latest[side] else "all"
            sources[name] = {"topic": name, "table": f"{name}_ui", "key": "k", "columns": columns, "rows": rows}
        if self.max_rows is not None and not self.latest[0]:
            sources["users"]["max_rows"] = self.max_rows
        view: dict[str, Any] = {"left": "users", "on": "k", "join": self.join.value, "duplicates": self.duplicates}
        view["right"] = list(SIDES[1 : 1 + self.rights])
        view |= {"max_rows_per_key": self.max_rows_per_key} if self.max_rows_per_key else {}
        return parse({"sources": sources, "views": {"final_ui": view}}, folder, {})


_TABLES = ("users_ui", "accounts_ui", "final_ui")
_RECORDS = st.builds(
    Record,
    side=st.integers(0, 2),
    partition=st.integers(0, 1),
    key=st.sampled_from(["a", "b", "c", "-", None]),
    time=st.integers(0, 3),
    deleted=st.integers(0, 5).map(lambda number: number == 0),
)
_WANTED = st.one_of(
    st.just(Wanted(every=True)),
    st.builds(Wanted, st.frozensets(st.sampled_from(["k", "name", "type", "city", "no such"]), max_size=3)),
)
_CASES = st.builds(
    Case,
    latest=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    max_rows=st.sampled_from([None, 2, 4]),
    rights=st.integers(1, 2),
    join=st.sampled_from(list(Join)),
    duplicates=st.sampled_from(list(Duplicates)),
    max_rows_per_key=st.sampled_from([None, None, 2]),
    wanted=st.fixed_dictionaries(dict.fromkeys(_TABLES, _WANTED)),
    sink=st.booleans(),
    batches=st.lists(st.lists(_RECORDS, min_size=1, max_size=6), min_size=1, max_size=4),
)


class Feeder:
    """Feeds a generation with the batches of a case; what followers hear of each."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._case = case
        self.database = Database.open(folder)
        self._filling = Filling(self.database, case.settings(folder))
        self._tables = self._filling.generation(case.join)
        self._filling.publish()
        self._offsets: Counter[tuple[int, int]] = Counter()
        self.commits: list[Commit] = []
        if case.sink:
            self.database.sinks.put("s", SinkPosition("final_ui", 100, NOTHING))
        self.database.feed.want(case.wanted.items())
        self.database.feed.listen(lambda commit: self.commits.append(commit) if commit else None)

    def feed(self, records: Sequence[Record]) -> Commit:
        rows: dict[int, list[dict[str, Any]]] = {side: [] for side in range(len(SIDES))}
        for one in records:
            self._offsets[one.side, one.partition] += 1
            offset = self._offsets[one.side, one.partition]
            if one.deleted and not self._case.latest[one.side]:
                continue
            text = f"{one.partition}-{offset}"
            values = {name: None if one.deleted else f"{name} {text}" for name in COLUMNS[SIDES[one.side]]}
            place = {"_id": one.partition << OFFSET_BITS | offset, "_ts": one.time, "_deleted": one.deleted}
            rows[one.side].append({**values, "k": one.key, **place})
        self._filling.take(
            Decoded({side: self._table(side, there) for side, there in rows.items()}, records=len(records))
        )
        return self.commits[-1]

    def _table(self, side: int, rows: list[dict[str, Any]]) -> pa.Table:
        columns = [(name, pa.string()) for name in COLUMNS[SIDES[side]]]
        shape = pa.schema([*columns, ("_id", pa.int64()), ("_ts", pa.int64()), ("_deleted", pa.bool_())])
        table = pa.Table.from_pylist(rows, shape)
        return table if self._case.latest[side] else table.drop_columns("_deleted")

    def rows(self, table: str) -> pa.Table:
        with self.database.read() as cursor:
            return cursor.sql(f"FROM {table}").to_arrow_table()


def bag(rows: pa.Table, names: Sequence[str]) -> Counter[Row]:
    return Counter(tuple(row.items()) for row in rows.select(names).to_pylist())


def _records(text: str) -> list[Record]:
    """Records of a side and a key each: `0a` is one of users with the key a, `0-` one without a key."""
    return [Record(int(one[0]), 0, None if one[1] == "-" else one[1], 0, deleted=False) for one in text.split()]


@settings(max_examples=EXAMPLES, deadline=None)
@example(  # the oldest left rows go, one of them without a key: both are rows of the view
    Case(
        latest=(False, False, False),
        max_rows=2,
        rights=1,
        join=Join.FULL,
        duplicates=Duplicates.ALL,
        max_rows_per_key=None,
        wanted=dict.fromkeys(_TABLES, Wanted(every=True)),
        sink=True,
        batches=[_records("0- 0a 1a 1b"), _records("0b 0b 1a")],
    )
)
@given(case=_CASES)
def test_followers_are_told_the_difference_of_each_table(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        feeder = Feeder(case, Path(folder))
        for records in case.batches:
            before = {table: feeder.rows(table) for table in _TABLES}
            commit = feeder.feed(records)
            for table, rows in before.items():
                _compare(case.wanted[table], rows, feeder.rows(table), commit, table)
            if case.sink and "final_ui" in commit.versions:
                _compare_kept(feeder.rows(f'g1."{BOOK}:final_ui"'), commit)
        feeder.database.close()


def _compare_kept(kept: pa.Table, commit: Commit) -> None:
    """Compare what is kept for a sink with what followers are told."""
    delta = commit.deltas["final_ui"]
    kept = kept.filter(pc.field("_version") == commit.versions["final_ui"])
    added = delta.added[ROW].to_pylist()
    gone = [row for row in delta.removed[ROW].to_pylist() if row not in added]
    assert sorted(kept.filter(~pc.field("_gone"))[ROW].to_pylist()) == sorted(added)
    assert sorted(kept.filter(pc.field("_gone"))[ROW].to_pylist()) == sorted(gone)


def _compare(wanted: Wanted, before: pa.Table, after: pa.Table, commit: Commit, table: str) -> None:
    columns = [name for name in after.column_names if not name.startswith("_")]
    known = [name for name in columns if wanted.every or name in wanted.columns]
    ids = [name for name in after.column_names if name == ROW or name.startswith(("_id", "_right_id"))]
    delta = commit.deltas.get(table)
    if delta is None:
        assert bag(before, columns) == bag(after, columns)
        return
    assert delta.tells(known)
    assert bag(delta.added, [*columns, *ids]) - bag(after, [*columns, *ids]) == Counter()
    names = [*known, *ids]
    # As the rows of both sides are put together by who merges them.
    pa.concat_tables([delta.removed.select(names), delta.added.select(names)])
    left = bag(before, names)
    assert bag(delta.removed, names) - left == Counter()
    left.subtract(bag(delta.removed, names))
    left.update(bag(delta.added, names))
    assert +left == bag(after, names)
