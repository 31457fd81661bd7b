"""Summaries over a real store: groups, bins and values, against a plain computation in Python."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filled_store import Filling
from lengths import SUMMARY_EXAMPLES
from turnout.config import Settings
from turnout.errors import TurnoutError
from turnout.plan.where import SortKey, parse_terms
from turnout.serve.responses import result_json
from turnout.store.database import Database
from turnout.store.query import summary_read
from turnout.store.query.summary import Group, Summary, Value, parse_by, parse_order, parse_values
from turnout.store.query.summary_read import read_summary
from turnout.store.query.windows import Window, read_window

COLUMNS = {
    "userId": "string",
    "kind": "string",
    "age": "int64",
    "score": "double",
    "price": "decimal(10,2)",
    "born": "date",
    "seen": "timestamp",
}


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    database = Database.open(tmp_path_factory.mktemp("store"))
    source = {"topic": "users", "table": "users_ui", "key": "userId", "columns": COLUMNS}
    yield Filling(database, Settings.model_validate({"sources": {"users": source}, "views": {}}))
    database.close()


def row(number: int, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "userId": f"u{number}", **more}


def groups(database: Database, by: str = "", values: str = "count", **more: Any) -> list[tuple[Any, ...]]:
    found = read_summary(database, Summary("users_ui", parse_by(by), parse_values(values), **more))
    return [tuple(group.values()) for group in found.groups.to_pylist()]


def test_groups_by_a_column_with_nulls_as_a_group_of_their_own(filling: Filling) -> None:
    filling.swap(users=[row(1, kind="a", age=3), row(2, kind="a", age=4), row(3, kind=None, age=9), row(4, kind="b")])
    found = read_summary(filling.database, Summary("users_ui", parse_by("kind"), parse_values("count,sum(age)")))
    assert [tuple(group.values()) for group in found.groups.to_pylist()] == [("a", 2, 7), ("b", 1, None), (None, 1, 9)]
    assert [(column.name, column.type) for column in found.columns] == [
        ("kind", "string"),
        ("count", "int64"),
        ("sum(age)", "int64"),
    ]
    assert (found.by, found.total, found.position.version) == (("kind",), 3, 1)
    assert found.position == read_window(filling.database, Window("users_ui")).position


def test_no_by_is_one_group_also_of_an_empty_table(filling: Filling) -> None:
    filling.swap()
    assert groups(filling.database, values="count,sum(age),min(kind)") == [(0, None, None)]
    filling.swap(users=[row(1, age=1), row(2, age=2)])
    assert groups(filling.database, values="count,avg(age)") == [(2, 1.5)]


def test_values_have_the_types_that_they_should(filling: Filling) -> None:
    seen = datetime(2026, 1, 31, 12, 0, 59, tzinfo=UTC)
    filling.swap(users=[row(n, age=n, score=n / 2, price=Decimal("1.10"), seen=seen) for n in range(1, 101)])
    text = "sum(price),avg(price),p50(age),p95(age),p99(score),min(seen),p50(seen),count_distinct(price),count(born)"
    found = read_summary(filling.database, Summary("users_ui", (), parse_values(text)))
    assert [column.type for column in found.columns] == [
        *("decimal(38,2)", "double", "double", "double", "double", "timestamp", "timestamp", "int64", "int64")
    ]
    [values] = [tuple(group.values()) for group in found.groups.to_pylist()]
    assert values[:5] == (Decimal("110.00"), pytest.approx(1.1), 50.5, pytest.approx(95.05), pytest.approx(49.505))
    assert values[5:] == (seen, seen, 1, 0)


def test_bins_of_numbers_and_times_begin_at_multiples_also_below_zero(filling: Filling) -> None:
    moments = [datetime(2026, 1, 1, 0, 0, s, tzinfo=UTC) for s in (0, 59)] + [
        datetime(1969, 12, 31, 23, 59, 30, tzinfo=UTC)
    ]
    ages, scores = (-1, 0, 19), (-0.05, 0.3, 0.35)
    filling.swap(users=[row(n, age=ages[n], score=scores[n], seen=moments[n]) for n in range(3)])
    assert groups(filling.database, "age:10") == [(-10, 1), (0, 1), (10, 1)]
    assert groups(filling.database, "score:0.5") == [(-0.5, 1), (0.0, 2)]
    assert groups(filling.database, "seen:1m") == [
        (datetime(1969, 12, 31, 23, 59, tzinfo=UTC), 1),
        (datetime(2026, 1, 1, tzinfo=UTC), 2),
    ]


def test_record_time_is_there_for_tables_of_records_only(filling: Filling) -> None:
    filling.swap(users=[row(1), row(2)])
    [(first, count)] = groups(filling.database, "_time:1d")
    assert (first.tzinfo is not None, count) == (True, 2)
    with pytest.raises(TurnoutError, match="_time"):
        read_summary(filling.database, Summary("swaps", parse_by("_time:1d")))


def test_records_of_any_time_have_bins_and_all_others_stay_exact(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling.swap(users=[row(1), row(2)])
    far = (253_402_300_800_000, 2**62, -(2**62))
    for number, milliseconds in enumerate(far):
        monkeypatch.setattr("filled_store._START_MS", milliseconds)
        filling.batch(users=[row(10 + number)])
    answers = [read_summary(filling.database, Summary("users_ui", parse_by(by))) for by in ("_time", "_time:1d")]
    assert [sum(answer.groups["count"].to_pylist()) for answer in answers] == [5, 5]
    days = {group["_time:1d"]: group["count"] for group in json.loads(result_json(answers[1]))["groups"]}
    assert days["2026-01-01T00:00:00.000000Z"] == 2
    first, *_, last = days
    assert first.startswith("-290308-") and last.startswith("+294247-")


def test_bins_of_the_least_numbers_and_dates_begin_at_them(filling: Filling) -> None:
    filling.swap(users=[row(1, age=-(2**63)), row(2, age=2**63 - 1), row(3, age=-5), row(4, score=1e308)])
    assert groups(filling.database, "age:10") == [(-(2**63), 1), (-10, 1), (2**63 - 8, 1), (None, 1)]
    assert groups(filling.database, "age:999999999999999999")[0] == (-(2**63), 1)
    assert len(groups(filling.database, "score:0.000000000001")) == 2


def test_sort_and_limit_choose_among_all_groups(filling: Filling) -> None:
    filling.swap(users=[row(n, kind="abc"[n % 3 if n < 6 else 2]) for n in range(10)])
    found = read_summary(filling.database, Summary("users_ui", parse_by("kind"), sort=parse_order("-count"), limit=1))
    assert (found.groups.to_pylist(), found.total) == ([{"kind": "c", "count": 6}], 3)
    assert groups(filling.database, "kind", "sum(age),count", sort=parse_order("-sum(age),-count"))[0] == ("c", None, 6)


def test_where_is_the_filter_of_windows(filling: Filling) -> None:
    filling.swap(users=[row(n, age=n) for n in range(10)])
    assert groups(filling.database, where=parse_terms("age >= 7")) == [(3,)]


def test_too_many_groups_are_refused(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    filling.swap(users=[row(n) for n in range(11)])
    monkeypatch.setattr(summary_read, "MAX_GROUPS", 10)
    with pytest.raises(TurnoutError, match="11 groups, more than 10") as caught:
        groups(filling.database, "userId", limit=1)
    assert caught.value.code == "too_many_groups"


def test_a_sum_that_fits_no_column_is_refused(filling: Filling) -> None:
    filling.swap(users=[row(1, age=2**63 - 1), row(2, age=1)])
    with pytest.raises(TurnoutError, match="does not fit"):
        groups(filling.database, values="sum(age)")


@pytest.mark.parametrize(
    ("by", "values", "code", "text"),
    [
        ("nope", "count", "bad_by", "no column 'nope'"),
        ("kind:10", "count", "bad_by", "string has no bins"),
        ("age:0", "count", "bad_by", "no width"),
        ("age:1m", "count", "bad_by", "without a unit"),
        ("seen:60", "count", "bad_by", "has a unit"),
        ("_time:999999999999999999d", "count", "bad_by", "days at most"),
        ("born:999999999999999999d", "count", "bad_by", "days at most"),
        ("born:1h", "count", "bad_by", "whole days"),
        ("kind,kind", "count", "bad_by", "twice"),
        ("kind,age,score,price", "count", "bad_by", "more than 3"),
        ("kind age", "count", "bad_by", "comma"),
        ("kind", "sum(kind)", "bad_values", "needs a number"),
        ("kind", "sum(nope)", "bad_values", "no column 'nope'"),
        ("kind", "median(age)", "bad_values", "no function 'median'"),
        ("kind", "sum(age", "bad_values", "not closed"),
        ("kind", "sum", "bad_values", "not a function of a column"),
        ("kind", 'sum("age"); drop table x', "bad_values", "comma"),
        ("_id", "count", "bad_by", "no column '_id'"),
        ("kind", "max(_ts)", "bad_values", "no column '_ts'"),
    ],
)
def test_bad_input_names_place_and_remedy(filling: Filling, by: str, values: str, code: str, text: str) -> None:
    filling.swap(users=[row(1)])
    with pytest.raises(TurnoutError, match=text) as caught:
        groups(filling.database, by, values)
    assert caught.value.code == code
    assert caught.value.hint


def test_texts_are_read_with_quotes_and_widths() -> None:
    assert parse_by('a, "b,c:d":10 ,`e`:1.5m') == (
        Group("a"),
        Group("b,c:d", Decimal(10)),
        Group("e", Decimal("1.5"), "m"),
    )
    assert parse_values('COUNT, sum( "a)b" ), count(*)') == (Value("count"), Value("sum", "a)b"))
    assert parse_values("") == (Value("count"),)
    assert parse_order('-SUM( balance ), +age:10, "a,b" ,-"sum(x)"') == (
        *(SortKey("sum(balance)", descending=True), SortKey("age:10"), SortKey("a,b")),
        SortKey("sum(x)", descending=True),
    )


@pytest.mark.parametrize("text", ["-sum(age", "nothing(age)", "age count", "-"])
def test_an_order_that_is_wrong_is_refused_as_such(text: str) -> None:
    with pytest.raises(TurnoutError, match=r"^sort") as caught:
        parse_order(text)
    assert caught.value.code == "bad_sort"


NUMBERS = st.one_of(st.none(), st.integers(-50, 50))
PEOPLE = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), NUMBERS, st.one_of(st.none(), st.decimals(-99, 99, places=2))),
    max_size=30,
)


@given(PEOPLE, st.sampled_from([1, 3, 10]))
@settings(deadline=None, max_examples=SUMMARY_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_groups_are_those_of_a_plain_computation(filling: Filling, people: list[Any], width: int) -> None:
    filling.swap(users=[row(n, kind=kind, age=age, price=price) for n, (kind, age, price) in enumerate(people)])
    expected: dict[Any, list[Any]] = defaultdict(list)
    for kind, age, price in people:
        expected[kind, None if age is None else math.floor(age / width) * width].append((age, price))
    found = {
        tuple(group[:2]): group[2:]
        for group in groups(
            filling.database,
            f"kind,age:{width}",
            "count,sum(age),sum(price),count_distinct(age),p50(age)",
            limit=10_000,
        )
    }
    assert found.keys() == expected.keys()
    for key, members in expected.items():
        ages = [age for age, _ in members if age is not None]
        prices = [price for _, price in members if price is not None]
        middle = median(ages) if ages else None
        plain = (len(members), sum(ages) if ages else None, sum(prices) if prices else None, len(set(ages)), middle)
        assert found[key] == plain
