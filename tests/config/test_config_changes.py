"""What differs between two configurations: nothing is missed or made up, no secret shows, each has its need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnout.config import Settings, parse
from turnout.config.changes import NEEDS, Needs, SettingChange, compare, needs_of
from turnout.config.config_errors import SettingPath, annotation_at, is_model, plain

TOKEN = "sixteen-letters-or-more"
OIDC = {"issuer": "https://id.example", "client_id": "c", "client_secret": "s", "roles": {"operator": ["ops"]}}
SOURCE = {"topic": "orders", "table": "orders_ui", "key": "id", "columns": {"id": "string", "amount": "int64"}}


def settings(**document: Any) -> Settings:
    return parse(document, Path("/etc/turnout"), {"OPS_TOKEN": TOKEN})


def leaves(annotation: Any, path: SettingPath = ()) -> Iterator[SettingPath]:
    """Every setting, with `NAME` for names that people choose."""
    annotation = plain(annotation)
    if is_model(annotation):
        for name, field in annotation.model_fields.items():
            yield from leaves(field.annotation, (*path, name))
    elif get_origin(annotation) is dict and is_model(plain(get_args(annotation)[1])):
        yield from leaves(get_args(annotation)[1], (*path, "NAME"))
    elif get_origin(annotation) is tuple and is_model(plain(get_args(annotation)[0])):
        yield from leaves(get_args(annotation)[0], (*path, 0))
    else:
        yield path


def test_every_setting_is_in_the_table() -> None:
    found = list(leaves(Settings))
    assert len(found) > 80
    assert [path for path in found if needs_of(path) not in Needs] == []


def test_table_names_settings_that_there_are_and_each_once() -> None:
    for name in NEEDS:
        path = tuple(name.split("."))
        assert annotation_at(Settings, path) is not None, name
        above = [".".join(path[:length]) for length in range(1, len(path))]
        assert not set(above) & set(NEEDS), f"{name} is in a section that the table has as a whole"


def test_setting_that_is_not_in_the_table_is_a_fault() -> None:
    with pytest.raises(KeyError, match=r"server\.new_setting is not in the table"):
        needs_of(("server", "new_setting"))


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({}, {"server": {"max_viewers": 7}}, [("server.max_viewers", 500, 7, "nothing")]),
        ({}, {"server": {"port": 0}}, [("server.port", 10000, 0, "restart")]),
        ({}, {"start": "earliest"}, [("start", "latest", "earliest", "generation")]),
        ({}, {"data_dir": "x"}, [("data_dir", "/etc/turnout/turnout-data", "/etc/turnout/x", "restart")]),
        ({}, {"control": {"topics": "users-*"}}, [("control.topics", [], ["users-*"], "nothing")]),
        (
            {},
            {"start": {"timestamp": "2026-01-01T00:00:00Z"}},
            [("start", "latest", {"timestamp": "2026-01-01T00:00:00Z"}, "generation")],
        ),
        (
            {"sources": {"orders": SOURCE}, "views": {}},
            {"sources": {"orders": SOURCE | {"columns": {"id": "string", "amount": "double"}}}, "views": {}},
            [("sources.orders.columns.amount", "int64", "double", "generation")],
        ),
        (
            {"sources": {"orders": SOURCE}, "views": {}},
            {"sources": {"orders": SOURCE | {"columns": {"amount": "int64", "id": "string"}}}, "views": {}},
            [("sources.orders.columns", ["id", "amount"], ["amount", "id"], "generation")],
        ),
        (
            {"sources": {"orders": SOURCE, "other": SOURCE | {"table": "t"}}, "views": {}},
            {"sources": {"orders": SOURCE}, "views": {}},
            [("sources.other", SOURCE | {"table": "t"}, None, "generation")],
        ),
        (
            {},
            {"access": {"tokens": [{"name": "ops", "role": "operator", "token": TOKEN}]}},
            [("access", None, {"tokens": [{"name": "ops", "role": "operator", "token": "***"}]}, "restart")],
        ),
        (
            {"access": {"tokens": [{"name": "ops", "role": "operator", "token": TOKEN}]}},
            {"access": {"tokens": [{"name": "ops", "role": "viewer", "token": f"{TOKEN}-2"}]}},
            [
                ("access.tokens[0].role", "operator", "viewer", "restart"),
                ("access.tokens[0].token", "***", "***", "restart"),
            ],
        ),
        (
            {"access": {"oidc": OIDC}},
            {"access": {"oidc": OIDC | {"client_secret": "another", "roles": {"operator": ["ops", "all"]}}}},
            [
                ("access.oidc.client_secret", "***", "***", "restart"),
                ("access.oidc.roles.operator", ["ops"], ["ops", "all"], "restart"),
            ],
        ),
        (
            {"spark": {"conf": {"spark.a": "1"}}},
            {"spark": {"conf": {"spark.a": "2", "spark.b": "3"}}},
            [("spark.conf.spark.a", "***", "***", "restart"), ("spark.conf.spark.b", None, "***", "restart")],
        ),
        # Written otherwise, and the same.
        (
            {},
            {"views": {"final_ui": {"left": "users", "right": ["accounts"], "on": "userId", "join": "leftouter"}}},
            [],
        ),
        ({}, {"swap": {"linger_seconds": 8}, "server": None}, []),
    ],
)
def test_compare_names_each_difference(
    old: dict[str, Any], new: dict[str, Any], changes: list[tuple[str, Any, Any, str]]
) -> None:
    found = compare(settings(**old), settings(**new))
    assert [tuple(change.model_dump(mode="json").values()) for change in found] == changes
    json.dumps([change.model_dump(mode="json") for change in found])


def test_change_is_one_line() -> None:
    change = SettingChange(path="sources.users.columns.phone", before=None, after="string", needs=Needs.GENERATION)
    assert str(change) == "sources.users.columns.phone: none -> string"
    gone = SettingChange(path="sources.x", before={"topic": "t", "key": "k"}, after=None, needs=Needs.GENERATION)
    assert str(gone) == "sources.x: (topic, key) -> none"


kinds = st.sampled_from(["string", "int64", "double", "decimal(9,2)"])
sources = st.builds(
    lambda topic, columns, rows: {
        "topic": topic,
        "key": "id",
        "columns": dict([("id", "string"), *columns.items()][:: 1 if rows == "all" else -1]),
        "rows": rows,
    },
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), kinds, max_size=3),
    st.sampled_from(["all", "latest"]),
)
documents = st.builds(
    lambda found, limit, password, start: {
        "sources": {name: {**source, "table": f"{name}_ui"} for name, source in found.items()},
        "views": {},
        "server": {"max_viewers": limit},
        "kafka": {"properties": {"ssl.key.password": password}},
        "start": start,
    },
    st.dictionaries(st.sampled_from(["one", "two", "three"]), sources, min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from(["hunter2-a", "hunter2-b"]),
    st.sampled_from(["latest", "earliest"]),
)


@given(documents, documents)
def test_compare_finds_a_difference_exactly_where_settings_differ(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = settings(**old), settings(**new)
    there, back = compare(before, after), compare(after, before)
    assert compare(before, before) == ()
    assert {(c.path, json.dumps([c.before, c.after])) for c in there} == {
        (c.path, json.dumps([c.after, c.before])) for c in back
    }
    ordered = [json.dumps(_plain(one), default=str) for one in (before, after)]
    assert bool(there) == (ordered[0] != ordered[1])
    assert "hunter2" not in json.dumps([change.model_dump(mode="json") for change in there])


def _plain(value: Any) -> Any:
    """Settings as nested lists, so that the order of names counts."""
    if isinstance(value, BaseModel):
        return [(name, _plain(getattr(value, name))) for name in type(value).model_fields]
    if isinstance(value, dict):
        return [(name, _plain(held)) for name, held in value.items()]
    return value
