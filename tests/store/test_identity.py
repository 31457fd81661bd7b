"""What makes a row of a view the same row: the SQL of its identity, under every join."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from turnout.plan.chains import chain_of
from turnout.plan.joins import Duplicates, Join, Step
from turnout.plan.tables import SourceTable, ViewTable, chain_view, joined_view
from turnout.store.views import kind_of
from turnout_client.column_types import ColumnType

TEXT = ColumnType.parse("string")


def source(name: str, *, latest: bool) -> SourceTable:
    return SourceTable(name, name, name, "k", {"k": TEXT, name: TEXT}, latest=latest, max_rows=None)


def identity_sql(view: ViewTable) -> str:
    return kind_of(view).identity_sql(view)


def views(left: SourceTable, right: SourceTable) -> list[ViewTable]:
    return [joined_view("v", [left, right], *both) for both in itertools.product(Join, Duplicates)]


def test_rows_that_are_one_to_a_key_have_the_key_as_identity_under_every_join() -> None:
    kept = views(source("a", latest=True), source("b", latest=True))
    newest = [view for view in views(source("a", latest=True), source("b", latest=False)) if not view.pairs]
    assert len({identity_sql(view) for view in kept + newest}) == 1
    with duckdb.connect() as connection:
        [(found,)] = connection.execute(
            f"SELECT {identity_sql(kept[0])} FROM (SELECT 'x' AS k, NULL AS _id)"
        ).fetchall()
        assert connection.execute("SELECT md5('x')").fetchall() == [(found,)]


def test_rows_that_are_one_to_a_left_row_have_its_identity_under_every_join() -> None:
    assert len({identity_sql(view) for view in views(source("a", latest=False), source("b", latest=True))}) == 1


@pytest.mark.parametrize("right_on", ["k", "b"])
def test_step_by_the_key_of_a_source_with_one_row_of_a_key_keeps_identities_under_every_join(right_on: str) -> None:
    sources = [source("a", latest=True), source("b", latest=True)]
    columns = {one.source: tuple(one.columns) for one in sources}
    found = set()
    for join in (Join.LEFT, Join.INNER):
        step = Step("b", "a", right_on, join, Duplicates.LATEST)
        found.add(identity_sql(chain_view("v", sources, chain_of(columns, [step]))))
    assert (len(found) == 1) is (right_on == "k")


def test_right_rows_of_different_keys_without_a_left_row_are_different_rows() -> None:
    sides = [source("a", latest=False), source("b", latest=False), source("c", latest=True)]
    view = joined_view("v", sides, Join.FULL, Duplicates.ALL)
    rows = "VALUES ('x', NULL, NULL, 1), ('y', NULL, NULL, 2), ('x', NULL, 7, 1), ('x', 7, NULL, 1), ('x', 7, 8, 1)"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {identity_sql(view)} FROM ({rows}) AS t(k, _id, _right_id, _right_id_1)")
        assert len(set(found.fetchall())) == 5
