"""The tables of a generation, without Spark: what a batch does when it has nothing to do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
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
