"""Windows over a real store: what they show, in which order, of which generation and moment."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lengths import EXAMPLES
from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.plan.where import SortKey, parse_sort, parse_terms
from turnout.store.database import Database
from turnout.store.query import windows
from turnout.store.query.window_rows import track_window
from turnout.store.query.windows import Column, Window, list_tables, open_snapshot, open_window, read_window


def add_generation(database: Database, number: int, *, users: int = 5) -> None:
    """A generation by plain SQL: users named after it, a view table, and versions."""
    with database.write() as cursor:
        cursor.execute(f"""
            CREATE SCHEMA g{number};
            CREATE TABLE g{number}.versions (name VARCHAR, version BIGINT);
            INSERT INTO g{number}.versions VALUES ('users_ui', {number * 10}), ('final_ui', {number * 10 + 1});
            CREATE TABLE g{number}.users_ui
                (_id BIGINT, _shown BOOLEAN, "userId" VARCHAR, name VARCHAR, age BIGINT);
            INSERT INTO g{number}.users_ui
                SELECT i, i <> 2, 'u' || i, 'g{number}', CASE WHEN i % 3 <> 0 THEN 10 * (i % 2) END
                FROM range({users}) t(i) ORDER BY i DESC;
            CREATE TABLE g{number}.final_ui (_id BIGINT, _right_id BIGINT, "userId" VARCHAR, tags VARCHAR[]);
            INSERT INTO g{number}.final_ui VALUES (2, 1, 'c', ['x']), (1, NULL, 'b', NULL), (1, 7, 'a', []),
                (NULL, 3, 'd', NULL);
        """)


def publish(database: Database, number: int) -> None:
    with database.write() as cursor:
        cursor.execute(f"""
            UPDATE turnout.published SET generation = {number};
            CREATE OR REPLACE VIEW main.users_ui AS SELECT * FROM g{number}.users_ui WHERE _shown;
            CREATE OR REPLACE VIEW main.final_ui AS SELECT * FROM g{number}.final_ui;
        """)


@contextmanager
def two_generations(folder: Path) -> Iterator[Database]:
    opened = Database.open(folder)
    add_generation(opened, 1)
    add_generation(opened, 2)
    publish(opened, 2)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """For all tests that only read."""
    with two_generations(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[Database]:
    with two_generations(tmp_path) as opened:
        yield opened


ODD_VALUES = {
    "text": ("VARCHAR", ["", "a", "ab", "abc", "a\0", "ä", "😀", "z" * 300]),
    "yes": ("BOOLEAN", ["true", "false"]),
    "large": ("BIGINT", ["-9223372036854775808", "-1", "0", "9223372036854775807"]),
    "single": ("FLOAT", ["nan", "-inf", "-0.0", "0.0", "0.1", "inf"]),
    "double": ("DOUBLE", ["nan", "-inf", "-0.0", "0.0", "0.1", "1e300", "inf"]),
    "exact": ("DECIMAL(38, 10)", ["-0.0000000001", "0", "1000000000000000000000000000"]),
    "day": ("DATE", ["0001-01-01", "1969-12-31", "2026-01-01", "5000000-01-01"]),
    "moment": ("TIMESTAMPTZ", ["0001-01-01 00:00:00+00", "2026-01-01 00:00:00.000001+00", "294246-01-01 00:00:00+00"]),
    "number": ("INTEGER", [str(number) for number in range(200)]),
}


@pytest.fixture(scope="module")
def odd_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A table of 400 rows, whose columns have all types, nulls, and values that many rows share."""
    opened = Database.open(tmp_path_factory.mktemp("odd"))
    with opened.write() as cursor:
        cursor.execute("""
            CREATE SCHEMA g1;
            CREATE TABLE g1.versions (name VARCHAR, version BIGINT);
            CREATE TABLE g1.odd_ui AS SELECT i AS _id, i AS id FROM range(400) t(i);
            UPDATE turnout.published SET generation = 1;
        """)
        for name, (kind, values) in ODD_VALUES.items():
            cursor.execute(f"ALTER TABLE g1.odd_ui ADD COLUMN {name} {kind}")
            chosen = f"list_extract(?, CAST(hash(id, '{name}') % {len(values) + 1} AS INTEGER))"
            cursor.execute(f"UPDATE g1.odd_ui SET {name} = CAST({chosen} AS {kind})", [values])
        cursor.execute("CREATE VIEW main.odd_ui AS SELECT * FROM g1.odd_ui")
    yield opened
    opened.close()


def column(database: Database, window: Window, name: str) -> list[object]:
    values: list[object] = read_window(database, window).rows.column(name).to_pylist()
    return values


