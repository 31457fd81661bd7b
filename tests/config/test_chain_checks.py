"""What is said of a chain in the file whose steps do not fit together, and what its joins are."""

# ruff: noqa: E501 - the table of faults reads best with a row in a line

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.config import Settings, load
from turnout.config.tables import chains_of, first_plan, layout_of, layout_signature
from turnout.errors import ConfigError
from turnout.plan.joins import Join

SOURCES = """
sources:
  orders: {topic: o, table: o_ui, key: id, columns: {id: string, userId: string, at: int64, share: double}}
  users: {topic: u, table: u_ui, key: userId, columns: {userId: string, name: string, branch: string, at: string}}
  branches: {topic: b, table: b_ui, key: branch, columns: {branch: string, share: double, at: string, Users_at: string}}
  cities: {topic: c, table: c_ui, key: name, columns: {name: string}}
"""
USERS = "{right: users, on: userId}"


def read(folder: Path, view: str) -> Settings:
    path = folder / "turnout.yaml"
    path.write_text(f"{SOURCES}views: {{v: {{{view}}}}}\n", encoding="utf-8")
    return load(path, {})


@pytest.mark.parametrize(
    ("view", "fault"),
    [
        ("left: orders, steps: []", "views.v.steps: there is none; add one, such as {right: accounts, on: userId}"),
        (f"steps: [{USERS}]", "views.v.left: is missing; add it"),
        (f"left: orders, on: id, steps: [{USERS}]", "views.v.on: does not go with steps; remove it"),
        (f"left: orders, right: users, steps: [{USERS}]", "views.v.right: does not go with steps; remove it"),
        (f"left: orders, sql: SELECT 1, steps: [{USERS}]", "views.v.sql: does not go with steps; remove it"),
        ("left: orders, steps: [{right: user, on: userId}]", "views.v.steps[0].right: no source 'user' (has: orders, users, branches, cities); did you mean 'users'?"),
        (f"left: users, steps: [{USERS}]", "views.v.steps[0].right: is the same source as left, 'users'; choose another"),
        (f"left: orders, steps: [{USERS}, {USERS}]", "views.v.steps[1].right: is named twice, 'users'; choose another"),
        ("left: orders, steps: [{right: users}]", "views.v.steps[0].on: is missing; add it"),
        ("left: orders, steps: [{right: users, on: {left: userId}}]", "views.v.steps[0].on.right: is missing; add it"),
        ("left: orders, steps: [{right: users, on: 7}]", "views.v.steps[0].on: must be a mapping, got a number; write `name: value` lines below it"),
        ("left: orders, steps: [{right: users, on: userId, join: sideways}]", "views.v.steps[0].join: unknown join 'sideways' (known: left, natural, inner, right, full, semi, anti, left_outer, leftouter, left outer, join); choose one of those"),
        ("left: orders, steps: [{right: users, on: userId, duplicates: some}]", "views.v.steps[0].duplicates: must be one of latest, all, got 'some'; choose one of them"),
        ("left: orders, steps: [{right: users, on: {left: user, right: userId}}]", "views.v.steps[0].on: the left side has no column 'user' at this step (has: id, userId, at, share); did you mean 'userId'?"),
        ("left: orders, steps: [{right: users, on: {left: userId, right: who}}]", "views.v.steps[0].on: source 'users' has no column 'who' (has: userId, name, branch, at); fix the name, or write {left: ..., right: ...}"),
        (f"left: orders, steps: [{{right: cities, on: name}}, {USERS}]", "views.v.steps[0].on: the left side has no column 'name' at this step (has: id, userId, at, share); fix the name, or put the step that adds it before this one"),
        ("left: orders, steps: [{right: users, on: at}]", "views.v.steps[0].on: 'at' is int64 and 'at' of 'users' is string; give both the same type"),
        ("left: orders, steps: [{right: branches, on: share}]", "views.v.steps[0].on: column 'share' is double, which is not exact enough to join by; use string, int64 or decimal(p,s)"),
        ("left: orders, steps: [{right: users, on: userId, join: semi}, {right: branches, on: branch}]", "views.v.steps[1].on: 'branch' comes from steps[0], whose join shows no right column; give that step another join"),
        ("left: orders, join: anti, steps: [{right: users, on: userId}, {right: branches, on: branch, join: left}]", "views.v.steps[1].on: 'branch' comes from steps[0], whose join shows no right column; give that step another join"),
        ("left: branches, steps: [{right: users, on: branch}]", "views.v: would have two columns 'users_at'; rename a column of 'branches' or 'users'"),
    ],
)  # fmt: skip
def test_fault_of_a_chain_says_where_what_and_what_to_do(tmp_path: Path, view: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, view)
    [found] = caught.value.faults
    assert found.partition(": ")[2] == fault
    assert found.startswith("line ")


CITIES = "{right: cities, on: name"


@pytest.mark.parametrize(
    ("view", "first", "joins"),
    [
        (f"left: orders, steps: [{USERS}, {CITIES}}}]", Join.LEFT, ("inner", "inner")),
        (f"left: orders, join: full, steps: [{USERS}, {CITIES}, join: left}}]", Join.FULL, ("inner", "left")),
        (f"left: orders, steps: [{{right: users, on: userId, join: left}}, {CITIES}, join: full}}]", None, ("left", "full")),
        ("left: orders, steps: [{right: users, on: userId, join: right}]", Join.RIGHT, ("inner",)),
    ],
)  # fmt: skip
def test_message_changes_the_join_of_steps_that_name_none_and_of_an_only_step(
    tmp_path: Path, view: str, first: Join | None, joins: tuple[str, ...]
) -> None:
    settings = read(tmp_path, view)
    plan = first_plan(settings)
    assert dict(plan.joins) == ({} if first is None else {"v": first})
    assert settings.joined_views == (() if first is None else ("v",))
    changed = plan.with_(joins=dict.fromkeys(plan.joins, Join.INNER))
    assert tuple(step.join.value for step in chains_of(settings, changed)["v"].steps) == joins


def test_columns_of_one_name_are_one_and_others_are_told_apart(tmp_path: Path) -> None:
    settings = read(tmp_path, f"left: orders, steps: [{USERS}, {CITIES}}}]")
    [view] = layout_of(settings, first_plan(settings)).views
    assert list(view.columns) == ["id", "userId", "at", "share", "name", "branch", "users_at"]
    settings = read(tmp_path, f"left: orders, steps: [{USERS}, {{right: cities, on: {{left: branch, right: name}}}}]")
    [view] = layout_of(settings, first_plan(settings)).views
    assert list(view.columns) == ["id", "userId", "at", "share", "name", "branch", "users_at", "cities_name"]


def test_source_has_a_hash_of_each_column_that_chains_join_by_and_no_other(tmp_path: Path) -> None:
    settings = read(tmp_path, f"left: orders, steps: [{USERS}, {CITIES}}}]")
    hashed = {source.source: source.hashed for source in layout_of(settings, first_plan(settings)).sources}
    assert hashed == {"orders": ("userId",), "users": ("name",), "branches": (), "cities": ()}


def test_tables_of_other_steps_are_built_anew(tmp_path: Path) -> None:
    texts = {
        layout_signature(read(tmp_path, f"left: orders, steps: [{steps}]"))
        for steps in (USERS, f"{USERS}, {CITIES}}}", f"{USERS}, {CITIES}, join: inner}}", "{right: cities, on: {left: id, right: name}}")
    }  # fmt: skip
    assert len(texts) == 4
