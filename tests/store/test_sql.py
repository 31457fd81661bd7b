"""SELECTs over published tables: what they answer, and that there is no way from one to anything else."""

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import duckdb
import psutil
import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling
from lengths import LONG
from turnout.errors import TurnoutError
from turnout.store.database import Database
from turnout.store.query.sql import read_sql
from turnout.store.query.sql_process import ProcessIdleError, SqlProcess, process
from turnout.store.query.sql_worker import locked
from turnout.testing import wait_until


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database.open(tmp_path_factory.mktemp("store"))
    filling = Filling(database)
    filling.swap(users=[USER_1])
    filling.swap(users=[USER_1, USER_2], accounts=[GOLD_1])
    yield database
    database.close()


def rows(database: Database, text: str, limit: int = 1_000) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in read_sql(database, text, limit).rows.to_pylist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select name from users_ui order by age desc", [("Ben",), ("Ada",)]),
        ("select count(*) from final_ui", [(2,)]),
        ("FROM Users_UI SELECT UserId, Age WHERE age > 40", [("u2", 52)]),
        ("select * from users_ui where name = 'Ada'", [("u1", "Ada", "ada@example.com", 36)]),
        ("select a.name, b.name from users_ui a join users_ui b using (userId) order by 1 limit 1", [("Ada", "Ada")]),
        ("select name, balance from users_ui natural join accounts_ui", [("Ada", 10.5)]),
        ("with older as (select * from users_ui where age > 40) select count(*) from older", [(1,)]),
        (
            "with recursive n as (select 1 as i union all select i + 1 from n where i < 3) select sum(i) from n",
            [(6,)],
        ),
        ("select u.age + x from users_ui u, range(2) t(x) where u.name = 'Ada' order by 1", [(36,), (37,)]),
        ("select u from users_ui u where age = 52", [({"userId": "u2", "name": "Ben", "email": None, "age": 52},)]),
        ("select accountType, avg(age) from final_ui group by all order by all", [("gold", 36.0), (None, 52.0)]),
        ("values (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("select exists (from accounts_ui where balance > 10) as rich", [(True,)]),
        ("select name from users_ui where userId in (select userId from accounts_ui)", [("Ada",)]),
        ("select outcome from swaps", []),
        (
            "select a[2], s.x, 1 || 'b', coalesce(null, 3), 5 between 1 and 9, 'abc' like 'a%', date_part('year', d) "
            "from (select [1, 2] as a, {'x': 7} as s, date '2026-01-02' as d)",
            [(2, 7, "1b", 3, True, True, 2026)],
        ),
        (
            "select unnest([1, 2]), row_number() over (), list_transform([1], lambda x: x + 1)",
            [(1, 1, [2]), (2, 1, [2])],
        ),
        (
            "select now() = current_timestamp, random() < 2, current_date = today(), typeof(1)",
            [(True,) * 3 + ("INTEGER",)],
        ),
        (
            "select string_agg(name, '/' order by age), median(age), count(distinct name) from users_ui",
            [("Ada/Ben", 44.0, 2)],
        ),
        (
            "select if(true, 1, 2), nullif(1, 1), regexp_matches('a', 'a'), strftime(date '2026-01-02', '%Y')",
            [(1, None, True, "2026")],
        ),
        ("select name from users_ui -- a comment", [("Ada",), ("Ben",)]),
    ],
)
def test_select_answers_rows(database: Database, text: str, expected: list[tuple[object, ...]]) -> None:
    assert rows(database, text) == expected


def test_answer_names_generation_types_and_tables(database: Database) -> None:
    found = read_sql(database, "select name, age, age / 2 as half, name from final_ui")
    assert found.generation == 2
    assert [(c.name, c.type) for c in found.columns] == [
        ("name", "string"),
        ("age", "int64"),
        ("half", "double"),
        ("name_2", "string"),
    ]
    assert found.rows.column_names == ["name", "age", "half", "name_2"]
    assert (list(found.positions), found.complete) == (["final_ui"], True)


def test_rows_are_bounded_and_the_answer_says_so(database: Database) -> None:
    found = read_sql(database, "select * from range(1000000)", limit=10)
    assert (found.rows.num_rows, found.complete) == (10, False)
    assert read_sql(database, "select * from range(10)", limit=10).complete


