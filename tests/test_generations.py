"""The tables of a generation, without Spark: what a batch does when it has nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from turnout.config import parse
from turnout.layout import Layout
from turnout.plan import Plan
from turnout.store.batches import Progress
from turnout.store.database import Database
from turnout.store.generations import GenerationTables
from turnout.store.windows import Window, read_window


@pytest.fixture
def tables(tmp_path: Path) -> GenerationTables:
    settings = parse({}, tmp_path, {})
    made = GenerationTables(Database.open(tmp_path), 3, Layout.of(settings, Plan.from_settings(settings)))
    with made.database.write() as cursor:
        made.create(cursor, views_built=True)
        made.publish(cursor)
    return made


def test_batch_without_records_moves_on_and_has_no_dead_letters(tables: GenerationTables) -> None:
    with tables.batch(0) as batch:
        assert batch is not None
        batch.load(pa.table({}))
        assert batch.dead_letters() is None
        assert [batch.affected(view) for view in tables.layout.views] == [None]
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
    assert (window.generation, window.total) == (3, 0)


def catching_up(folder: Path, **sections: Any) -> GenerationTables:
    settings = parse(sections, folder, {})
    made = GenerationTables(Database.open(folder), 1, Layout.of(settings, Plan.from_settings(settings)))
    with made.database.write() as cursor:
        made.create(cursor, views_built=False)
        made.publish(cursor)
    return made


def plain(**columns: list[Any]) -> pa.Table:
    """Rows as the workers of a catch-up return them."""
    count = len(next(iter(columns.values())))
    table = pa.table(columns)
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    return table.append_column("_id", pa.array(range(count), pa.int64())).append_column("_ts", times)


USERS = plain(userId=["a", "b", None], name=["Ann", "Ben", "Nil"], email=["x", None, "z"], age=[1, 2, 3])
ACCOUNTS = plain(userId=["a", "c"], accountType=["gold", "basic"], balance=[1.5, 2.5])


def test_pieces_have_no_number_and_are_never_skipped(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    for expected in (3, 6):
        with tables.batch(None) as batch:
            assert batch is not None
            batch.load(None, {0: USERS})
            batch.finish(None, '{"users": {"0": 3}}', views_built=False)
        assert tables.progress() == Progress(-1, '{"users": {"0": 3}}', expected, False)


def test_records_of_one_topic_that_two_sources_read_count_once(tmp_path: Path) -> None:
    columns = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
    source = {"topic": "t", "key": "userId", "columns": columns}
    sources = {"users": {**source, "table": "users_ui"}, "accounts": {**source, "table": "accounts_ui"}}
    tables = catching_up(tmp_path, sources=sources)
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(None, {0: USERS, 1: USERS})
        assert batch.result.records == 3
        batch.finish(None, "{}", views_built=False)
    assert read_window(tables.database, Window("accounts_ui")).total == 3


def test_parts_of_a_view_share_no_key_and_hold_every_row(tmp_path: Path) -> None:
    tables = catching_up(tmp_path)
    (view,) = tables.layout.views
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(None, {0: USERS, 1: ACCOUNTS})
        parts = batch.export(view, tmp_path, 3)
        assert len(parts) == 3
        found = [
            {name: pa.parquet.read_table(files, partitioning=None).to_pylist() for name, files in part.items()}
            for part in parts
        ]
        batch.finish(None, "{}", views_built=False)
    keys = [{row["userId"] for rows in part.values() for row in rows} for part in found]
    assert sorted(str(key) for part in keys for key in part) == ["None", "a", "b", "c"]
    assert sum(len(part["users"]) for part in found) == 3
    assert all(set(row) == {"userId", "accountType", "balance", "_id", "_ts"} for p in found for row in p["accounts"])


@pytest.mark.parametrize(("keys", "unique"), [(["a", "c"], True), (["a", "a"], False), ([None, None], True)])
def test_right_keys_are_unique_where_no_two_rows_have_one(tmp_path: Path, keys: list[str], unique: bool) -> None:
    tables = catching_up(tmp_path)
    rows = plain(userId=pa.array(keys, pa.string()), accountType=["x", "y"], balance=[1.0, 2.0])
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(None, {1: rows})
        assert batch.right_keys_unique(tables.layout.views[0]) == unique
        batch.finish(None, "{}", views_built=False)


def test_new_stream_counts_from_the_start(tables: GenerationTables) -> None:
    with tables.batch(4) as batch:
        assert batch is not None
        batch.finish(4, "{}", views_built=True)
    tables.number_from_start()
    with tables.batch(0) as again:
        assert again is not None
        again.finish(0, "{}", views_built=True)


@pytest.mark.parametrize("lost", ["UPDATE g1.hashing SET probe = probe + 1", "DROP TABLE g1.hashing"])
def test_hashes_of_another_version_are_renewed(tmp_path: Path, lost: str) -> None:
    tables = catching_up(tmp_path)
    hashes = "SELECT userId, _hash FROM g1.users_ui ORDER BY ALL"
    with tables.batch(None) as batch:
        assert batch is not None
        batch.load(None, {0: USERS})
        batch.finish(None, "{}", views_built=False)
    with tables.database.read() as cursor:
        right = cursor.execute(hashes).fetchall()
    tables.renew_hashes()
    with tables.database.write() as cursor:
        cursor.execute("UPDATE g1.users_ui SET _hash = 0")
        cursor.execute(lost)
    tables.renew_hashes()
    with tables.database.read() as cursor:
        assert cursor.execute(hashes).fetchall() == right
        assert len({value for _, value in right}) == 3
