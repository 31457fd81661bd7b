"""Plans: start positions, JSON and changes."""

import json
from typing import Any

import pytest

from turnout.config import Settings
from turnout.config.tables import first_plan, starts_of
from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start, parse_topic

PLAN = Plan({"users": "users", "accounts": "accounts"}, {"final_ui": Join.LEFT}, Start())
NEW_YEAR_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("latest", Start("latest")),
        (" Earliest ", Start("earliest")),
        (Start("earliest"), Start("earliest")),
        ({"timestamp": "2026-01-01T00:00:00Z"}, Start("timestamp", NEW_YEAR_MS)),
        ({"timestamp": "2026-01-01T02:00:00.250+02:00"}, Start("timestamp", NEW_YEAR_MS + 250)),
        ({"timestamp": "2026-01-01"}, Start("timestamp", NEW_YEAR_MS)),
    ],
)
def test_start_is_read_from_all_its_forms(value: object, start: Start) -> None:
    assert Start.parse(value) == start
    assert Start.parse(json.loads(json.dumps(start.to_json()))) == start


@pytest.mark.parametrize("value", ["newest", "", None, 5, True, [], {}, {"timestamp": "x", "more": 1}, {"offset": 3}])
def test_start_that_is_unknown_lists_what_is_known(value: object) -> None:
    with pytest.raises(ValueError, match=r"known: latest, earliest, \{timestamp"):
        Start.parse(value)


@pytest.mark.parametrize("value", ["yesterday", "", 5, None, "1969-12-31T00:00:00Z"])
def test_start_timestamp_that_is_no_moment_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        Start.parse({"timestamp": value})


def test_start_with_half_a_timestamp_cannot_exist() -> None:
    with pytest.raises(ValueError, match="one needs the other"):
        Start("timestamp")


def test_plan_of_default_settings() -> None:
    assert first_plan(Settings()) == PLAN


@pytest.mark.parametrize("start", [Start(), Start("earliest"), Start("timestamp", NEW_YEAR_MS + 1)])
def test_plan_survives_json(start: Start) -> None:
    plan = PLAN.with_(start=start)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_sources_of_one_topic_are_read_from_the_earliest_of_their_starts() -> None:
    moment, latest, earliest = Start("timestamp", NEW_YEAR_MS), Start(), Start("earliest")
    for starts, start in [((latest, moment), moment), ((moment, earliest), earliest), ((latest, latest), latest)]:
        for pair in (starts, starts[::-1]):
            plan = PLAN.with_(topics={"users": "accounts"}, starts=dict(zip(PLAN.topics, pair, strict=True)))
            assert starts_of(Settings(), plan) == {"accounts": start}


def test_plan_changes_only_what_is_given() -> None:
    changed = PLAN.with_(topics={"users": "users2"}, joins={"final_ui": Join.INNER})
    assert dict(changed.topics) == {"users": "users2", "accounts": "accounts"}
    assert (changed.joins["final_ui"], changed.start) == (Join.INNER, PLAN.start)
    assert PLAN.with_() == PLAN


@pytest.mark.parametrize("change", [{"topics": {"orders": "x"}}, {"joins": {"orders_ui": Join.LEFT}}])
def test_plan_refuses_a_change_of_what_it_does_not_have(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no (source|view) 'orders.*has: "):
        PLAN.with_(**change)


def test_plan_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        PLAN.topics["users"] = "x"  # type: ignore[index]


def test_plan_describes_itself_in_one_line() -> None:
    assert PLAN.with_(topics={"users": "users2"}).describe() == "users=users2 accounts=accounts join=left"
    two = Plan({"a": "t"}, {"x": Join.LEFT, "y": Join.FULL}, Start("timestamp", NEW_YEAR_MS))
    assert two.describe() == "a=t x=left y=full start=2026-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n"])
def test_topic_name_that_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka topic name"):
        parse_topic(text)