def test_hidden_columns_do_not_exist(database: Database) -> None:
    with pytest.raises(TurnoutError, match="_id"):
        rows(database, "select _id from users_ui")
    assert "_id" not in read_sql(database, "from users_ui").rows.column_names


# Every way that DuckDB's documentation has to files, network, settings, other databases and schemas.
REFUSED = [
    # files
    *("from 'secrets.csv'", 'from "/etc/passwd"', "from read_csv('/etc/passwd')", "from read_csv_auto('x')"),
    *("from read_text('/etc/passwd')", "from read_blob('/proc/self/environ')", "from read_parquet('x.parquet')"),
    *("from parquet_scan('x')", "from parquet_metadata('x')", "from parquet_schema('x')", "from read_json('x')"),
    *("from read_json_auto('x')", "from read_ndjson('x')", "from read_json_objects('x')", "from sniff_csv('x')"),
    *("from glob('/etc/*')", "from read_xlsx('x')", "from st_read('x')", "from arrow_scan(1, 2, 3)"),
    *("copy users_ui to '/tmp/x.csv'", "copy users_ui from '/tmp/x.csv'", "copy (select 1) to '/dev/stdout'"),
    *("export database '/tmp/x'", "import database '/tmp/x'"),
    *("from parquet_bloom_probe('x', 'a', 1)", "from read_duckdb('x.db')", "from parquet_kv_metadata('x')"),
    # other databases, network, extensions
    *("attach '/tmp/other.db'", "attach 'https://example.com/x.db'", "detach store", "use turnout"),
    *("from 'https://example.com/x.parquet'", "from 's3://bucket/x.parquet'", "install httpfs", "load httpfs"),
    *("update extensions", "force install httpfs", "create secret (type s3)", "from duckdb_secrets()"),
    *("from postgres_scan('', 'public', 't')", "from sqlite_scan('x.db', 't')", "from mysql_query('x', 'select 1')"),
    *("copy users_ui to 's3://bucket/x.parquet'", "copy from database a to b", "attach ':memory:' as other"),
    *("from iceberg_scan('x')", "from delta_scan('x')", "from read_avro('x')", "from duckdb_extensions()"),
    *(
        "create persistent secret s (type s3)",
        "drop secret s",
        "from which_secret('s3://x', 's3')",
        "from shapefile_meta('x')",
    ),
    *(
        "install spatial from community",
        "attach 'ducklake:x'",
        "attach 'postgres:dbname=x'",
        "from load_aws_credentials()",
    ),
    # settings
    *("set disabled_filesystems = ''", "set enable_external_access = true", "set lock_configuration = false"),
    *("set allow_unredacted_secrets = true", "set allow_community_extensions = true", "set temp_directory = '/tmp'"),
    *("set allowed_directories = ['/']", "set allowed_paths = ['/etc/passwd']", "reset lock_configuration"),
    *(
        "set home_directory = '/'",
        "set secret_directory = '/'",
        "set extension_directory = '/'",
        "set search_path = 'x'",
    ),
    *("set log_query_path = '/tmp/x'", "set profiling_output = '/tmp/x'", "set max_temp_directory_size = '1TB'"),
    *("set threads = 1", "reset threads", "pragma version", "pragma database_list", "pragma enable_profiling"),
    *("set variable x = 1", "from duckdb_settings()", "from duckdb_variables()", "set memory_limit = '1TB'"),
    *("call pragma_version()", "call enable_logging()", "checkpoint", "force checkpoint"),
    # changes
    *("create table x (a int)", "create or replace view users_ui as select 1", "create macro f() as 1"),
    *("drop view users_ui", "insert into users_ui values (1)", "update users_ui set age = 1", "delete from users_ui"),
    *("insert into users_ui values (1) returning *", "truncate users_ui", "alter table users_ui drop age"),
    *("create temp table x as from users_ui", "create sequence s", "create type t as enum ('a')", "vacuum"),
    *("begin", "commit", "rollback", "merge into users_ui using users_ui on true when matched then delete"),
    *("comment on table users_ui is 'x'", "create schema s", "analyze", "prepare p as select 1", "execute p"),
    # internal tables and other generations
    *("from g1.users_ui", "from g2.users_ui", "from turnout.published", "from turnout.control_places"),
    *("from main.users_ui", "from store.main.users_ui", "from system.main.duckdb_tables", "from published"),
    *("from duckdb_tables", "from duckdb_tables()", "from duckdb_columns()", "from sqlite_master"),
    *("from information_schema.tables", "from pg_catalog.pg_tables", "from pg_tables", "from duckdb_logs"),
    *('from "users_ui@1"', "from temp.users_ui", "from duckdb_temporary_files()", "from duckdb_memory()"),
    # a WITH that gives a name to something else
    "with a as (from duckdb_tables), duckdb_tables as (select 1) from a",
    "select * from (with duckdb_tables as (select 1) from duckdb_tables), duckdb_tables",
    "select (with x as (select 1) select 1), * from 'x'",
    # SQL as text
    *("from query('select 1')", "from query_table('users_ui')", "from json_execute_serialized_sql('{}')"),
    *("execute immediate 'select 1'", "from pragma_table_info('users_ui')", "from duckdb_functions()"),
    # not one SELECT
    *("select 1; select 2", "select 1; drop view users_ui", "", ";", "-- nothing", "selec 1", "select ?", "select $1"),
    *("describe users_ui", "summarize users_ui", "show tables", "show all tables", "explain select 1"),
    *(
        "explain analyze select 1",
        "from nothing",
        "with gone as (delete from users_ui returning *) select * from gone",
        "with more as (insert into users_ui select * from users_ui returning *) select * from more",
        "with other as (update users_ui set name = 'x' returning *) select * from other",
        "with written as (copy users_ui to '/tmp/x.csv') select * from written",
        "select $threads",
        "from (describe users_ui)",
        "select 1 from users_ui at (version => 1)",
    ),
    *("select 1\0, 2", "select 'a\0b'", "select 1 -- \0"),
    # what tells of the database, its settings or its transactions
    *("select current_setting('memory_limit')", "select 'threads'.current_setting()", "select main.version()"),
    *("select getvariable('x')", "select current_database()", "select VERSION()", "select pg_typeof(1)"),
    *(
        "select txid_current()",
        "select in_search_path('a', 'b')",
        "select current_schemas(true)",
        "select nextval('s')",
    ),
    *("select has_table_privilege('users_ui', 'select')", "select pg_get_viewdef(1)", "select write_log('x')"),
    *("select json_serialize_plan('select 1')", "select sleep_ms(1)", "select current_query()", "select stats(1)"),
    *("select 1 where version() > ''", "select sum(1) filter (version() = '')", "select duckdb_settings()"),
    *("select name from users_ui order by current_connection_id()", "select inet_server_addr()", "select user()"),
    *("from test_all_types()", "from repeat_row(1, num_rows => 2)", "from seq_scan('users_ui')", "from checkpoint()"),
]


