"""Sources, keys and views by example: what shares a key is joined, and each choice says why."""

from __future__ import annotations

from typing import Any

import pytest

from sampled_topics import example
from turnout.config import SourceSettings
from turnout.example.suggestion import MOST_READ_FROM_START, Suggestion, source_names, suggest
from turnout.example.topic_example import TopicExample
from turnout.kafka.topics import TopicSample
from turnout_client.column_types import ColumnType

USERS = [{"userId": f"u{n % 30}", "name": f"n{n}", "email": f"e{n}@x", "age": n, "active": True} for n in range(40)]
ACCOUNTS = [{"accountId": n, "userId": f"u{n}", "type": "gold", "balance": n / 2} for n in range(20)]


def keys(suggestion: Suggestion) -> dict[str, str]:
    return {source.name: source.key.name for source in suggestion.sources}


def known_source(key: str, *columns: str) -> SourceSettings:
    types = dict.fromkeys(columns, ColumnType.parse("string"))
    return SourceSettings(topic="t", table="t_ui", key=key, columns=types)


def test_topics_that_share_an_id_are_joined_by_it() -> None:
    found = suggest([example("users", USERS), example("accounts", ACCOUNTS)])
    assert keys(found) == {"users": "userId", "accounts": "userId"}
    [view] = found.views
    assert (view.name, view.left, view.right, view.on) == ("final_ui", "users", ("accounts",), "userId")
    assert view.evidence == "of the 30 values in users, 20 are in accounts"
    evidence = found.sources[0].key.evidence
    assert evidence == "in all records, 30 different values, 20 of them also in accounts"
    assert found.sources[1].key.evidence.endswith("20 of them also in users, or: accountId")


@pytest.mark.parametrize(
    ("topic", "records", "key"),
    [
        ("users", USERS, "userId"),
        ("accounts", ACCOUNTS, "accountId"),
        ("things", [{"when": "2026-01-01", "name": f"n{n}"} for n in range(9)], "name"),
        ("users", [{"paid": n, "userid": n % 3} for n in range(9)], "userid"),
        ("readings", [{"value": n / 3, "sensor_id": n % 2} for n in range(9)], "sensor_id"),
        ("nested", [{"doc": {"a": n}, "country": "x"} for n in range(9)], "country"),
    ],
)
def test_likely_key_of_a_single_topic(topic: str, records: list[dict[str, Any]], key: str) -> None:
    found = suggest([example(topic, records)])
    assert list(keys(found).values()) == [key]
    assert found.views == ()


def test_kafkas_key_is_the_key_where_no_other_topic_shares_one() -> None:
    records = [{"id": n, "code": f"c{n}"} for n in range(9)]
    [source] = suggest([example("things", records, [f"c{n}" for n in range(9)])]).sources
    assert source.key.name == "code"
    assert "Kafka's key" in source.key.evidence


def test_words_that_topics_share_by_chance_join_nothing() -> None:
    users = [{"userId": f"u{n}", "status": "active"} for n in range(20)]
    orders = [{"orderId": n, "status": "active"} for n in range(20)]
    found = suggest([example("users", users), example("orders", orders)])
    assert keys(found) == {"users": "userId", "orders": "orderId"}
    assert found.views == ()


def test_numbers_and_texts_of_one_key_meet_as_texts() -> None:
    numbers, texts = [{"userId": n} for n in range(9)], [{"userId": str(n), "x": 1} for n in range(9)]
    found = suggest([example("users", numbers), example("accounts", texts)])
    assert [source.key.kind for source in found.sources] == ["string", "string"]
    assert len(found.views) == 1
    assert "string as the key of other sources" in found.sources[0].columns[0].evidence


def test_keys_that_cannot_meet_keep_their_types_and_are_not_joined() -> None:
    numbers, texts = [{"userId": n} for n in range(9)], [{"userId": f"u{n}"} for n in range(9)]
    found = suggest([example("users", numbers), example("accounts", texts)])
    assert [source.key.kind for source in found.sources] == ["int64", "string"]
    assert found.views == ()
    assert len(found.alone) == 2


