"""The tables of a generation, without Spark: what a batch does when it has nothing to do."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lengths import PARTS_EXAMPLES
from turnout.config import parse
from turnout.config.tables import first_plan, layout_of
from turnout.decode.decoder import Decoded
from turnout.errors import TurnoutError
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.tables import ViewTable
from turnout.store.batch_rows import BatchRows, hash_sql
from turnout.store.batches import Batch, Progress
from turnout.store.database import Database, scalar
from turnout.store.generation_tables import GenerationTables
from turnout.store.query.windows import Window, read_window
from turnout.store.views.parts import Files
from turnout.store.views.view_rows import JoinedRows
from turnout.testing import patience


@pytest.fixture
def tables(tmp_path: Path) -> GenerationTables:
    parsed = parse({}, tmp_path, {})
    made = GenerationTables(Database.open(tmp_path), 3, layout_of(parsed, first_plan(parsed)))
    with made.database.write() as cursor:
        made.create(cursor, views_built=True)
        made.publish(cursor)
    return made


def test_batch_without_records_moves_on_and_has_no_dead_letters(tables: GenerationTables) -> None:
    with tables.batch(0) as batch:
        assert batch is not None
        batch.load(Decoded({}))
        assert batch.dead_letters() is None
        assert [batch.view(view).touched() for view in tables.layout.views] == [False]
        batch.finish(0, '{"users": {"0": 7}}', views_built=True)
    assert tables.progress() == Progress(0, '{"users": {"0": 7}}', 0, True)


def test_batch_that_is_in_the_store_already_is_skipped(tables: GenerationTables) -> None:
    with tables.batch(4) as batch:
        assert batch is not None
        batch.finish(4, "{}", views_built=True)
    with tables.batch(4) as replayed:
        assert replayed is None


def test_batch_that_fails_leaves_nothing(tables: GenerationTables) -> None:
    with pytest.raises(RuntimeError), tables.batch(0) as batch:
        assert batch is not None
        batch.finish(0, "{}", views_built=True)
        raise RuntimeError("killed")
    assert tables.progress() == Progress(-1, "{}", 0, True)


def test_published_tables_have_the_declared_columns_only(tables: GenerationTables) -> None:
    window = read_window(tables.database, Window("final_ui"))
    assert [column.name for column in window.columns] == ["userId", "name", "email", "age", "accountType", "balance"]
    assert (window.position.generation, window.total) == (3, 0)


def catching_up(folder: Path, **sections: Any) -> GenerationTables:
    parsed = parse(sections, folder, {})
    made = GenerationTables(Database.open(folder), 1, layout_of(parsed, first_plan(parsed)))
    with made.database.write() as cursor:
        made.create(cursor, views_built=False)
        made.publish(cursor)
    return made


def plain(**columns: list[Any] | pa.Array) -> pa.Table:
    """Rows as the workers of a catch-up return them."""
    count = len(next(iter(columns.values())))
    table = pa.table(columns)
    times = pa.array(range(count), pa.int64())
    return table.append_column("_id", pa.array(range(count), pa.int64())).append_column("_ts", times)


def decoded(rows: dict[int, pa.Table]) -> Decoded:
    nothing = {0: USERS.slice(0, 0), 1: ACCOUNTS.slice(0, 0)}
    return Decoded(rows=nothing | rows, records=max(table.num_rows for table in rows.values()))


USERS = plain(userId=["a", "b", None], name=["Ann", "Ben", "Nil"], email=["x", None, "z"], age=[1, 2, 3])
ACCOUNTS = plain(userId=["a", "c"], accountType=["gold", "basic"], balance=[1.5, 2.5])


def test_newest_record_is_the_latest_of_all_sources_also_of_rows_taken_over(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    assert tables.newest_record() is None
    with tables.database.write() as cursor:
        cursor.execute(f"INSERT INTO {tables.table('accounts_ui')} (userId, _ts) VALUES ('a', 7), ('b', 5)")
    assert (tables.newest_record(), tables.progress().records) == (7, 0)


def test_pieces_have_no_number_and_are_never_skipped(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    for expected in (3, 6):
        with tables.batch(None) as batch:
            assert batch is not None
            batch.load(decoded({0: USERS}))
            batch.finish(None, '{"users": {"0": 3}}', views_built=False)
        assert tables.progress() == Progress(-1, '{"users": {"0": 3}}', expected, False)


def test_records_of_one_topic_that_two_sources_read_count_once(tmp_path: Path) -> None:
    columns = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
    source = {"topic": "t", "key": "userId", "columns": columns}
    sources = {"users": {**source, "table": "users_ui"}, "accounts": {**source, "table": "accounts_ui"}}
    tables = catching_up(tmp_path, sources=sources)
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(decoded({0: USERS, 1: USERS}))
        assert batch.records == 3
        batch.finish(None, "{}", views_built=False)
    assert read_window(tables.database, Window("accounts_ui")).total == 3


def exported(batch: Batch, view: ViewTable, folder: Path, parts: int) -> tuple[str, list[Files]]:
    rows = batch.view(view)
    assert isinstance(rows, JoinedRows)
    return rows.export(folder, parts)


def in_memory(batch: Batch, view: ViewTable) -> dict[str, pa.Table]:
    rows = batch.view(view).few(most=1_000_000)
    assert rows is not None
    return rows


def test_parts_of_a_view_share_no_key_and_hold_every_row(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    (view,) = tables.layout.views
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(decoded({0: USERS, 1: ACCOUNTS}))
        _, parts = exported(batch, view, tmp_path, 3)
        assert len(parts) == 3
        found = [
            {name: pa.parquet.read_table(files, partitioning=None).to_pylist() for name, files in part.items()}
            for part in parts
        ]
        batch.finish(None, "{}", views_built=False)
    keys = [{row["key"] for rows in part.values() for row in rows} for part in found]
    assert len(set().union(*keys)) == sum(len(part) for part in keys) == 4
    assert sum(None in part for part in keys) == 1
    assert sorted(row["_id"] for part in found for row in part["side_0"]) == [0, 1, 2]
    assert sorted(row["_id"] for part in found for row in part["side_1"]) == [0, 1]
    assert all(set(row) == {"key", "_id"} for part in found for rows in part.values() for row in rows)


KEYS = st.sampled_from(["a", "b", "c", None])


@settings(max_examples=PARTS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    users=st.lists(KEYS, max_size=6),
    rows=st.lists(st.tuples(KEYS, st.integers(0, 2), st.integers(0, 3)), max_size=12),
    join=st.sampled_from(list(Join)),
    duplicates=st.sampled_from(list(Duplicates)),
    shift=st.sampled_from([1, 63]),
)
@example(["a", "b", None], [("a", 0, 3), ("a", 0, 1), ("b", 1, 2)], Join.LEFT, Duplicates.LATEST, 1)
@example(["a", "b", None], [("a", 0, 3), ("a", 1, 1), ("a", 1, 0)], Join.LEFT, Duplicates.LATEST, 1)
@example(["a", "b", "c"], [("a", 0, 3), ("b", 0, 0), ("c", 1, 1)], Join.FULL, Duplicates.LATEST, 63)
@example(["a"], [("b", 0, 3), ("c", 0, 0)], Join.SEMI, Duplicates.LATEST, 63)
def test_view_of_ids_with_columns_put_in_is_the_view_over_all_columns(
    tmp_path_factory: pytest.TempPathFactory,
    users: list[str | None],
    rows: list[tuple[str | None, int, int]],
    join: Join,
    duplicates: Duplicates,
    shift: int,
) -> None:
    """In memory and by parts in files; also where keys share a hash."""
    folder = tmp_path_factory.mktemp("parts")
    view_settings = {"left": "users", "right": "accounts", "on": "userId", "join": join, "duplicates": duplicates}
    tables = catching_up(folder, views={"final_ui": view_settings})
    (view,) = tables.layout.views
    texts = [str(number) for number in range(len(users))]
    left = plain(userId=pa.array(users, pa.string()), name=texts, email=texts, age=pa.array(range(len(users))))
    right = {
        "userId": pa.array([key for key, _, _ in rows], pa.string()),
        "accountType": [str(number) for number in range(len(rows))],
        "balance": pa.array([0.0] * len(rows), pa.float64()),
        "_id": pa.array([part << OFFSET_BITS | n for n, (_, part, _) in enumerate(rows)], pa.int64()),
        "_ts": pa.array([time for _, _, time in rows], pa.int64()),
    }
    table = tables.table("final_ui")
    shown = f"SELECT * EXCLUDE (_hash, _row) FROM {table} ORDER BY ALL"
    with pytest.MonkeyPatch.context() as patched, tables.batch(None) as batch:
        patched.setattr("turnout.store.views.parts.SIGN_BIT", shift)
        patched.setattr("turnout.store.views.view_rows.SIGN_BIT", shift)
        assert batch is not None
        batch.load(decoded({0: left, 1: pa.table(right)}))
        cursor = batch._cursor
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW users AS FROM {tables.table('users_ui')}")
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW accounts AS FROM {tables.table('accounts_ui')}")
        expected = f"SELECT {', '.join([*view.columns, *view.ids])} FROM (SELECT * FROM {table} LIMIT 0) "
        expected += f"UNION ALL BY NAME ({in_duckdb(view.sql)}) ORDER BY ALL"
        wide = cursor.execute(expected).fetchall()
        sql, parts = exported(batch, view, folder, 2)
        found = [
            run(sql, {name: pa.parquet.read_table(files, partitioning=None) for name, files in part.items()})
            for part in parts
        ]
        for answers in (found, None):
            batch.replace(view, answers or [run(view.narrow_sql, in_memory(batch, view))])
            assert cursor.execute(shown).fetchall() == wide
            wrong = f"SELECT count(*) FROM {table} WHERE _hash IS DISTINCT FROM {hash_sql('userId')}"
            assert cursor.execute(wrong).fetchone() == (0,)
            cursor.execute(f"DELETE FROM {table}")
        batch.finish(None, "{}", views_built=False)
    tables.database.close()


def in_duckdb(sql: str) -> str:
    """DuckDB has these joins by another name."""
    return sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")


def run(sql: str, rows: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for relation, table in rows.items():
            connection.register(relation, table)
        return connection.sql(in_duckdb(sql)).to_arrow_table()


def test_view_of_the_newest_needs_only_the_newest_of_each_partition(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    (view,) = tables.layout.views
    accounts = plain(userId=["a", "a", "c"], accountType=["x", "y", "z"], balance=[1.0, 2.0, 3.0])
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(decoded({0: USERS, 1: accounts}))
        sql, (part,) = exported(batch, view, tmp_path, 1)
        assert sql == view.narrow_sql_if_unique
        rows = pa.parquet.read_table(part["side_1"], partitioning=None)
        assert sorted(rows["_id"].to_pylist()) == [1, 2]
        batch.finish(None, "{}", views_built=False)


@pytest.mark.parametrize("rows", ["all", "latest"])
def test_records_of_a_topic_made_anew_come_after_all_that_it_held(tmp_path: Path, rows: str) -> None:
    users = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
    accounts = {"userId": "string", "accountType": "string", "balance": "double"}
    sources: dict[str, Any] = {
        "users": {"topic": "u", "table": "users_ui", "key": "userId", "columns": users},
        "accounts": {"topic": "a", "table": "accounts_ui", "key": "userId", "columns": accounts, "rows": rows},
    }
    tables = catching_up(tmp_path, sources=sources)
    (view,) = tables.layout.views
    shown: list[tuple[str]] = []
    for offset, kind in ((5, "old"), (0, "new"), (1, "newer")):
        account = {"userId": ["a"], "accountType": [kind], "balance": [1.0], "_id": pa.array([offset], pa.int64())}
        account |= {"_ts": pa.array([len(shown)], pa.int64())}
        if rows == "latest":
            account |= {"_deleted": [False]}
        with tables.batch(None) as batch:
            assert batch is not None
            if kind == "new":
                batch.begin_life(view.rights[0].topic, 0)
            batch.load(decoded({1: pa.table(account)} | ({} if shown else {0: USERS})))
            batch.replace(view, [run(view.narrow_sql, in_memory(batch, view))])
            shown += batch._cursor.execute("SELECT accountType FROM g1.final_ui WHERE userId = 'a'").fetchall()
            batch._cursor.execute("DELETE FROM g1.final_ui")
            batch.finish(None, "{}", views_built=False)
    assert shown == [("old",), ("new",), ("newer",)]


def test_newest_rows_are_chosen_of_more_text_than_one_array_has(tmp_path: Path) -> None:
    """Arrow's arrays of texts end at two gigabytes; the chunks of these rows share their memory."""
    columns = {"userId": "string", "name": "string"}
    users = {"topic": "u", "table": "users_ui", "key": "userId", "columns": columns, "rows": "latest"}
    parsed = parse({"sources": {"users": users}, "views": {}}, tmp_path, {})
    (source,) = layout_of(parsed, first_plan(parsed)).sources
    count, chunks = 50, 45
    numbers = pa.array(range(count * chunks), pa.int64())
    some = {"userId": pa.array(["a"] * count), "name": pa.array(["x" * 1_000_000] * count)}
    rows = pa.table({name: pa.chunked_array([values] * chunks) for name, values in some.items()})
    rows = rows.append_column("_id", numbers).append_column("_ts", numbers)
    rows = rows.append_column("_deleted", pa.repeat(False, len(numbers))).append_column("_hash", numbers)
    with duckdb.connect() as cursor:
        batch = BatchRows(cursor, str)
        own = batch.of(source)
        own.arriving, own.replaced = rows, rows.slice(0, 0)
        batch.take_newest(source)
        assert own.replacing.select(["_id", "_shown"]).to_pylist() == [{"_id": count * chunks - 1, "_shown": True}]