@pytest.mark.parametrize("text", REFUSED)
def test_everything_but_one_select_over_published_tables_is_refused(database: Database, text: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        rows(database, text)
    assert (caught.value.code, caught.value.status) == ("sql_refused", 422)
    assert caught.value.hint
    assert "/root" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "select getenv('HOME')",
        "select current_setting('secret_directory')",
        "select getvariable('x')",
        "select nextval('s')",
        "select current_database()",
        "select pg_get_viewdef(1)",
        "select write_log('x')",
        "select add_parquet_key('k', 'v')",
    ],
)
def test_functions_find_nothing_of_the_store_or_the_machine(database: Database, text: str) -> None:
    """The query's own database has nothing to find: no file, no setting that says where the store is."""
    try:
        found = str(rows(database, text))
    except TurnoutError as error:
        found = error.message
    assert str(database.path.parent) not in found
    assert "turnout-data" not in found


@pytest.mark.parametrize(
    "text",
    [
        *("from read_csv('/etc/passwd')", "from read_text('/etc/passwd')", "from glob('/etc/*')", "from '/etc/passwd'"),
        *("copy (select 1) to '/tmp/x.csv'", "attach '/tmp/x.db'", "export database '/tmp/x'", "load '/tmp/x.so'"),
        *("install httpfs", "load httpfs", "from read_parquet('https://example.com/x')", "from 's3://bucket/x.csv'"),
        *("set threads = 2", "set memory_limit = '1TB'", "set enable_external_access = true", "reset temp_directory"),
        *("set disabled_filesystems = ''", "set lock_configuration = false", "create persistent secret s (type s3)"),
        *("set log_query_path = '/tmp/x'", "set profiling_output = '/tmp/x'", "select getenv('HOME')"),
    ],
)
def test_the_database_of_a_query_refuses_what_the_parser_would_let_through(text: str) -> None:
    with closing(locked("64MB")) as connection, pytest.raises(duckdb.Error):
        connection.execute(text).fetchall()


