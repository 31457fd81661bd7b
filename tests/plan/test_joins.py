"""Names of joins, and the text of a view."""

from __future__ import annotations

import duckdb
import pytest

from turnout.plan.joins import Duplicates, Join, key_steps, newest_sql, parse_join, view_columns, view_sql
from turnout.plan.sql_text import quoted
from turnout_client.control_fields import JOINS


@pytest.mark.parametrize(
    ("text", "join"),
    [
        ("left", Join.LEFT),
        (" LEFT ", Join.LEFT),
        ("left_outer", Join.LEFT),
        ("leftouter", Join.LEFT),
        ("Left  Outer", Join.LEFT),
        ("natural", Join.NATURAL),
        ("inner", Join.INNER),
        ("JOIN", Join.INNER),
        ("right", Join.RIGHT),
        ("full", Join.FULL),
        ("semi", Join.SEMI),
        ("anti", Join.ANTI),
    ],
)
def test_parse_join_knows_names_and_aliases(text: str, join: Join) -> None:
    assert parse_join(text) is join


def test_client_names_every_join() -> None:
    assert tuple(Join) == JOINS


@pytest.mark.parametrize("text", ["", "cross", "outer", "left;drop"])
def test_parse_join_lists_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"known: left, natural, inner, right, full, semi, anti, left_outer"):
        parse_join(text)


def test_view_columns_that_both_sides_have_get_the_name_of_the_right_source() -> None:
    sources = {"users": ("userId", "name"), "accounts": ("userId", "Name", "balance")}
    columns = view_columns(sources, key_steps(["accounts"], "userId", Join.LEFT))
    assert columns == ["userId", "name", "accounts_Name", "balance"]


def test_quoted_names_cannot_end_the_identifier() -> None:
    assert quoted('a"b') == '"a""b"'


@pytest.mark.parametrize("join", [Join.LEFT, Join.NATURAL, Join.INNER, Join.RIGHT, Join.FULL])
@pytest.mark.parametrize("duplicates", list(Duplicates))
def test_view_text_is_sql_that_the_store_understands_too(join: Join, duplicates: Duplicates) -> None:
    sources = {"users": ("userId", "name"), "accounts": ("userId", "balance")}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE users (userId VARCHAR, name VARCHAR, _id BIGINT, _ts BIGINT)")
        connection.execute("CREATE TABLE accounts (userId VARCHAR, balance DOUBLE, _id BIGINT, _ts BIGINT)")
        found = connection.execute(view_sql(sources, key_steps(["accounts"], "userId", join, duplicates)))
        assert [column[0] for column in found.description or []] == ["_id", "userId", "name", "_right_id", "balance"]


def test_newest_is_the_newest_of_each_partition_then_the_later_one() -> None:
    """In partition 0 the later offset has the earlier time, so partition 1 is the newest of the two."""
    rows = [("k", 0, 100), ("k", 1, 50), ("k", (1 << 44) | 5, 75)]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE r (key VARCHAR, _id BIGINT, _ts BIGINT)")
        connection.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
        newest = connection.execute(f"SELECT _id FROM ({newest_sql('r', 'key')})").fetchall()
    assert newest == [((1 << 44) | 5,)]


@pytest.mark.parametrize("join", Join)
def test_properties_of_a_join_are_what_its_sql_does(join: Join) -> None:
    """Key a is on the left alone, b on both sides with two right rows, c on the right alone."""
    # LEFT SEMI JOIN is Spark's; DuckDB calls it SEMI JOIN.
    text = view_sql({"l": ("key",), "r": ("key",)}, key_steps(["r"], "key", join))
    text = text.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE l AS SELECT * FROM (VALUES ('a', 1, 0), ('b', 2, 0)) AS l(key, _id, _ts)")
        connection.execute(
            "CREATE TABLE r AS SELECT * FROM (VALUES ('b', 3, 0), ('b', 4, 0), ('c', 5, 0)) AS r(key, _id, _ts)"
        )
        rows = connection.sql(text).to_arrow_table()
    keys = rows["key"].to_pylist()
    assert ("a" in keys and "b" in keys) == join.keeps_all
    assert ("c" in keys) == join.outer
    assert ("_right_id" in rows.column_names) != join.hides
    assert (keys.count("b") == 2) == join.pairs


def test_every_join_has_its_sql_and_one_line_of_help() -> None:
    assert [join for join in Join if not join.sql.endswith("JOIN") or not join.meaning or "\n" in join.meaning] == []
    aliases = [alias for join in Join for alias in join.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(Join)
