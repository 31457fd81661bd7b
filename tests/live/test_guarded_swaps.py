"""Guards of real swaps: one that would show far less is stopped, kept for review, or rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from in_process_turnout import ServedTurnout
from kafka_log import read_all
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, produce, wait_until
from turnout_process import ASKED_SECONDS
from two_topics import account, sections, user, wait_said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 100
GUARDS = {"min_rows": "50%", "min_matched": "80%", "max_bad": "1%"}


@dataclass(frozen=True, slots=True)
class Names:
    """Topics of users: the first, one that is as good, an empty one, one of other keys, and one with bad records."""

    bootstrap: str
    users: str
    good: str
    empty: str
    others: str
    bad: str
    accounts: str
    acks: str

    def served(self, folder: Path, spark: SparkSession, **guards: Any) -> ServedTurnout:
        swap = {"linger_seconds": 3600, "guards": GUARDS | guards}
        given = sections(self.users, self.accounts, swap=swap)
        given["control"]["ack_topic"] = self.acks
        return ServedTurnout(folder, spark, self.bootstrap, **given)


@pytest.fixture
def names(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Names:
    made = Names(broker.bootstrap_servers, *map(topic_name, (*["users"] * 5, "accounts", "acks")))
    for topic in (made.users, made.good, made.empty, made.others, made.bad, made.accounts, made.acks):
        create_topic(made.bootstrap, topic, 1)
    create_topic(made.bootstrap, f"{made.users}-control", 1)
    for topic in (made.users, made.good):
        produce(made.bootstrap, topic, [user(number) for number in range(RECORDS)])
    produce(made.bootstrap, made.others, [user(number) | {"userId": f"x{number}"} for number in range(RECORDS)])
    produce(made.bootstrap, made.bad, ["not JSON"] * 5 + [user(number) for number in range(5, RECORDS)])
    produce(made.bootstrap, made.accounts, [account(number) for number in range(RECORDS)])
    return made


def send(turnout: ServedTurnout, path: str = "control", **message: Any) -> dict[str, Any]:
    """The outcome of a message, or its error."""
    answer = turnout.http.post(f"/api/{path}", json=message).json()
    found: dict[str, Any] = answer.get("error", answer)
    return found


def change_swap(turnout: ServedTurnout, **swap: Any) -> None:
    document = yaml.safe_load(turnout.config.read_text())
    document["swap"] |= swap
    assert turnout.put_config(yaml.safe_dump(document)).json()["outcome"] == "applied"


def test_guards_stop_swaps_that_would_show_far_less(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    with names.served(tmp_path, spark) as turnout:
        told = {}
        for name, topic in (("empty", names.empty), ("others", names.others), ("bad", names.bad)):
            error = send(turnout, usersTopic=topic, requestId=name)
            assert error["code"] == "guard_broken", error
            told[name] = error["message"]
            assert (turnout.status()["generation"], turnout.status()["candidate"]) == (1, None)
            assert turnout.total("final_ui") == RECORDS
        assert told["empty"] == "min_rows: final_ui has 0 rows instead of 100; at least 50% of these are required"
        assert told["others"].startswith("min_matched: final_ui matches 0% of its left rows (0 of 100)")
        assert " instead of 100% (" in told["others"]
        assert told["bad"] == "max_bad: 5 of 100 records have faults (5%); at most 1% may"
        swaps = turnout.rows("swaps")[1:]
        assert [row["outcome"] for row in swaps] == ["rejected"] * 3
        for row, message in zip(swaps, told.values(), strict=True):
            assert row["detail"].startswith(message)
        metrics = turnout.http.get("/metrics").text
        for guard in GUARDS:
            assert f'turnout_guards_broken_total{{guard="{guard}"}} 1.0' in metrics
        wait_until(lambda: len(read_all(names.bootstrap, [names.acks])) == 3, what="acknowledgements")
        wait_said(turnout, "was rejected: max_bad: 5 of 100 records")

        assert send(turnout, usersTopic=names.good)["outcome"] == "applied"
        assert send(turnout, usersTopic=names.empty, force=True)["outcome"] == "applied"
        assert turnout.total("final_ui") == 0
        assert send(turnout, "rollback")["outcome"] == "rolled_back", "a rollback is not guarded"


def test_source_that_begins_at_latest_is_guarded_once_it_has_rows(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    with names.served(tmp_path, spark) as turnout:
        answer = send(turnout, usersTopic=names.others, start={"users": "latest"}, publish=False)
        assert (answer["outcome"], "breaks guards" in answer["detail"]) == ("candidate", False)
        produce(names.bootstrap, names.others, [user(number) for number in range(3)])
        wait_until(lambda: turnout.total("final_ui@2") == 3, interval=ASKED_SECONDS, what="rows of the candidate")
        error = send(turnout, "publish")
        assert error["message"] == "min_rows: final_ui has 3 rows instead of 100; at least 50% of these are required"
        assert turnout.status()["candidate"]["generation"] == 2, "it stays a candidate"
        assert send(turnout, "publish", force=True)["generation"] == 2
        assert send(turnout, usersTopic=names.empty, start={"users": "latest"})["outcome"] == "applied"


def test_broken_guard_makes_a_candidate_where_it_is_to_be_reviewed(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    with names.served(tmp_path, spark, on_break="review") as turnout:
        answer = send(turnout, usersTopic=names.bad)
        assert (answer["outcome"], answer["generation"]) == ("candidate", 2)
        assert "it breaks guards: max_bad: 5 of 100 records have faults (5%)" in answer["detail"]
        assert turnout.total("final_ui@2") == RECORDS - 5 and turnout.total("final_ui") == RECORDS
        assert send(turnout, "publish")["code"] == "guard_broken"

        # An applied file is guarded, too; published later, it is in force as a whole.
        document = yaml.safe_load(turnout.config.read_text())
        document["sources"]["users"]["topic"] = names.empty
        document["views"] = {"new_ui": {"left": "users", "right": "accounts", "on": "userId", "join": "inner"}}
        document["views"]["final_ui"] = {"left": "users", "right": "accounts", "on": "userId"}
        document["server"]["max_viewers"] = 77
        applied = turnout.put_config(yaml.safe_dump(document)).json()
        assert (applied["outcome"], applied["generation"]) == ("candidate", 3)
        assert "max_viewers: 77" not in turnout.http.get("/api/config").text
        assert turnout.total("new_ui@3") == 0, "a table that only the candidate has"
    with turnout:
        assert turnout.status()["candidate"]["generation"] == 3
        assert send(turnout, "publish", force=True)["outcome"] == "applied"
        assert turnout.total("new_ui") == 0
        assert "max_viewers: 77" in turnout.http.get("/api/config").text


def test_watch_rolls_back_when_the_linger_time_ends(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    with names.served(tmp_path, spark, watch=True) as turnout:
        assert send(turnout, usersTopic=names.good)["generation"] == 2
        change_swap(turnout, linger_seconds=0)
        wait_until(lambda: turnout.status()["lingering"] == [], interval=ASKED_SECONDS, what="a quiet end")
        assert turnout.status()["generation"] == 2

        change_swap(turnout, linger_seconds=3600)
        assert send(turnout, usersTopic=names.users)["generation"] == 3
        produce(names.bootstrap, names.users, ["not JSON"] * 5)
        wait_until(lambda: turnout.total("bad_records") == 5, interval=ASKED_SECONDS, what="the bad records")
        change_swap(turnout, linger_seconds=0)
        wait_until(lambda: turnout.status()["generation"] == 2, interval=ASKED_SECONDS, what="the rollback")
        last = turnout.rows("swaps")[-1]
        assert (last["outcome"], last["generation"], last["requester"]) == ("rolled_back", 2, "guards")
        assert last["detail"].startswith("generation 3 breaks guards: max_bad: 5 of 105 records have faults (4.762%)")
        wait_said(turnout, "generation 3 breaks guards", "generation 2 is published again")
        assert turnout.total("final_ui") == RECORDS
