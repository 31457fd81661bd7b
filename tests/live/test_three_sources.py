"""Three sources and three views, a chain of joins and two of own SQL, equal a plain computation over all records."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from fed_generation import Course, FedGeneration, courses, places
from lengths import PART_ROWS, VIEWS_EXAMPLES
from oracle import Kept, Row, Sent
from turnout.config import Settings, parse
from turnout.config.document import parse_yaml
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets
from turnout.spark.jvm.session import TaskSize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "users": {"userId": "string", "name": "string"},
    "accounts": {"userId": "string", "name": "string", "kind": "string"},
    "cards": {"userId": "string", "kind": "string", "spent": "int64"},
}
CHAIN = {"left": "users", "right": ["accounts", "cards"], "on": "userId"}
TOTALS = {
    "sources": ["users", "cards"],
    "on": "userId",
    "sql": """
        -- one row for each user with cards
        SELECT u.userId, max(u.name) AS name, count(c.spent) AS cards, sum(c.spent) AS spent
        FROM (SELECT userId, max(name) AS name FROM users GROUP BY userId) u JOIN cards c ON c.userId = u.userId
        GROUP BY u.userId;""",
    "columns": {"userId": "string", "name": "string", "cards": "int64", "spent": "int64"},
}
WORDS = {
    "sources": ["accounts", "users"],
    "on": "userId",
    "sql": "SELECT userId, kind AS word FROM accounts UNION ALL SELECT userId, name FROM users",
    "columns": {"userId": "string", "word": "string"},
}
names = st.sampled_from(["a", "b", None])


@dataclass(frozen=True, slots=True)
class Case:
    """One random run, and what is configured."""

    course: Course
    rows: dict[str, str]
    max_rows: int | None
    join: Join
    duplicates: Duplicates
    max_rows_per_key: int | None
    in_parts: bool
    """Whether its views are first built in parts, through files."""


@st.composite
def records(draw: st.DrawFn) -> list[Sent]:
    found = []
    for source, partition, offset in places(draw, COLUMNS):
        key = draw(st.sampled_from(["1", "2", "3", None]))
        fields: dict[str, Any] = {"userId": key, "name": draw(names), "kind": draw(names)}
        fields["spent"] = draw(st.one_of(st.none(), st.integers(-3, 3)))
        value = None if draw(st.integers(0, 9)) == 0 else json.dumps({c: fields[c] for c in COLUMNS[source]}).encode()
        kafka_key = key.encode() if key else None
        found.append(Sent(source, partition, offset, draw(st.integers(0, 4)), kafka_key, value))
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = {source: draw(st.sampled_from(["all", "latest"])) for source in COLUMNS}
    return Case(
        course=draw(courses(records())),
        rows=rows,
        max_rows=draw(st.sampled_from([None, 4])) if rows["users"] == "all" else None,
        join=draw(st.sampled_from(list(Join))),
        duplicates=draw(st.sampled_from(list(Duplicates))),
        max_rows_per_key=draw(st.sampled_from([None, 1, 3, 6])),
        in_parts=draw(st.booleans()),
    )


def settings_of(rows: dict[str, str], folder: Path, max_rows: int | None = None, **views: Any) -> Settings:
    sources: dict[str, dict[str, Any]] = {
        name: {"topic": name, "table": f"{name}_ui", "key": "userId", "columns": columns, "rows": rows[name]}
        for name, columns in COLUMNS.items()
    }
    if max_rows:
        sources["users"]["max_rows"] = max_rows
    return parse({"sources": sources, "views": views}, folder, {})


def configured(case: Case, folder: Path) -> Settings:
    chain: dict[str, Any] = CHAIN | {"join": case.join.value, "duplicates": case.duplicates.value}
    chain |= {"max_rows_per_key": case.max_rows_per_key} if case.max_rows_per_key else {}
    return settings_of(case.rows, folder, case.max_rows, chain=chain, totals=TOTALS, words=WORDS)


def side(name: str, rows: list[Kept], /, **shown: str) -> tuple[oracle.Source, list[Kept]]:
    """A side of a join, with the columns that are shown of it: new name -> name in its source."""
    names = {"userId": "userId", **shown}
    source = oracle.Source(name, name, "userId", dict.fromkeys(names, "string"), latest=False)
    return source, [Kept(k.record, {new: k.row[old] for new, old in names.items()}) for k in rows]


def left_out(case: Case, rows: dict[str, list[Kept]]) -> set[str]:
    """The keys that have too many rows after one of the links."""
    sides = [
        (oracle.Source(name, name, "userId", COLUMNS[name], case.rows[name] == "latest"), rows[name])
        for name in COLUMNS
    ]
    return oracle.left_out(case.join, case.duplicates, case.max_rows_per_key, *sides)


def chained(case: Case, every: dict[str, list[Kept]]) -> list[Row]:
    """The chain, one link after the other: what a link gave is the left side of the next."""
    out = left_out(case, every)
    rows = {name: [kept for kept in some if kept.row["userId"] not in out] for name, some in every.items()}
    users = side("users", rows["users"], name="name")
    accounts = side("accounts", rows["accounts"], accounts_name="name", kind="kind")
    cards = side("cards", rows["cards"], cards_kind="kind", spent="spent")
    nobody = Sent("", 0, 0, 0, None, None)
    first = [Kept(nobody, row) for row in oracle.join_rows(*users, *accounts, case.join, case.duplicates)]
    both = side("both", first, name="name", accounts_name="accounts_name", kind="kind")
    return oracle.join_rows(*both, *cards, case.join, case.duplicates)


def totals(rows: dict[str, list[Kept]]) -> list[Row]:
    found = []
    for key in {k.row["userId"] for k in rows["users"]} - {None}:
        cards = [k.row["spent"] for k in rows["cards"] if k.row["userId"] == key]
        if cards:
            spent = [number for number in cards if number is not None]
            shown = [k.row["name"] for k in rows["users"] if k.row["userId"] == key and k.row["name"] is not None]
            total = sum(spent) if spent else None
            found.append({"userId": key, "name": max(shown, default=None), "cards": len(spent), "spent": total})
    return found


def words(rows: dict[str, list[Kept]]) -> list[Row]:
    pairs = [(k.row["userId"], k.row["kind"]) for k in rows["accounts"]]
    pairs += [(k.row["userId"], k.row["name"]) for k in rows["users"]]
    return [{"userId": key, "word": word} for key, word in pairs if key is not None]


def quality(rows: dict[str, list[Kept]], left: str, *rights: str, left_out_keys: int = 0) -> Row:
    """Counted row by row: a left row is matched when each right side has its key."""
    keys = {name: [k.row["userId"] for k in rows[name]] for name in (left, *rights)}
    matched = sum(key is not None and all(key in keys[right] for right in rights) for key in keys[left])
    right_keys = [(right, key) for right in rights for key in keys[right]]
    return {
        "leftRows": len(keys[left]),
        "rightRows": len(right_keys),
        "matched": matched,
        "unmatchedLeft": len(keys[left]) - matched,
        "unmatchedRight": sum(key is None or key not in keys[left] for _, key in right_keys),
        "duplicateRightKeys": sum(right_keys.count(pair) > 1 for pair in set(right_keys) if pair[1] is not None),
        "nullKeys": sum(key is None for name in keys for key in keys[name]),
        "leftOutKeys": left_out_keys,
    }


def compare(case: Case, fed: FedGeneration, seen: list[Sent], *, views: bool) -> None:
    rows = {}
    for name, columns in COLUMNS.items():
        most = case.max_rows if name == "users" else None
        source = oracle.Source(name, name, "userId", columns, case.rows[name] == "latest", most)
        rows[name] = oracle.shown(source, oracle.read_source(source, seen)[0])
        assert oracle.bag(fed.rows(f"{name}_ui")) == oracle.bag(k.row for k in rows[name])
    if not views:
        return
    assert oracle.bag(fed.rows("chain")) == oracle.bag(chained(case, rows))
    assert fed.identities("chain") == len(chained(case, rows))
    assert oracle.bag(fed.rows("totals")) == oracle.bag(totals(rows))
    assert oracle.bag(fed.rows("words")) == oracle.bag(words(rows))
    assert {row.pop("view"): row for row in fed.rows("join_quality")} == {
        "chain": quality(rows, "users", "accounts", "cards", left_out_keys=len(left_out(case, rows))),
        "totals": quality(rows, "users", "cards"),
        "words": quality(rows, "accounts", "users"),
    }


@settings(max_examples=VIEWS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_views_of_three_sources_equal_a_plain_computation(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if case.in_parts:
            patched.setattr("turnout.spark.writing.SMALL_BATCH", 0)
            patched.setattr("turnout.spark.writing.PART_ROWS", TaskSize(PART_ROWS, PART_ROWS // 3))
        before = Offsets({(source, partition): 0 for source in COLUMNS for partition in range(2)})
        target = case.course.target(before)
        fed = FedGeneration(spark, configured(case, Path(folder)), Path(folder), before, target)
        case.course.play(fed, before, partial(compare, case, fed))


def test_rows_of_an_own_view_are_told_apart_and_change_in_place(spark: SparkSession, tmp_path: Path) -> None:
    """A subscriber knows a row by its key and its number there; the row of a key with one row is changed, not anew."""
    before = Offsets({(source, 0): 0 for source in COLUMNS})
    rows = dict.fromkeys(COLUMNS, "all")
    fed = FedGeneration(spark, settings_of(rows, tmp_path, totals=TOTALS), tmp_path, before, before)
    ids = []
    user = Sent("users", 0, 0, 0, None, b'{"userId": "1", "name": "a"}')
    for number in range(2):
        card = Sent("cards", 0, number, 0, None, b'{"userId": "1", "spent": 5}')
        end = Offsets({("users", 0): 1, ("accounts", 0): 0, ("cards", 0): number + 1})
        fed.feed(number, [card] if number else [user, card], end)
        with fed.database.read() as cursor:
            ids.append(cursor.execute("SELECT _row, spent FROM totals").fetchall())
    fed.database.close()
    (first, five), (second, ten) = (found for (found,) in ids)
    assert first == second
    assert (five, ten) == (5, 10)


def test_file_of_the_how_to_page_is_a_good_one(spark: SparkSession, tmp_path: Path) -> None:
    from turnout.spark.views.own_sql import check_own_views

    page = Path(__file__).parents[2] / "docs" / "how-to" / "views.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    settings = parse(parse_yaml(found[1])[0], tmp_path, {})
    check_own_views(spark, layout_of(settings, first_plan(settings)).views)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT userId, count(*) OVER () AS n FROM users", "depend on rows of others"),
        ("SELECT u.userId, 1 AS n FROM users u JOIN cards c ON u.name = c.kind", "depend on rows of others"),
        ("SELECT userId, 1 AS n FROM users LIMIT 100", "depend on rows of others"),
        ("SELECT userId, CAST(rand() * 9 AS BIGINT) AS n FROM users", "depends on chance"),
        ("SELECT userId, 1 AS n FROM nowhere", "nowhere"),
        ("SELECT userId, nonsense AS n FROM users", "nonsense"),
        ("DROP TABLE users", "Syntax error"),
    ],
)
def test_own_sql_that_cannot_be_kept_up_to_date_is_refused(
    spark: SparkSession, tmp_path: Path, sql: str, reason: str
) -> None:
    from turnout.spark.views.own_sql import check_own_views

    view = {"sources": ["users", "cards"], "on": "userId", "sql": sql, "columns": {"userId": "string", "n": "int64"}}
    settings = settings_of(dict.fromkeys(COLUMNS, "all"), tmp_path, bad=view)
    with pytest.raises(TurnoutError) as caught:
        check_own_views(spark, layout_of(settings, first_plan(settings)).views)
    assert caught.value.message.startswith("views.bad.sql: ")
    assert reason in caught.value.message


def test_own_sql_that_computes_nonsense_of_a_record_gives_null(spark: SparkSession, tmp_path: Path) -> None:
    view = {
        "sources": "users",
        "on": "userId",
        "sql": "SELECT userId, 1 / CAST(name AS INT) AS n FROM users",
        "columns": {"userId": "string", "n": "double"},
    }
    before = Offsets({(source, 0): 0 for source in COLUMNS})
    settings = settings_of(dict.fromkeys(COLUMNS, "all"), tmp_path, odd=view)
    fed = FedGeneration(spark, settings, tmp_path, before, before)
    sent = [
        Sent("users", 0, number, 0, None, json.dumps({"userId": "1", "name": name}).encode())
        for number, name in enumerate(["zero", "0", "4"])
    ]
    fed.feed(0, sent, Offsets({("users", 0): 3, ("accounts", 0): 0, ("cards", 0): 0}))
    assert sorted((row["n"] for row in fed.rows("odd")), key=repr) == [0.25, None, None]
    fed.database.close()
