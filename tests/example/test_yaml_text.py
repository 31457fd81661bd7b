"""The file by example: whatever the records are, it loads, and decodes every record that was looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lengths import YAML_EXAMPLES
from sampled_topics import example, sampled
from turnout.config import Settings, parse
from turnout.config.document import parse_yaml
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.example.by_example import parts, quoted, whole_file
from turnout.example.suggestion import suggest
from turnout.example.topic_example import TopicExample, example_of
from turnout.schemas.record_decoder import RecordDecoder, raw

KAFKA = {"kafka": {"bootstrap_servers": "localhost:9092"}, "control": {"topic": "control"}}


def loaded(examples: list[TopicExample]) -> Settings:
    """The settings of the file for these topics."""
    document, wrong = parse_yaml(whole_file(suggest(examples), KAFKA, 500))
    assert wrong == []
    return parse(document, Path("/folder"), {})


_days = st.dates().map(str)
_moments = st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")
_fields = {
    "flags": st.booleans(),
    "small numbers": st.integers(-(2**31), 2**31),
    "large numbers": st.integers(-(10**45), 10**45),
    "fractions": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "money": st.decimals(-(10**20), 10**20, places=2).map(float),
    "texts": st.text(max_size=8),
    "numbers as texts": st.integers().map(str),
    "days": _days,
    "moments": _moments,
    "days and moments": _days | _moments,
    "anything": st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
}
_names = st.sampled_from(["userId", "on", "true", "null", "1", "a: b", "# x", "- y", "${HOME}", "größe", "_id"])
_names |= st.text(min_size=1, max_size=6)


@st.composite
def topics(draw: st.DrawFn) -> list[bytes | None]:
    """Records of one topic: each field has values of one kind, is null at times, and missing at others."""
    kinds = draw(st.dictionaries(_names, st.sampled_from(sorted(_fields)), min_size=1, max_size=6))
    shape = st.fixed_dictionaries({}, optional={name: st.none() | _fields[kind] for name, kind in kinds.items()})
    records = draw(st.lists(shape, min_size=1, max_size=12))
    return [json.dumps(record, ensure_ascii=draw(st.booleans())).encode(errors="ignore") for record in records]


@settings(max_examples=YAML_EXAMPLES)
@given(st.lists(topics(), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_file_loads_and_decodes_every_record_that_was_looked_at(values: list[list[bytes | None]], order: Any) -> None:
    names = order.sample(["users", "accounts", "7-up", "a.b", "a_b"], len(values))
    try:
        examples = [example_of(name, sampled(some), Settings()) for name, some in zip(names, values, strict=True)]
    except TurnoutError as error:
        assume(error.code != "bad_example")
        raise
    config = loaded(examples)
    assert [source.topic for source in config.sources.values()] == names
    layout = layout_of(config, first_plan(config))
    places = [(layout.topics.index(name), value) for name, some in zip(names, values, strict=True) for value in some]
    decoded = RecordDecoder(layout.sources).decode(raw([value for _, value in places], [place for place, _ in places]))
    assert decoded.faults is None, decoded.faults.to_pylist()
    assert sum(table.num_rows for table in decoded.rows.values()) == len(places)


@pytest.mark.parametrize(
    "name",
    ["on", "Yes", "null", "true", "1", "1.5", "a: b", "#x", "- y", "'q'", '"d"', "{a}", "größe", "😀", "x y ", "~"],
)
def test_names_are_read_as_they_were_sent(name: str) -> None:
    document, wrong = parse_yaml(f"columns: {{{quoted(name)}: string}}\nkey: {quoted(name)}\n")
    assert (document, wrong) == ({"columns": {name: "string"}, "key": name}, [])


def test_key_that_looks_like_a_variable_is_a_name() -> None:
    config = loaded([example("users", [{"${HOME}": "a"}, {"${HOME}": "b"}])])
    assert config.sources["users"].key == "${HOME}"


def test_comment_never_ends_its_line() -> None:
    found = example("users", [{"a\nsources: {}": 1, "b\u2028c": 1, "id": 1}])
    text = whole_file(suggest([found]), KAFKA, 500)
    assert set(loaded([found]).sources["users"].columns) == {"id"}
    assert len(text.splitlines()) == len(text.split("\n")) - 1


def test_evidence_stands_behind_each_line() -> None:
    users = example("users", [{"userId": f"u{n}", "age": 18 + n} for n in range(5)] + [None])
    accounts = example("accounts", [{"userId": f"u{n}", "balance": n / 2} for n in range(3)])
    assert (
        parts(suggest([users, accounts]))
        == """\
# Column types: string, boolean, int32, int64, float, double, decimal(p,s), date, timestamp.
sources:
  users:
    topic: users                          # 1 partition, 6 records, newest 6 read, 1 tombstone
    table: users_ui
    key: userId                           # in all records, 5 different values, 3 of them also in accounts
    columns:
      userId: string                      # 5 of 5 records, 5 different values
      age: int64                          # 5 of 5 records, 18 to 22
    rows: all                             # every record is a row (1 tombstone would be bad); latest: the newest of \
each userId
  accounts:
    topic: accounts                       # 1 partition, 3 records, newest 3 read
    table: accounts_ui
    key: userId                           # in all records, 3 different values, 3 of them also in users
    columns:
      userId: string                      # 3 of 3 records, 3 different values
      balance: double                     # 3 of 3 records, 0.0 to 1.0
    rows: all                             # every record is a row; latest: the newest of each userId

# Joins: left, natural, inner, right, full, semi, anti.
views:
  final_ui:
    left: users
    right: accounts
    on: userId                            # of the 5 values in users, 3 are in accounts
    join: left                            # every row of users, with the newest row of its key in the others, or nulls
"""
    )


def test_sources_without_a_view_are_told() -> None:
    alone = [example("users", [{"userId": n} for n in range(3)]), example("things", [{"thing": "x"}])]
    text = whole_file(suggest(alone), KAFKA, 500)
    assert "views: {}" in text and "userId (int64) of users, thing (string) of things" in text
    assert loaded(alone).views == {}
