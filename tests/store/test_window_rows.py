"""Held windows against the SQL of windows: whatever changes, they are the first rows that the query answers."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengths import EXAMPLES
from turnout.plan.sql_text import quoted
from turnout.plan.where import ANY_COLUMN, Op, SortKey, Term, compile_sort, compile_where
from turnout.store.feed import Delta
from turnout.store.identity import ROW
from turnout.store.query.window_rows import KEY, DeltaQueries, Held, Order, hold
from turnout.store.query.windows import Window
from turnout.testing import patience
from turnout_client.column_types import ColumnType

_NAN, _INF = float("nan"), float("inf")
_TYPES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "text": (pa.string(), "string", ["", "a", "A", "ab", "a\0", "a\0b", "b%", "ä", "Ä", "z", "\uffff", "😀"]),
    "yes": (pa.bool_(), "boolean", [True, False]),
    "small": (pa.int32(), "int32", [-(2**31), -1, 0, 1, 2**31 - 1]),
    "large": (pa.int64(), "int64", [-(2**63), -1, 0, 1, 2**63 - 1]),
    "single": (pa.float32(), "float", [_NAN, -_INF, -1.5, -0.0, 0.0, 0.1, _INF]),
    "double": (pa.float64(), "double", [_NAN, -_INF, -1e300, -0.0, 0.0, 0.1, 1.5, _INF]),
    "exact": (pa.decimal128(9, 2), "decimal(9,2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01")]),
    "wide": (pa.decimal128(38, 10), "decimal(38,10)", [Decimal("-1e-10"), Decimal(0), Decimal(10**27)]),
    "day": (pa.date32(), "date", [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1)]),
    "at": (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
    ),
}
_COLUMNS = {name: ColumnType.parse(kind) for name, (_, kind, _) in _TYPES.items()}
_HIDDEN = {"_id": pa.int64(), "_right_id": pa.int64(), ROW: pa.string()}
_SCHEMA = pa.schema([*((name, kind) for name, (kind, _, _) in _TYPES.items()), *_HIDDEN.items()])
_TIES = ("_id", "_right_id")
_QUERIES = DeltaQueries()

Row = Mapping[str, Any]


def _values(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(_TYPES[name][2])


_ROWS = st.fixed_dictionaries({name: st.none() | _values(name) for name in _TYPES})
_SORTS = st.lists(
    st.builds(SortKey, st.sampled_from(list(_TYPES)), st.booleans()), max_size=3, unique_by=lambda k: k.column
)


@st.composite
def _terms(draw: st.DrawFn) -> Term:
    column = draw(st.sampled_from([*_TYPES, ANY_COLUMN, ROW]))
    texts = (Op.CONTAINS, Op.ICONTAINS, Op.STARTS, Op.ENDS)
    if column == ANY_COLUMN:
        return Term(column, draw(st.sampled_from(texts)), _said(draw(_values("text"))))
    if column == ROW:
        return Term(column, Op.EQ, draw(st.sampled_from("123")))
    op = draw(st.sampled_from([op for op in Op if column == "text" or op not in texts]))
    if op in (Op.NULL, Op.NOT_NULL):
        return Term(column, op)
    if op in (Op.IN, Op.NOT_IN):
        return Term(column, op, tuple(map(_said, draw(st.lists(_values(column), min_size=1, max_size=3)))))
    return Term(column, op, _said(draw(_values(column))))


def _said(value: Any) -> Any:
    """A value as people give it."""
    return value.isoformat() if isinstance(value, date) else value


_WINDOWS = st.builds(Window, st.just("t"), where=st.lists(_terms(), max_size=2).map(tuple), sort=_SORTS.map(tuple))
_CHANGES = st.tuples(st.lists(st.integers(0, 11), max_size=4), st.lists(_ROWS, max_size=4), st.lists(_ROWS, max_size=4))


class Oracle:
    """A table in DuckDB, and what windows of it are by their SQL."""

    # One for all: opening a database takes longer than what is asked of it.
    _connection = duckdb.connect(config={"threads": 1})
    _connection.execute("SET TimeZone = 'UTC'")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._next = 0

    def insert(self, rows: Iterable[Row]) -> list[Row]:
        made: list[Row] = []
        for row in rows:
            self._next += 1
            made.append({**row, "_id": self._next, "_right_id": None, ROW: str(self._next)})
        self.rows |= {row["_id"]: row for row in made}
        return made

    def change(self, places: Sequence[int], updated: Sequence[Row], inserted: Sequence[Row]) -> Delta:
        """Take some rows away, give the first of them other values, and add rows."""
        known = list(self.rows)
        ids = list(dict.fromkeys(known[place % len(known)] for place in places)) if known else []
        gone = [self.rows.pop(number) for number in ids]
        changed = [{**old, **new} for old, new in zip(gone, updated, strict=False)]
        self.rows |= {row["_id"]: row for row in changed}
        return Delta(_table(gone), _table([*changed, *self.insert(inserted)]))

    def select(self, window: Window, order: Order) -> pa.Table:
        """All rows of a window, in order."""
        condition, parameters = compile_where(window.where, _COLUMNS)
        names = ", ".join([*map(quoted, _TYPES), f"{order.key} AS {KEY}", ROW])
        self._connection.register("now", _table(self.rows.values()))
        # A table as in the store: DuckDB hands filters on Arrow tables to Arrow, which compares NaN otherwise.
        self._connection.execute("CREATE OR REPLACE TABLE t AS FROM now")
        sorting = compile_sort(window.sort, _COLUMNS, _TIES)
        return self._connection.sql(
            f"SELECT {names} FROM t WHERE {condition} ORDER BY {sorting}", params=parameters
        ).to_arrow_table()


def _table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), _SCHEMA)


def _told(rows: pa.Table | pa.RecordBatch) -> str:
    """Rows as a text in which NaN equals itself; DuckDB itself takes -0.0 for 0.0 in a column that it sorts by."""
    return re.sub(r"-0\.0\b", "0.0", repr(rows.to_pylist()))


def _same(held: Held, answer: pa.Table) -> None:
    expected = answer.slice(0, held.rows.num_rows)
    assert held.total == answer.num_rows
    assert _told(held.rows) == _told(expected)
    if held.bound is None:
        assert held.rows.num_rows == answer.num_rows


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    start=st.lists(_ROWS, max_size=8),
    windows=st.lists(_WINDOWS, min_size=1, max_size=4),
    most=st.integers(1, 6),
    changes=st.lists(_CHANGES, min_size=1, max_size=5),
)
def test_held_rows_are_the_first_of_the_query_after_any_change(
    start: list[Row], windows: list[Window], most: int, changes: list[Any]
) -> None:
    oracle = Oracle()
    oracle.insert(start)
    orders = [Order.of(window, _COLUMNS, _TIES) for window in windows]
    answers = [oracle.select(window, order) for window, order in zip(windows, orders, strict=True)]
    helds = [hold(answer.slice(0, most), most, answer.num_rows) for answer in answers]
    for change in changes:
        sifted = _QUERIES.sift(oracle.change(*change), orders)
        for number, (window, order) in enumerate(zip(windows, orders, strict=True)):
            answer = oracle.select(window, order)
            held = helds[number] = sifted.advance(helds[number], order, most)
            assert held.rows.num_rows <= most
            _same(held, answer)
            if not held.rows.num_rows:
                helds[number] = hold(answer.slice(0, most), most, answer.num_rows)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    start=st.lists(_ROWS, min_size=4, max_size=12),
    window=_WINDOWS,
    offset=st.integers(0, 4),
    limit=st.integers(0, 4),
    change=_CHANGES,
)
def test_change_that_does_not_concern_a_window_leaves_its_rows(
    start: list[Row], window: Window, offset: int, limit: int, change: Any
) -> None:
    oracle = Oracle()
    oracle.insert(start)
    order = Order.of(window, _COLUMNS, _TIES)
    before = oracle.select(window, order)
    held = hold(before.slice(offset, limit), limit, before.num_rows)
    sifted = _QUERIES.sift(oracle.change(*change), [order])
    after = oracle.select(window, order)
    assert sifted.total(held, order) == after.num_rows
    if not sifted.concerns(held, order):
        assert _told(held.rows) == _told(after.slice(offset, limit))


def test_order_without_columns_is_a_key_too() -> None:
    assert Order.of(Window("t"), _COLUMNS, ()).key == "CAST('' AS BLOB)"


@pytest.mark.parametrize("most", [1, 3])
def test_held_rows_keep_no_more_memory_than_they_need(most: int) -> None:
    large = _table([{"text": "x" * 1000, "_id": number, ROW: str(number)} for number in range(2000)])
    rows = large.append_column(KEY, pa.array([b"k"] * 2000))
    held = hold(rows.slice(0, most), most, 2000)
    assert sum(column.get_total_buffer_size() for column in held.rows.columns) < 10_000


def test_forked_child_leaves_the_databases_of_other_threads_alone() -> None:
    """Python frees what is of other threads alone; a database that is freed in a child waits there for threads."""
    delta = Delta(_SCHEMA.empty_table(), _SCHEMA.empty_table())
    calculated, over = threading.Event(), threading.Event()

    def calculate() -> None:
        _QUERIES.change_set(delta, ["text"])
        calculated.set()
        over.wait(patience())

    thread = threading.Thread(target=calculate)
    thread.start()
    assert calculated.wait(patience())
    child = subprocess.Popen([sys.executable, "-c", ""], preexec_fn=lambda: None)
    ended = child.wait(patience())
    over.set()
    thread.join()
    assert ended == 0