def test_window_shows_public_columns_of_the_published_generation(database: Database) -> None:
    result = read_window(database, Window("users_ui", limit=2))
    assert (result.table, result.position, result.total) == ("users_ui", Position(2, 20), 4)
    assert result.columns == (Column("userId", "string"), Column("name", "string"), Column("age", "int64"))
    assert result.rows.to_pylist() == [
        {"userId": "u0", "name": "g2", "age": None},
        {"userId": "u1", "name": "g2", "age": 10},
    ]


def test_window_takes_columns_in_the_order_given(database: Database) -> None:
    result = read_window(database, Window("users_ui", columns=("age", "userId")))
    assert result.rows.column_names == ["age", "userId"]


def test_window_pages_and_counts_what_where_keeps(database: Database) -> None:
    where = parse_terms("age is not null")
    result = read_window(database, Window("users_ui", where=where, offset=1, limit=5))
    assert result.total == 2
    assert result.rows.column("userId").to_pylist() == ["u4"]


def test_window_beyond_the_end_is_empty(database: Database) -> None:
    result = read_window(database, Window("users_ui", offset=99, limit=5))
    assert (result.total, result.rows.num_rows) == (4, 0)


def test_window_sorts_nulls_last_both_ways_and_breaks_ties_by_id(database: Database) -> None:
    ascending = Window("users_ui", sort=parse_sort("age"))
    descending = Window("users_ui", sort=parse_sort("-age"))
    assert column(database, ascending, "userId") == ["u4", "u1", "u0", "u3"]
    assert column(database, descending, "userId") == ["u1", "u4", "u0", "u3"]


@settings(max_examples=8 * EXAMPLES, deadline=None)
@given(
    sort=st.lists(st.builds(SortKey, st.sampled_from(list(ODD_VALUES)), st.booleans()), min_size=1, max_size=2),
    where=st.sampled_from(["", "yes = true", "number < 150", "text is not null"]),
    offset=st.integers(0, 420),
    limit=st.integers(1, 60),
    sampled=st.integers(1, 400),
    letters=st.integers(1, 3),
)
# A sample without rows.
@example(sort=[SortKey("text", False)], where="yes = true", offset=1, limit=1, sampled=1, letters=1)
def test_page_far_down_has_the_rows_of_its_place_in_the_order(
    odd_database: Database, sort: list[SortKey], where: str, offset: int, limit: int, sampled: int, letters: int
) -> None:
    whole = Window("odd_ui", ("id",), parse_terms(where), tuple(sort))
    page = Window("odd_ui", ("id",), parse_terms(where), tuple(sort), offset, limit)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (
            ("_FAR_SHARE", 0),
            ("_FAR_ROWS", 0),
            ("_SAMPLED_ROWS", sampled),
            ("_SAMPLED_LETTERS", letters),
        ):
            patched.setattr(windows, name, value)
        assert column(odd_database, page, "id") == column(odd_database, whole, "id")[offset : offset + limit]