def test_a_query_that_takes_too_much_memory_is_refused(database: Database) -> None:
    with pytest.raises(TurnoutError, match="memory") as caught:
        read_sql(database, "select list(i) from range(100000000) t(i)", memory="64MB")
    assert caught.value.code == "sql_refused"


# Each makes, while it runs, what DuckDB does not count as its memory.
HUNGRY = [
    "select sum(length(t)) from (select distinct repeat('x', 10000000 + i::int) as t from range(50) t(i))",
    "select max(t) from (select repeat('x', 10000000) || i as t from range(50) t(i))",
    "select list(repeat('x', 10000000) || i) from range(50) t(i)",
    "select string_agg(repeat('x', 10000000), ',') from range(100)",
    "select length(repeat('x', 4000000000))",
    "select list_aggregate(range(100000000), 'sum')",
    "with recursive n as (select 'x' t union all select t || t from n where length(t) < 1e9) select max(t) from n",
]


@pytest.mark.parametrize("text", HUNGRY)
def test_memory_of_a_query_is_bounded_by_the_system(database: Database, text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TurnoutError, match="memory") as caught:
        read_sql(database, text, memory="64MB")
    assert caught.value.code == "sql_refused"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KB
    assert rows(database, "select count(*) from users_ui") == [(2,)]


def test_little_memory_is_enough_for_a_small_query(database: Database) -> None:
    """What the libraries take for themselves is not counted."""
    for _ in range(3):
        assert read_sql(database, "select name from users_ui limit 1", memory="16MB").rows.num_rows == 1


def test_process_of_a_hungry_query_takes_little_more_than_it_may() -> None:
    """In a process of its own: the system counts the largest of all children that one ever had."""
    program = """
import resource, sys
from turnout.store.query.sql_process import ProcessEndedError, SqlProcess
for sql in sys.argv[1:]:
    worker = SqlProcess()
    asked = {"sql": sql, "copied": [], "streamed": None, "limit": 1, "memory": "64MB", "bytes": 64000000}
    try:
        head, _ = worker.ask(asked | {"max_bytes": None}, ())
        assert "memory" in head, head
    except ProcessEndedError:
        pass
    worker.close()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    # That each is refused is said above; what the system counts is the same for all that it refuses.
    texts = HUNGRY if LONG else HUNGRY[::3]
    found = subprocess.run([sys.executable, "-c", program, *texts], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 400_000  # KB


def test_a_process_is_used_again_and_one_that_has_gone_is_replaced(database: Database) -> None:
    assert rows(database, "select 1") == [(1,)]
    with process() as kept:
        pass
    assert rows(database, "select name from users_ui limit 1") == [("Ada",)]
    with pytest.raises(TurnoutError, match="nothing"):
        rows(database, "select nothing from users_ui")
    with process() as same:
        assert same is kept
        same.interrupt()
    assert rows(database, "select 1") == [(1,)]


def test_a_process_loads_no_pandas(database: Database) -> None:
    """Which would be most of its start, and a part of the memory that a query may have."""
    with process() as worker:
        kept = worker
    assert rows(database, "select name from users_ui limit 1") == [("Ada",)]
    with process() as worker:
        assert worker is kept
    mapped = {entry.path for entry in psutil.Process(kept._process.pid).memory_maps()}
    assert any("pyarrow" in path for path in mapped)
    assert not any("pandas" in path for path in mapped)


def test_a_process_that_ends_while_it_waits_is_not_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SqlProcess] = []
    ask = SqlProcess.ask

    def late(worker: SqlProcess, *more: Any) -> Any:
        asked.append(worker)
        if len(asked) == 1:
            raise ProcessIdleError
        return ask(worker, *more)

    monkeypatch.setattr(SqlProcess, "ask", late)
    assert rows(database, "select 1") == [(1,)]
    assert len(set(asked)) == 2


def test_a_process_that_ends_while_it_waits_leaves_nothing_behind(database: Database) -> None:
    with process() as kept:
        pass
    found = psutil.Process(kept._process.pid)
    found.terminate()
    # One that nobody waited for would stay in the list, as a zombie.
    wait_until(lambda: not psutil.pid_exists(found.pid), what="its end")
    wait_until(lambda: kept._going.closed, what="its pipes to be closed")
    assert rows(database, "select 1") == [(1,)]


def test_a_process_ends_with_the_one_that_started_it() -> None:
    program = """