def test_new_stream_counts_from_the_start(tables: GenerationTables) -> None:
    with tables.batch(4) as batch:
        assert batch is not None
        batch.finish(4, "{}", views_built=True)
    tables.number_from_start()
    with tables.batch(0) as again:
        assert again is not None
        again.finish(0, "{}", views_built=True)


def test_hashes_of_another_version_are_renewed(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    hashes = "SELECT userId, _hash FROM g1.users_ui ORDER BY ALL"
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(decoded({0: USERS}))
        batch.finish(None, "{}", views_built=False)
    with tables.database.read() as cursor:
        right = cursor.execute(hashes).fetchall()
    tables.renew()
    with tables.database.write() as cursor:
        cursor.execute("UPDATE g1.users_ui SET _hash = 0")
        cursor.execute("UPDATE g1.hashing SET probe = probe + 1")
    tables.renew()
    with tables.database.read() as cursor:
        assert cursor.execute(hashes).fetchall() == right
        assert len({value for _, value in right}) == 3


def test_store_is_closed_when_the_statements_of_other_threads_have_ended(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    began = threading.Event()
    counts: list[int] = []

    def count() -> None:
        # Where the statement had not begun, it does not run at all.
        with suppress(duckdb.ConnectionException), database.cursor() as cursor:
            began.set()
            pairs = "SELECT count(*) FROM range(20_000) AS a, range(20_000) AS b WHERE a.range + b.range > 7"
            counts.append(scalar(cursor, pairs))

    counting = threading.Thread(target=count)
    counting.start()
    assert began.wait(patience())
    database.close()
    counting.join(patience())
    assert counts in ([], [20_000**2 - 36])


def test_store_is_not_closed_for_longer_than_its_limit_while_a_statement_runs(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    began, closed = threading.Event(), threading.Event()

    def wait(_: int) -> int:
        began.set()
        assert closed.wait(patience())
        return 1

    with database.cursor() as cursor:
        cursor.create_function("wait", wait, [duckdb.sqltypes.BIGINT], duckdb.sqltypes.BIGINT)
        waiting = threading.Thread(target=lambda: scalar(cursor, "SELECT wait(1)"))
        waiting.start()
        assert began.wait(patience())
        with pytest.raises(TurnoutError, match="cannot be closed: a statement still runs after 0 s"):
            database.close(timeout_seconds=0)
        closed.set()
        waiting.join(patience())
    database.close()