def test_page_far_down_is_read_where_the_sample_has_no_row(
    odd_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is in the sample or not by a hash of where it is."""
    monkeypatch.setattr(windows, "_FAR_ROWS", 0)
    monkeypatch.setattr(windows, "_SAMPLED_ROWS", 1)
    with open_snapshot(odd_database) as snapshot:
        for value in range(200):
            window = Window(
                "odd_ui", where=parse_terms(f"number < {value}"), sort=parse_sort("number"), offset=1, limit=1
            )
            table, total = snapshot.prepare(window)
            assert snapshot.select(table, window, total).to_arrow_table().num_rows == (total > 1)


@pytest.mark.parametrize("sort", ["number", "-number", "-text,number"])
def test_page_far_down_is_looked_for_among_few_rows(
    odd_database: Database, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_FAR_ROWS", 100)
    with open_snapshot(odd_database) as snapshot:
        window = Window("odd_ui", sort=parse_sort(sort), offset=200, limit=10)
        table, total = snapshot.prepare(window)
        near, bounds, above = snapshot._near(table, window, total)
        assert 0 < above <= 200
        assert snapshot.count(table, near, bounds) < 160
        assert snapshot._near(table, Window("odd_ui", sort=window.sort, offset=90, limit=10), total)[0] == "TRUE"


def test_window_orders_a_view_by_both_ids_nulls_last(database: Database) -> None:
    assert column(database, Window("final_ui"), "userId") == ["a", "b", "c", "d"]


def test_window_shows_a_type_that_no_source_declares_as_text(database: Database) -> None:
    result = read_window(database, Window("final_ui", where=parse_terms("tags contains x")))
    assert result.columns[-1] == Column("tags", "string")
    assert result.rows.column("tags").to_pylist() == ["[x]"]


def test_window_of_a_generation_reads_it_without_covered_rows(database: Database) -> None:
    result = read_window(database, Window("users_ui@1"))
    assert (result.table, result.position, result.total) == ("users_ui@1", Position(1, 10), 4)
    assert set(result.rows.column("name").to_pylist()) == {"g1"}
    assert "u2" not in result.rows.column("userId").to_pylist()


def test_window_of_a_shared_table_has_the_shared_version(own_database: Database) -> None:
    with own_database.write() as cursor:
        cursor.execute("INSERT INTO turnout.versions VALUES ('swaps', 4)")
    result = read_window(own_database, Window("swaps"))
    assert (result.position, result.total) == (Position(2, 4), 0)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "nope",
            "users_ui@9",
            "swaps@1",
            "versions@1",
            "outgoing@1",
            "outgoing:users_ui@1",
            "g1.users_ui",
            "turnout.published",
            "USERS_UI",
            "",
            "@1",
        ),
        *("users_ui@", "users_ui@-1", "users_ui@١", "users_ui@1@1", "\ud800"),
        'users_ui"; DROP TABLE g1.users_ui; --',
    ],
)
def test_unknown_table_is_refused_with_the_known_ones(database: Database, name: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        read_window(database, Window(name))
    assert (caught.value.code, caught.value.status) == ("unknown_table", 404)
    assert "users_ui" in caught.value.hint
    assert "living: 1, 2" in caught.value.hint


def test_hidden_columns_cannot_be_asked_for(database: Database) -> None:
    for window in (
        Window("users_ui", columns=("_id",)),
        Window("users_ui", where=parse_terms("_id=1")),
        Window("users_ui", sort=parse_sort("_id")),
    ):
        with pytest.raises(TurnoutError, match="no column '_id'"):
            read_window(database, window)


def test_stream_brings_every_row_in_batches(own_database: Database) -> None:
    add_generation(own_database, 3, users=120_000)
    with open_window(own_database, Window("users_ui@3")) as stream:
        sizes = [batch.num_rows for batch in stream.rows]
    assert sum(sizes) == stream.total == 119_999
    assert len(sizes) > 1


def test_stream_keeps_its_moment_while_rows_change(own_database: Database) -> None:
    with open_window(own_database, Window("users_ui")) as stream:
        with own_database.write() as cursor:
            cursor.execute("DELETE FROM g2.users_ui")
        publish(own_database, 1)
        assert stream.rows.read_all().column("name").to_pylist() == ["g2"] * 4
    assert column(own_database, Window("users_ui"), "name") == ["g1"] * 4


def test_list_tables_has_every_view_with_its_numbers(database: Database) -> None:
    tables = {table.name: table for table in list_tables(database)}
    assert {"users_ui", "final_ui", "swaps", "control_raw", "orchestrator_logs"} <= set(tables)
    users = tables["users_ui"]
    assert (users.rows, users.generation, users.version) == (4, 2, 20)
    assert [column.name for column in users.columns] == ["userId", "name", "age"]


def test_closed_store_is_unavailable_not_a_crash(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    database.close()
    with pytest.raises(TurnoutError) as caught:
        read_window(database, Window("swaps"))
    assert (caught.value.code, caught.value.status) == ("store_unavailable", 503)


def test_window_is_of_one_moment_while_generations_are_published(own_database: Database) -> None:
    done = threading.Event()

    def republish() -> None:
        number = 1
        while not done.is_set():
            publish(own_database, number)
            number = 3 - number
            done.wait(0.001)  # or it takes a core for itself

    writer = threading.Thread(target=republish)
    writer.start()
    seen: set[int | None] = set()
    try:
        reads = 0
        while reads < 30 or seen != {1, 2}:
            reads += 1
            assert writer.is_alive()
            result = read_window(own_database, Window("users_ui"))
            generation = result.position.generation
            assert set(result.rows.column("name").to_pylist()) == {f"g{generation}"}
            assert result.position.version == generation * 10
            seen.add(generation)
            for table in list_tables(own_database):
                assert table.name != "users_ui" or table.version == table.generation * 10
    finally:
        done.set()
        writer.join()


def test_whole_table_has_memory_for_its_rows_and_no_more(tmp_path: Path) -> None:
    told: list[int] = []
    database, pool = Database.open(tmp_path), pa.system_memory_pool()
    add_generation(database, 1, users=30_000)
    publish(database, 1)
    before = pool.bytes_allocated()
    tracked = track_window(database, Window("users_ui"), told.append)
    size = tracked.rows.nbytes
    assert size <= pool.bytes_allocated() - before < 1.02 * size
    assert told[-1] == pytest.approx(size, rel=0.1), "what is counted is what is there"
    rows = tracked.rows.num_rows
    del tracked
    assert (rows, pool.bytes_allocated()) == (29_999, before)
    database.close()