import os, threading
from turnout.store.query.sql_process import SqlProcess
worker = SqlProcess()
asked = {"sql": "select sum(i % 7) from range(1000000000000) t(i)", "copied": [], "streamed": None}
asked |= {"limit": 1, "memory": "64MB", "bytes": 64000000, "max_bytes": None}
threading.Thread(target=worker.ask, args=(asked, ()), daemon=True).start()
print(worker._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    wait_until(lambda: not psutil.pid_exists(int(found.stdout)))


def test_a_table_of_many_batches_is_read_no_further_than_needed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.store.query.sql._BATCH_ROWS", 1)
    for _ in range(3):
        assert len(rows(database, "select name from users_ui limit 1")) == 1
        assert rows(database, "select count(*) from users_ui") == [(2,)]


def test_rows_that_are_not_needed_are_not_read(database: Database) -> None:
    assert rows(database, "select 1 from users_ui limit 0") == []
    assert rows(database, "select count(*) from users_ui, (from users_ui limit 1)") == [(2,)]


def test_store_is_as_before(database: Database) -> None:
    """After all of the above."""
    assert rows(database, "select count(*) from users_ui") == [(2,)]
    with database.read() as cursor, pytest.raises(duckdb.CatalogException):
        cursor.execute("from x")


def test_deep_and_long_texts_are_refused(database: Database) -> None:
    for text in (
        "select * from (" * 2_000 + "select 1" + ")" * 2_000,
        "select '" + "x" * 200_000 + "'",
        "select \udc80",
    ):
        with pytest.raises(TurnoutError) as caught:
            rows(database, text)
        assert caught.value.code == "sql_refused"


@pytest.mark.parametrize(
    ("text", "position", "message", "hint"),
    [
        ("select balanc from final_ui", (1, 8), "no column 'balanc'", "did you mean balance? columns: "),
        ("select 'üü',\n  f.agee from final_ui f", (2, 3), "no column 'agee'", "did you mean age? "),
        ("select *\nfrom final_ui\nwhere USERIDD = 'ü'", (3, 7), "no column 'USERIDD'", "did you mean userId? "),
        ("select 'ü' frm x y z", (1, 16), 'syntax error at or near "x"', "see the list of tables"),
        (
            "select foo(age) from final_ui",
            (1, 8),
            "Scalar Function with name foo does",
            'Did you mean "floor"?',
        ),
        (
            "select sum(name) from final_ui",
            (1, 8),
            "No function matches",
            "Candidate functions: sum(arg DECIMAL)",
        ),
        ("select age from final_ui group by name", (1, 8), 'column "age" must appear', "Either add it to the GROUP BY"),
        ("select cast('a' as int)", (1, 8), "Could not convert string 'a' to INT32", "see the list of tables"),
        ("select f.nothing_like_it from final_ui f", (1, 8), "no column 'nothing_like_it'", "columns: userId, name, "),
        ("select name from user_ui", None, "no table 'user_ui'", "did you mean users_ui? tables: "),
    ],
)
def test_error_of_a_select_has_its_place_and_what_may_be_meant(
    database: Database, text: str, position: tuple[int, int] | None, message: str, hint: str
) -> None:
    with pytest.raises(TurnoutError) as caught:
        rows(database, text)
    error = caught.value
    assert error.position == position
    place = f"line {position[0]}, column {position[1]}: " if position else ""
    assert error.message.startswith(f"sql: {place}{message}")
    assert hint in error.hint
    assert not re.search(r"[\n\t]|!|/api/", error.message + error.hint)
    shape = error.as_json()["error"]
    assert shape.get("position") == (position and {"line": position[0], "column": position[1]})