def test_key_with_exceptions_is_a_text_in_all_sources_so_that_no_row_loses_its_key() -> None:
    users: list[dict[str, Any]] = [{"userId": n, "age": n} for n in range(98)] + [
        {"userId": "x1", "age": "?"},
        {"userId": "x2", "age": 1},
    ]
    accounts = [{"userId": n, "balance": n / 2} for n in range(20)]
    texts = [str(record["userId"]) for record in users]
    found = suggest([example("users", users, [*texts]), example("accounts", accounts)])
    assert [source.key.kind for source in found.sources] == ["string", "string"]
    assert [view.on for view in found.views] == ["userId"]
    assert found.sources[0].rows[0] == "latest"  # Kafka's key is its text
    assert [column.kind for column in found.sources[0].columns] == ["string", "int64"]


def test_key_is_exact_even_where_no_field_is() -> None:
    [source] = suggest([example("rates", [{"rate": 1.5}, {"rate": 2.5}])]).sources
    assert source.key.kind == "string"
    assert "so this one is used as text" in source.key.evidence


@pytest.mark.parametrize(
    ("keyed", "compacted", "rows", "why"),
    [
        (True, True, "latest", "the topic is compacted, and Kafka's key is userId"),
        (True, False, "latest", "Kafka's key is userId"),
        (True, None, "latest", "Kafka's key is userId"),
        (False, True, "latest", "Kafka's key is not userId, so tombstones remove nothing"),
        (False, False, "all", "latest: the newest of each userId"),
    ],
)
def test_newest_rows_are_suggested_where_kafka_says_so(
    keyed: bool, compacted: bool | None, rows: str, why: str
) -> None:
    texts = [f"u{n}" for n in range(9)]
    given: list[str | bytes | None] = [*texts] if keyed else [None] * 9
    [source] = suggest([example("users", [{"userId": text} for text in texts], given, compacted=compacted)]).sources
    assert source.rows[0] == rows
    assert why in source.rows[1]


def test_compacted_by_another_field_means_every_record() -> None:
    orders = [{"orderId": f"o{n}", "userId": f"u{n % 3}"} for n in range(9)]
    users = [{"userId": f"u{n}"} for n in range(3)]
    by_order = example("orders", orders, [f"o{n}" for n in range(9)], compacted=True)
    found = suggest([by_order, example("users", users)])
    assert keys(found) == {"orders": "userId", "users": "userId"}
    assert [source.rows[0] for source in found.sources] == ["all", "all"]


def test_tombstones_are_counted() -> None:
    [source] = suggest([example("users", [{"userId": "u1"}, None], ["u1", "u1"])]).sources
    assert source.rows[0] == "latest"
    [source] = suggest([example("users", [{"userId": "u1"}, None])]).sources
    assert source.rows == ("all", "every record is a row (1 tombstone would be bad); latest: the newest of each userId")


def test_three_topics_of_one_key_are_one_view() -> None:
    cards = [{"userId": f"u{n}", "card": n} for n in range(5)]
    found = suggest([example("users", USERS), example("accounts", ACCOUNTS), example("cards", cards)])
    assert [view.right for view in found.views] == [("accounts", "cards")]


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["users", "accounts"], ["users", "accounts"]),
        (["machines-north", "readings-north"], ["machines", "readings"]),
        (["prod.users.v1", "prod.accounts.v1"], ["users", "accounts"]),
        (["users-a", "users-b"], ["a", "b"]),
        (["users", "Users"], ["users", "Users_2"]),
        (["7up", "___"], ["topic_7up", "topic"]),
        (["users"], ["users"]),
    ],
)
def test_sources_are_named_by_what_differs(topics: list[str], names: list[str]) -> None:
    assert source_names(topics) == names


def test_topic_beside_sources_of_a_file_is_joined_with_those_of_its_key() -> None:
    known = {
        "users": known_source("userId", "userId", "name"),
        "machines": known_source("machineId", "machineId"),
    }
    found = suggest([example("accounts", ACCOUNTS)], known, ["users_ui", "accounts_ui", "final_ui"])
    [source], [view] = found.sources, found.views
    assert (source.name, source.table, source.key.name) == ("accounts", "accounts_ui_2", "userId")
    assert "also the key of users" in source.key.evidence
    assert (view.name, view.left, view.right) == ("accounts_users_ui", "accounts", ("users",))


def test_reading_begins_at_the_start_unless_that_takes_minutes() -> None:
    small = example("users", USERS)
    large = TopicExample(small.topic, small.format, TopicSample(1, MOST_READ_FROM_START + 1, ()), small.columns, {}, {})
    assert suggest([small]).start[0] == "earliest"
    assert suggest([large]).start[0] == "latest"
