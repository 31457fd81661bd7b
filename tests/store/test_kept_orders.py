"""Orders that are kept: what they answer is what a plain read answers, and they are scanned no more than needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filled_store import GOLD_1, USER_1, USER_2, Filling, filled, settings_of
from lengths import ORDERS_EXAMPLES
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.plan.where import parse_sort, parse_terms
from turnout.store.database import Database
from turnout.store.query import kept_orders
from turnout.store.query.kept_orders import KeptOrders
from turnout.store.query.window_rows import track_window
from turnout.store.query.windows import Window, WindowResult, read_window


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    with filled(tmp_path) as made:
        yield made


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Window]:
    """The windows that were read to be kept."""
    read: list[Window] = []

    def noted(database: Database, window: Window) -> Any:
        read.append(window)
        return track_window(database, window)

    monkeypatch.setattr(kept_orders, "track_window", noted)
    return read


def window(where: str = "", sort: str = "", *, offset: int = 0, limit: int = 2, **rest: Any) -> Window:
    table = rest.pop("table", "final_ui")
    return Window(table, where=parse_terms(where), sort=parse_sort(sort), offset=offset, limit=limit, **rest)


def found(kept: KeptOrders, filling: Filling, asked: Window) -> bool:
    """Whether the window is kept; it then is what a plain read answers, identities included."""
    answer = kept.find(filling.database, asked)
    if answer is None:
        return False
    plain, tracked = read_window(filling.database, asked), track_window(filling.database, asked)
    assert told(answer.result) == told(plain)
    assert repr(answer.rows.to_pylist()) == repr(tracked.rows.to_pylist())
    assert answer.order == tracked.order
    return True


def told(result: WindowResult) -> tuple[object, ...]:
    """All of it; by its text, because NaN equals nothing."""
    place = result.table, result.position, result.total
    return *place, result.columns, result.rows.schema, repr(result.rows.to_pylist())


def users(*ages: int) -> list[dict[str, Any]]:
    return [{"userId": f"n{age}", "name": f"N{age}", "email": None, "age": age} for age in ages]


def test_order_is_kept_when_it_is_read_again_and_scanned_once(filling: Filling, scans: list[Window]) -> None:
    kept, asked = KeptOrders(filling.database.feed), window("age >= 30", "-age")
    assert not found(kept, filling, asked)
    assert not filling.database.feed.wanted, "an order that is read once costs no batch anything"
    assert all(found(kept, filling, asked) for _ in range(3))
    for age in (60, 20, 70):
        filling.batch(users=users(age))
        assert found(kept, filling, asked)
    assert len(scans) == 1


def test_windows_of_one_order_share_it_whatever_they_show_of_it(filling: Filling, scans: list[Window]) -> None:
    filling.batch(users=users(*range(30, 60)))
    kept = KeptOrders(filling.database.feed)
    found(kept, filling, window(sort="age"))
    assert found(kept, filling, window(sort="age"))
    assert found(kept, filling, window(sort="age", offset=20, limit=50, columns=("age", "name")))
    assert found(kept, filling, window(sort="age", limit=0))
    assert not found(kept, filling, window(sort="-age"))
    assert len(scans) == 1


def test_window_below_the_rows_that_are_kept_is_read_with_as_many_again(
    filling: Filling, scans: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_orders, "SPARE_ROWS", 1)
    filling.batch(users=users(*range(30, 60)))
    kept = KeptOrders(filling.database.feed)
    assert not found(kept, filling, window(sort="age"))
    assert all(found(kept, filling, window(sort="age", offset=offset)) for offset in (0, 2, 4, 6, 8, 10))
    assert [scan.limit for scan in scans] == [5, 13]


def test_order_whose_kept_rows_leave_it_is_read_again(
    tmp_path: Path, scans: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_orders, "SPARE_ROWS", 0)
    filling = Filling(Database.open(tmp_path), settings_of("latest"))
    filling.swap(users=users(*range(30, 60)))
    kept, asked = KeptOrders(filling.database.feed), window(sort="age")
    assert [found(kept, filling, asked) for _ in range(2)] == [False, True]
    filling.batch(users=[{**row, "age": 99} for row in users(30, 31, 32)])
    assert found(kept, filling, asked)
    assert len(scans) == 2
    filling.database.close()


def test_order_is_of_the_generation_that_is_published(filling: Filling, scans: list[Window]) -> None:
    kept = KeptOrders(filling.database.feed)
    asked, of_first = window(sort="age"), window(sort="age", table="final_ui@1")
    assert [found(kept, filling, each) for each in (asked, asked, of_first, of_first)] == [False, True, False, True]
    filling.swap(users=users(41))
    assert all(found(kept, filling, each) for each in (asked, of_first))
    filling.drop(1)
    assert found(kept, filling, asked)
    with pytest.raises(TurnoutError):
        read_window(filling.database, of_first)
    assert kept.find(filling.database, of_first) is None, "who asks finds out by itself"
    assert len(scans) == 4


def test_order_is_kept_after_a_rollback_too(filling: Filling, scans: list[Window]) -> None:
    kept, asked, first = KeptOrders(filling.database.feed), window(sort="age"), filling.tables
    filling.swap(users=users(41))
    assert [found(kept, filling, asked) for _ in range(2)] == [False, True]
    assert first is not None
    with filling.database.write() as cursor:
        first.publish(cursor)
    assert all(found(kept, filling, asked) for _ in range(3))
    assert len(scans) == 2


def test_order_that_nobody_reads_is_forgotten_and_costs_no_batch_anything(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_orders, "MAX_CHANGES", 2)
    kept, asked = KeptOrders(filling.database.feed), window(sort="age")
    assert [found(kept, filling, asked) for _ in range(2)] == [False, True]
    for age in range(40, 42):
        filling.batch(users=users(age))
        assert "final_ui" in filling.database.feed.wanted
    filling.batch(users=users(42))
    assert not filling.database.feed.wanted


def test_orders_are_as_many_as_may_be_and_the_one_read_last_stays(
    filling: Filling, scans: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_orders, "MAX_ORDERS", 2)
    kept, orders = KeptOrders(filling.database.feed), [window(sort=sort) for sort in ("age", "name", "balance")]
    assert [found(kept, filling, asked) for asked in [*orders, *orders]] == [False] * 3 + [True] * 3
    assert all(found(kept, filling, asked) for asked in orders[1:])
    assert len(scans) == 3
    assert found(kept, filling, orders[0])
    assert len(scans) == 4


def test_order_of_large_rows_is_not_kept(
    filling: Filling, scans: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_orders, "MAX_BYTES", 1_600)
    kept, asked = KeptOrders(filling.database.feed), window(sort="age")
    assert [found(kept, filling, asked) for _ in range(3)] == [False, True, True]
    assert len(scans) == 2
    assert not filling.database.feed.wanted


def test_order_with_a_fault_is_for_who_asked_to_find(filling: Filling) -> None:
    kept = KeptOrders(filling.database.feed)
    for _ in range(3):
        assert kept.find(filling.database, window(sort="nope")) is None
        assert kept.find(filling.database, window(table="nope")) is None
    assert not filling.database.feed.wanted
    found(kept, filling, window(sort="age"))
    assert found(kept, filling, window(sort="age"))
    with pytest.raises(TurnoutError, match="no column 'nope'"):
        kept.find(filling.database, window(sort="age", columns=("nope",)))


def test_windows_that_are_far_down_or_whole_or_of_large_filters_are_not_kept(filling: Filling) -> None:
    kept, many = KeptOrders(filling.database.feed), f"age in ({', '.join(map(str, range(99)))})"
    for asked in (window(offset=2_000), Window("final_ui"), window(many), window(table="join_quality")):
        assert [found(kept, filling, asked) for _ in range(3)] == [False] * 3
    assert not filling.database.feed.wanted


def test_batch_that_is_undone_changes_nothing(filling: Filling, scans: list[Window]) -> None:
    kept, asked = KeptOrders(filling.database.feed), window(sort="-age")
    assert [found(kept, filling, asked) for _ in range(2)] == [False, True]
    tables = filling.tables
    assert tables is not None
    with pytest.raises(ZeroDivisionError), tables.batch(7) as batch:
        assert batch is not None
        batch.load(filling._decoded({"users": users(90)}))
        raise ZeroDivisionError
    assert found(kept, filling, asked)
    filling.batch(users=users(91))
    assert found(kept, filling, asked)
    assert len(scans) == 1


# -- the property: whatever happens, what is kept is what a plain read answers

_KEYS = st.sampled_from(["a", "b", "c", "d", None])
_USERS = st.builds(
    lambda key, age: {"userId": key, "name": f"n{age}", "email": None, "age": age},
    _KEYS,
    st.one_of(st.none(), st.integers(0, 3)),
)
_ACCOUNTS = st.builds(
    lambda key, balance: {"userId": key, "accountType": "x", "balance": balance},
    _KEYS,
    st.sampled_from([0.0, 1.5, float("nan"), None]),
)
_BATCH = st.tuples(
    st.just("batch"), st.lists(st.one_of(st.none(), _USERS), max_size=4), st.lists(_ACCOUNTS, max_size=4)
)
_SWAP = st.tuples(
    st.just("swap"), st.sampled_from([Join.LEFT, Join.INNER, Join.FULL, Join.RIGHT]), st.lists(_USERS, max_size=3)
)
_WINDOWS = (
    window(sort="-age,name", limit=3),
    window("age >= 2", offset=1),
    window("userId is not null", "userId", limit=100),
    window(sort="-balance", limit=1, columns=("balance", "userId")),
    window("balance != 1.5", limit=0),
    window(table="users_ui", sort="age"),
    window("userId in (a, b)", table="accounts_ui"),
    window(sort="name", table="final_ui@1"),
    window("* contains 2", "-age", limit=2),
    window('_row = "2"', table="users_ui"),
)
_READ = st.tuples(st.just("read"), st.sampled_from(_WINDOWS))
_STEPS = st.lists(st.one_of(_BATCH, _BATCH, _READ, _READ, _READ, _SWAP, st.just(("rollback",))), max_size=25)


@settings(max_examples=ORDERS_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.sampled_from(["all", "latest"]),
    max_rows=st.sampled_from([None, 3]),
    limits=st.fixed_dictionaries(
        {
            "SPARE_ROWS": st.sampled_from([0, 1, 100]),
            "MAX_CHANGES": st.sampled_from([1, 32]),
            "MAX_CHANGED_ROWS": st.sampled_from([3, 50_000]),
            "MAX_ORDERS": st.sampled_from([2, 100]),
        }
    ),
    steps=_STEPS,
)
def test_kept_orders_are_what_plain_reads_answer(
    tmp_path_factory: pytest.TempPathFactory,
    rows: str,
    max_rows: int | None,
    limits: dict[str, int],
    steps: list[Any],
) -> None:
    database = Database.open(tmp_path_factory.mktemp("store"))
    filling = Filling(database, settings_of(rows, max_rows))
    filling.swap(users=[USER_1, USER_2], accounts=[GOLD_1])
    kept = KeptOrders(database.feed)
    earlier = filling.tables
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in limits.items():
                patch.setattr(kept_orders, name, value)
            for step in [*steps, *(("read", each) for each in (*_WINDOWS, *_WINDOWS))]:
                if step[0] == "batch":
                    filling.batch(users=step[1], accounts=step[2])
                elif step[0] == "swap":
                    earlier = filling.tables
                    filling.swap(step[1], users=step[2])
                elif step[0] == "rollback":
                    # The generation before is shown again; batches still go to the newer one.
                    assert earlier is not None
                    with database.write() as cursor:
                        earlier.publish(cursor)
                else:
                    found(kept, filling, step[1])
    finally:
        database.close()
