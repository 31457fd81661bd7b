"""Why a row is there: the answer names the records that a plain computation chooses, and the reasons of the others."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from fed_generation import places
from lengths import WHY_EXAMPLES
from oracle import Kept, Sent, Source
from reason_oracle import HIDING, Fed, Met, first_value, joined, place, reason_of, rows_told
from turnout.config import Settings, parse
from turnout.errors import TurnoutError
from turnout.plan.joins import Duplicates, Join
from turnout.plan.tables import Layout
from turnout.store.database import Database
from turnout.store.query.row_records import MOST_ROWS, Explanation, WhyQuestion, WhyRow, explain

KEYS = ["a", "b", None]
SOURCES = ("users", "accounts", "branches")
COLUMNS = {"users": ("id", "x"), "accounts": ("id", "y"), "branches": ("id", "z")}


@st.composite
def sent(draw: st.DrawFn) -> list[Sent]:
    found = []
    for source, partition, offset in places(draw, SOURCES):
        row = {column: draw(st.sampled_from(KEYS)) for column in COLUMNS[source]}
        value = None if draw(st.integers(0, 5)) == 0 else json.dumps(row).encode()
        key = row["id"].encode() if row["id"] else None
        found.append(Sent(source, partition, offset, draw(st.integers(0, 3)), key, value))
    return found


def configured(rows: dict[str, str], views: dict[str, Any]) -> Settings:
    sources = {
        name: {
            "topic": name,
            "table": f"{name}_ui",
            "key": "id",
            "rows": rows.get(name, "all"),
            "columns": dict.fromkeys(COLUMNS[name], "string"),
        }
        for name in SOURCES
    }
    return parse({"sources": sources, "views": views}, Path("/x"), {})


def ask(fed: Fed, table: str, **question: Any) -> Explanation:
    def layout(generation: int) -> Layout:
        assert fed.tables is not None
        assert generation == fed.tables.generation
        return fed.tables.layout

    return explain(fed.database, WhyQuestion(table, **question), layout)


def why(fed: Fed, table: str, key: str) -> Explanation | None:
    """The answer for a key, which is that for each of its rows; None where neither a row nor a record has the key."""
    try:
        answer = ask(fed, table, key=key)
    except TurnoutError as error:
        assert error.code == "unknown_row", error
        return None
    for row in answer.rows:
        if row.row is not None:
            [alone] = ask(fed, table, row=row.row).rows
            assert (alone.records, alone.others, alone.complete) == (row.records, row.others, row.complete)
    return answer


class Told:
    """All records as the oracle reads them, by source."""

    def __init__(self, records: list[Sent], rows: dict[str, str]) -> None:
        self.sources = {
            name: Source(name, name, "id", dict.fromkeys(COLUMNS[name], "string"), rows.get(name) == "latest")
            for name in SOURCES
        }
        self.kept = {name: oracle.read_source(source, records)[0] for name, source in self.sources.items()}
        self.shown = {name: oracle.shown(source, self.kept[name]) for name, source in self.sources.items()}

    def stored(self, name: str, column: str, value: str | None) -> list[Kept]:
        """The records of a value that the store keeps: with `rows: latest` the newest of each key and partition."""
        kept = self.kept[name]
        if self.sources[name].latest:
            last = {(one.row["id"], one.record.partition): one for one in kept}
            kept = list(last.values())
        return [one for one in kept if one.row[column] == value]

    def reasons(self, name: str, column: str, value: str | None, *, takes_newest: bool) -> dict[Any, str]:
        """The reason of each stored record of a value, if it is in no row."""
        latest, found = self.sources[name].latest, {}
        for one in self.stored(name, column, value):
            shown = [kept for kept in self.shown[name] if kept.row[column] == value]
            same = shown if one in shown else [k for k in self.kept[name] if k.row["id"] == one.row["id"]]
            found[place(one)] = reason_of(one, same, latest=latest and one not in shown, takes_newest=takes_newest)
        return found


@settings(max_examples=WHY_EXAMPLES)
@given(
    records=sent(),
    rows=st.fixed_dictionaries({name: st.sampled_from(["all", "latest"]) for name in SOURCES}),
    join=st.sampled_from(list(Join)),
    duplicates=st.sampled_from(list(Duplicates)),
    rights=st.sampled_from([["accounts"], ["accounts", "branches"]]),
    cut=st.integers(0, 24),
)
def test_records_of_a_joined_row_are_those_of_a_plain_computation(
    records: list[Sent], rows: dict[str, str], join: Join, duplicates: Duplicates, rights: list[str], cut: int
) -> None:
    view = {"left": "users", "right": rights, "on": "id", "join": join.value, "duplicates": duplicates.value}
    told = Told(records, rows)
    sides = ["users", *rights]
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder))
        fed = Fed(database, configured(rows, {"final_ui": view}), join)
        fed.feed(records[:cut])
        fed.feed(records[cut:])
        for key in ("a", "b"):
            compare_joined(fed, told, sides, key, join, duplicates)
            for name in SOURCES:
                compare_source(fed, told, name, key)
        for name in SOURCES:
            compare_without_key(fed, told, name)
        database.close()


def compare_joined(fed: Fed, told: Told, sides: list[str], key: str, join: Join, duplicates: Duplicates) -> None:
    left, *rights = [[kept for kept in told.shown[name] if kept.row["id"] == key] for name in sides]
    steps = [Met(((0, "id"),), "id", join, duplicates) for _ in rights]
    expected = key_joined(left, rights, steps)
    chosen = {place(kept) for row in expected for kept in row if kept is not None}
    takes_newest = join is not Join.INNER and duplicates is Duplicates.LATEST
    hides = join is Join.SEMI and bool(expected)
    others: dict[Any, str] = {}
    for number, name in enumerate(sides):
        others |= told.reasons(name, "id", key, takes_newest=number > 0 and (takes_newest or hides))
    answer = why(fed, "final_ui", key)
    if answer is None:
        assert not expected
        assert not others
        return
    sources = [told.sources[name] for name in sides]
    assert answer.total == len(expected)
    found = rows_told(answer.rows, sources)
    every = [tuple(None if kept is None else place(kept) for kept in row) for row in expected]
    assert found.total() == min(len(every), MOST_ROWS)
    assert all(every.count(row) >= count for row, count in found.items())
    others = {where: reason for where, reason in others.items() if where not in chosen}
    for row in answer.rows:
        assert {record.place: str(record.reason) for record in row.others} == others
        assert row.complete


def key_joined(left: list[Kept], rights: list[list[Kept]], steps: list[Met]) -> list[tuple[Kept | None, ...]]:
    """The rows of one key: all sides meet by it, so the first record that is there stands for the key."""
    rows: list[tuple[Kept | None, ...]] = [(one,) for one in left]
    for width, (step, right) in enumerate(zip(steps, rights, strict=True), 1):
        some = right if step.pairs and step.join not in (Join.SEMI, Join.ANTI) else right and [oracle.newest(right)]
        if step.join is Join.ANTI:
            rows = [(*row, None) for row in rows] if not some else []
        elif some and rows:
            rows = [(*row, one) for row in rows for one in some]
        elif some and step.join in (Join.RIGHT, Join.FULL):
            rows = [(*(None,) * width, one) for one in some]
        elif rows and step.join in (Join.LEFT, Join.NATURAL, Join.FULL):
            rows = [(*row, None) for row in rows]
        else:
            rows = []
    return rows


def compare_source(fed: Fed, told: Told, name: str, key: str) -> None:
    shown = [kept for kept in told.shown[name] if kept.row["id"] == key]
    others = told.reasons(name, "id", key, takes_newest=True) if told.sources[name].latest else {}
    others = {where: reason for where, reason in others.items() if where not in set(map(place, shown))}
    answer = why(fed, f"{name}_ui", key)
    if answer is None:
        assert not shown
        assert not others
        return
    assert answer.total == len(shown)
    assert {one.place for row in answer.rows for one in row.records} <= set(map(place, shown))
    for row in answer.rows:
        assert len(row.records) == (row.row is not None)
        assert {record.place: str(record.reason) for record in row.others} == others


def compare_without_key(fed: Fed, told: Told, name: str) -> None:
    """Rows without a key can be asked for by their ids alone."""
    kept = [one for one in told.shown[name] if one.row["id"] is None]
    with fed.database.read() as cursor:
        found = cursor.execute(f"SELECT _row FROM main.{name}_ui WHERE id IS NULL").fetchall()
    answers = [ask(fed, f"{name}_ui", row=row).rows[0] for (row,) in found]
    assert sorted(one.place for row in answers for one in row.records) == sorted(map(place, kept))
    others = told.reasons(name, "id", None, takes_newest=True) if told.sources[name].latest else {}
    for row in answers:
        told_others = {one.place: str(one.reason) for one in row.others}
        assert told_others == {at: reason for at, reason in others.items() if at not in set(map(place, kept))}


def test_key_that_is_left_out_is_noted(tmp_path: Path) -> None:
    view = {"left": "users", "right": "accounts", "on": "id", "join": "inner", "max_rows_per_key": 3}
    fed = Fed(Database.open(tmp_path), configured({}, {"final_ui": view}), Join.INNER)
    row = json.dumps({"id": "a"}).encode()
    fed.feed([Sent(topic, 0, offset, 1, None, row) for topic in ("users", "accounts") for offset in range(2)])
    answer = ask(fed, "final_ui", key="a")
    assert answer.notes == ["final_ui leaves 'a' out: it has more rows than max_rows_per_key allows"]
    assert [(one.row, len(one.records)) for one in answer.rows] == [(None, 0)]
    assert {(one.source, one.offset, str(one.reason)) for one in answer.rows[0].others} == {
        (source, offset, "no match") for source in ("users", "accounts") for offset in range(2)
    }
    fed.database.close()


def test_record_of_a_topic_that_was_deleted_is_told_apart_from_the_one_at_its_place(tmp_path: Path) -> None:
    view = {"left": "users", "right": "accounts", "on": "id"}
    fed = Fed(Database.open(tmp_path), configured({"accounts": "latest"}, {"final_ui": view}))
    row = json.dumps({"id": "a"}).encode()
    fed.feed([Sent("users", 0, 5, 1, None, row), Sent("accounts", 0, 5, 1, None, row)])
    assert fed.tables is not None
    with fed.tables.batch(None) as batch:
        assert batch is not None
        for topic in ("users", "accounts"):
            batch.begin_life(topic, 0)
        batch.finish(None, "{}", views_built=True)
    fed.feed([Sent("users", 0, 5, 2, None, row), Sent("accounts", 0, 5, 2, None, row)])
    old, new = ask(fed, "final_ui", key="a").rows
    assert [(one.source, one.timestamp_ms, one.deleted) for one in (*old.records, *new.records)] == [
        ("users", 1, True),
        ("accounts", 2, False),
        ("users", 2, False),
        ("accounts", 2, False),
    ]
    [other] = old.others
    assert (other.timestamp_ms, other.reason, other.deleted) == (1, "older", True)
    # Kafka is searched from the record of the topic that is there now.
    assert [search.ends for search in old.searches] == [{("accounts", 0): 5}]
    fed.database.close()


@st.composite
def chains(draw: st.DrawFn) -> list[Met]:
    """Two steps, the second of them by a column of the first source or of the second."""
    joins, every = (
        st.sampled_from([join for join in Join if join is not Join.NATURAL]),
        st.sampled_from(list(Duplicates)),
    )
    left = (0, draw(st.sampled_from(["id", "x"])))
    first = Met((left,), draw(st.sampled_from(["id", "y"])), draw(joins), draw(every))
    lefts = [filled("id", [first]), ((0, "x"),), *([] if first.join in HIDING else [((1, "y"),)])]
    return [first, Met(draw(st.sampled_from(lefts)), draw(st.sampled_from(["id", "z"])), draw(joins), draw(every))]


def filled(column: str, steps: Sequence[Met]) -> tuple[tuple[int, str], ...]:
    """A left column, and the right columns that fill it."""
    filling = [(at, column) for at, step in enumerate(steps, 1) if step.fills and step.lefts[0] == (0, column)]
    return (0, column), *filling


@settings(max_examples=WHY_EXAMPLES)
@given(
    records=sent(),
    rows=st.fixed_dictionaries({name: st.sampled_from(["all", "latest"]) for name in SOURCES}),
    steps=chains(),
)
def test_records_of_a_row_of_a_chain_are_those_of_a_plain_computation(
    records: list[Sent], rows: dict[str, str], steps: list[Met]
) -> None:
    configured_steps = [
        {
            "right": right,
            "on": {"left": step.left_on, "right": step.right_on},
            "join": step.join.value,
            "duplicates": step.duplicates.value,
        }
        for right, step in zip(SOURCES[1:], steps, strict=True)
    ]
    told = Told(records, rows)
    every = joined(told.shown["users"], [told.shown[name] for name in SOURCES[1:]], steps)
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder))
        fed = Fed(database, configured(rows, {"chain": {"left": "users", "steps": configured_steps}}), steps[0].join)
        fed.feed(records)
        for key in ("a", "b"):
            expected = [row for row in every if first_value(row, filled("id", steps)) == key]
            answer = why(fed, "chain", key)
            assert (answer.total if answer else 0) == len(expected)
            if expected:
                assert answer is not None
                compare_chain(told, steps, every, answer.rows, key)
                continue
            others = told.reasons("users", "id", key, takes_newest=False)
            for at, column in filled("id", steps)[1:]:
                others |= told.reasons(SOURCES[at], column, key, takes_newest=not steps[at - 1].pairs)
            found = answer.rows if answer else []
            assert {one.place: str(one.reason) for row in found for one in row.others} == not_chosen(others, every)
        with fed.database.read() as cursor:
            without = cursor.execute("SELECT _row FROM main.chain WHERE id IS NULL").fetchall()
        assert len(without) == sum(first_value(row, filled("id", steps)) is None for row in every)
        for (row,) in without:
            compare_chain(told, steps, every, ask(fed, "chain", row=row).rows, None)
        database.close()


def not_chosen(reasons: dict[Any, str], every: Sequence[Sequence[Kept | None]]) -> dict[Any, str]:
    chosen = {place(kept) for row in every for kept in row if kept is not None}
    return {at: reason for at, reason in reasons.items() if at not in chosen}


def compare_chain(
    told: Told,
    steps: Sequence[Met],
    every: Sequence[tuple[Kept | None, ...]],
    answer: Sequence[WhyRow],
    key: str | None,
) -> None:
    """Compare rows of a key, or one without a key, with the rows of a plain computation."""
    by_places = {tuple(kept and place(kept) for kept in row): row for row in every}
    for row in answer:
        places = {one.source: one.place for one in row.records}
        kept = by_places[tuple(places.get(name) for name in SOURCES)]
        assert first_value(kept, filled("id", steps)) == key
        asked = key is not None or kept[0] is not None
        others = told.reasons("users", "id", key, takes_newest=False) if asked else {}
        for step, name, match in zip(steps, SOURCES[1:], kept[1:], strict=True):
            value = first_value(kept, step.lefts) if match is None else match.row[step.right_on]
            if value is not None:
                newest = not step.pairs or (step.join is Join.SEMI and match is not None)
                others |= told.reasons(name, step.right_on, value, takes_newest=newest)
        assert {one.place: str(one.reason) for one in row.others} == not_chosen(others, every)
