"""Candidates: built beside what is shown, read while they wait, and published, discarded, replaced or expired."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from background_work import beside
from in_process_turnout import ServedTurnout
from kafka_writer import writing
from lengths import APPLIES_VIEWERS, CANDIDATES, LONG
from live_socket import sorted_rows_of
from live_watchers import Watcher, grown, held
from mcp_agent import Agent, talk
from sink_reader import SunkTopic, bag
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, delete_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS
from two_topics import account, sections, user, wait_said, wait_total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 20


@dataclass(frozen=True, slots=True)
class Names:
    """Three topics of users, which differ in the names of their users, and one of accounts."""

    bootstrap: str
    users: str
    users2: str
    users3: str
    accounts: str

    def served(self, folder: Path, spark: SparkSession, **swap: Any) -> ServedTurnout:
        given = sections(self.users, self.accounts, swap={"linger_seconds": 600, **swap})
        return ServedTurnout(folder, spark, self.bootstrap, **given)


@pytest.fixture
def names(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Names:
    made = Names(broker.bootstrap_servers, *map(topic_name, ("users", "users", "users", "accounts")))
    for topic in (made.users, made.users2, made.users3, made.accounts, f"{made.users}-control"):
        create_topic(made.bootstrap, topic, 1)
    for topic in (made.users, made.users2, made.users3):
        produce(made.bootstrap, topic, [named(topic, number) for number in range(RECORDS)])
    produce(made.bootstrap, made.accounts, [account(number) for number in range(RECORDS)])
    return made


def named(topic: str, number: int) -> dict[str, Any]:
    return user(number) | {"name": topic}


def send(turnout: ServedTurnout, path: str = "control", **message: Any) -> dict[str, Any]:
    """The outcome of a message, or its error."""
    answer: dict[str, Any] = turnout.http.post(f"/api/{path}", json=message).json()
    return answer


def outcome(turnout: ServedTurnout, path: str = "control", **message: Any) -> tuple[Any, int]:
    answer = send(turnout, path, **message)
    return answer.get("outcome", answer.get("error")), answer.get("generation", 0)


def shown(turnout: ServedTurnout, table: str = "final_ui") -> set[str]:
    """The topics whose users a table shows."""
    return {row["name"] for row in turnout.rows(table)}


def history(turnout: ServedTurnout) -> list[tuple[str, int]]:
    return [(row["outcome"], row["generation"]) for row in turnout.rows("swaps")]


def wait_closed(turnout: ServedTurnout, generation: int) -> None:
    """Wait until nothing of a generation is left."""
    wait_until(
        lambda: turnout.answer(f"/api/tables/final_ui@{generation}/rows") == 404,
        interval=ASKED_SECONDS,
        what=f"the end of generation {generation}",
    )


def test_publishing_does_what_the_difference_announced(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    sink = f"{names.users}-out"
    create_topic(names.bootstrap, sink, 1)
    produce(names.bootstrap, names.users2, [named(names.users2, RECORDS)])
    given = sections(names.users, names.accounts, swap={"linger_seconds": 600})
    given["sinks"] = {"out": {"table": "final_ui", "topic": sink}}
    with ServedTurnout(tmp_path, spark, names.bootstrap, **given) as turnout:
        folded = SunkTopic(names.bootstrap, sink)
        wait_until(lambda: folded.rows() == bag(turnout.rows("final_ui")), interval=ASKED_SECONDS, what="the sink")
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        found = turnout.http.get("/api/tables/final_ui/difference", params={"limit": 1000}).json()
        assert found["counts"] == {"added": 1, "removed": 0, "changed": RECORDS, "same": 0}
        assert [column["name"] for column in found["columns"] if column["changed"]] == ["name"]
        before = bag(turnout.rows("final_ui"))
        assert outcome(turnout, "publish", expectedGeneration=2) == ("applied", 2)
        after = bag(turnout.rows("final_ui"))
        for side, rows in (("from", before - after), ("to", after - before)):
            assert rows == bag(row[side] for row in found["rows"] if row[side] is not None)
        wait_until(lambda: folded.rows() == after, interval=ASKED_SECONDS, what="the sink after the swap")
        written = [record for record in folded.records if record.version[0] == 2]
        assert [{"sink": "out", "records": len(written)}] == found["sinks"]
        folded.close()


def test_candidate_reads_on_and_is_published_at_once(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    with names.served(tmp_path, spark) as turnout:
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        status = turnout.status()
        assert (status["generation"], status["state"], status["usersTopic"]) == (1, "live", names.users)
        assert status["candidate"]["generation"] == 2
        assert f"users={names.users2} " in status["candidate"]["plan"]
        assert status["candidate"]["since"] < status["candidate"]["expiresAt"]
        assert shown(turnout) == {names.users} and shown(turnout, "final_ui@2") == {names.users2}
        assert "turnout_candidate_generation 2.0" in turnout.http.get("/metrics").text

        produce(names.bootstrap, names.users2, [named(names.users2, RECORDS)])
        wait_until(
            lambda: turnout.total("final_ui@2") == RECORDS + 1, interval=ASKED_SECONDS, what="the candidate to read on"
        )
        assert turnout.total("final_ui") == RECORDS

        def sides() -> list[tuple[int, int | None]]:
            found = turnout.http.get("/api/tables/final_ui/difference", params={"limit": 0}).json()
            return [(found[side]["generation"], found[side]["lag"]) for side in ("from", "to")]

        wait_until(lambda: sides() == [(1, 0), (2, 0)], interval=ASKED_SECONDS, what=lambda: f"no lag: {sides()}")

        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("unchanged", 1)
        assert outcome(turnout, usersTopic=names.users, publish=False) == ("unchanged", 1)
        assert outcome(turnout, usersTopic=names.users3, publish=False, dryRun=True) == ("unchanged", 1)
        conflict = send(turnout, "publish", expectedGeneration=1)["error"]
        assert conflict["code"] == "generation_conflict" and "generation 2 is the candidate" in conflict["message"]

        assert outcome(turnout, "publish", expectedGeneration=2) == ("applied", 2)
        status = turnout.status()
        assert (status["generation"], status["candidate"], status["lingering"]) == (2, None, [1])
        assert shown(turnout) == {names.users2} and turnout.total("final_ui") == RECORDS + 1
        assert history(turnout) == [("applied", 1), ("candidate", 2), ("applied", 2)]
        assert send(turnout, "publish")["error"]["code"] == "no_candidate"
        assert outcome(turnout, "rollback") == ("rolled_back", 1)
        assert shown(turnout) == {names.users}


def test_agent_proposes_a_swap_with_its_difference_and_publishes_where_it_may(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    async def work(agent: Agent) -> None:
        tried = await agent.call("check_swap", topics={"users": names.users2})
        assert tried["outcome"] == "unchanged"
        assert "unknown_topic" in await agent.refusal("propose_swap", topics={"users": "there-is-none"})
        found = await agent.call("propose_swap", topics={"users": names.users2})
        assert (found["outcome"], found["generation"]) == ("candidate", 2) and "a person" in found["next"]
        [difference] = found["differences"]
        assert (difference["table"], difference["counts"]["changed"]) == ("final_ui", RECORDS)
        assert f"of {RECORDS}" in difference["note"] and difference["rows"][0]["to"]["name"] == names.users2
        compared = await agent.call("compare", table="users_ui", where=["userId = u1"])
        assert [row["from"]["name"] for row in compared["rows"]] == [names.users] and "note" not in compared
        assert shown(turnout) == {names.users}, "a proposal publishes nothing"
        assert "generation_conflict" in await agent.refusal("publish_candidate", generation=1)
        assert (await agent.call("publish_candidate", generation=2))["outcome"] == "applied"
        history = await agent.call("get_history", limit=1)
        assert (history["rows"][0]["outcome"], history["rows"][0]["requester"]) == ("applied", "ops")

    token = "0123456789abcdef-ops"
    access = {"mcp": "publish", "tokens": [{"name": "ops", "role": "operator", "token": token}]}
    given = sections(names.users, names.accounts, access=access)
    with ServedTurnout(tmp_path, spark, names.bootstrap, **given) as turnout:
        turnout.http.headers["Authorization"] = f"Bearer {token}"
        talk(turnout.url, work, token=token)
        assert shown(turnout) == {names.users2}


def test_candidate_is_replaced_discarded_and_left_alone_by_failures(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    with names.served(tmp_path, spark) as turnout:
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        assert outcome(turnout, usersTopic=names.users3, publish=False) == ("candidate", 3)
        wait_closed(turnout, 2)
        assert send(turnout, usersTopic="there-is-none", publish=False)["error"]["code"] == "unknown_topic"
        assert turnout.status()["candidate"]["generation"] == 3, "a refused one replaces nothing"
        assert outcome(turnout, "discard") == ("applied", 1)
        assert turnout.status()["candidate"] is None
        wait_closed(turnout, 3)
        assert send(turnout, "discard")["error"]["code"] == "no_candidate"

        assert outcome(turnout, usersTopic=names.users3, publish=False) == ("candidate", 4)
        assert outcome(turnout, joinType="inner") == ("applied", 5)
        assert (turnout.status()["candidate"], shown(turnout)) == (None, {names.users})
        wait_closed(turnout, 4)
        assert outcome(turnout, usersTopic=names.users3, publish=False) == ("candidate", 6)
        assert outcome(turnout, "rollback") == ("rolled_back", 1)
        wait_closed(turnout, 6)
        of_candidates = [row for row in history(turnout) if row[0] in ("candidate", "discarded")]
        assert of_candidates == [(name, number) for number in (2, 3, 4, 6) for name in ("candidate", "discarded")]
        details = [row["detail"] for row in turnout.rows("swaps") if row["outcome"] == "discarded"]
        assert details == [
            "replaced by generation 3",
            "discarded by http",
            "replaced by generation 5",
            "replaced by generation 1",
        ]


def test_candidate_outlives_restarts_and_ends_with_its_time(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    turnout = names.served(tmp_path, spark)
    with turnout:
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        before = turnout.status()["candidate"]
    produce(names.bootstrap, names.users2, [named(names.users2, RECORDS)])
    with turnout:
        assert turnout.status()["candidate"] == before
        assert shown(turnout) == {names.users}
        wait_until(
            lambda: turnout.total("final_ui@2") == RECORDS + 1, interval=ASKED_SECONDS, what="the candidate to read on"
        )
        assert outcome(turnout, "publish") == ("applied", 2)
        assert outcome(turnout, usersTopic=names.users3, publish=False) == ("candidate", 3)
    ends = names.served(tmp_path / "again", spark, candidate_seconds=0.5)
    turnout.config.write_text(ends.config.read_text().replace(str(ends.data_dir), str(turnout.data_dir)))
    turnout.config.write_text(turnout.config.read_text().replace(str(ends.port), str(turnout.port)))
    with turnout:
        wait_until(lambda: turnout.status()["candidate"] is None, interval=ASKED_SECONDS, what="the end of its time")
        wait_closed(turnout, 3)
        assert shown(turnout) == {names.users2}
        last = turnout.rows("swaps")[-1]
        assert (last["outcome"], last["generation"], last["requester"]) == ("discarded", 3, "turnout")
        assert last["detail"] == "it expired (swap.candidate_seconds: 0.5)"
        assert send(turnout, "publish")["error"]["code"] == "no_candidate"


def test_candidate_whose_topic_is_deleted_is_published_only_when_it_is_there_again(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    with names.served(tmp_path, spark) as turnout:
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        delete_topic(names.bootstrap, names.users2)
        wait_said(turnout, f"topic '{names.users2}' partition 0 is gone (deleted)")
        error = send(turnout, "publish", expectedGeneration=2)["error"]
        assert (error["code"], error["message"]) == (
            "unknown_topic",
            f"the candidate, generation 2, cannot read on: topic '{names.users2}' was deleted",
        )
        assert turnout.status()["candidate"]["generation"] == 2, "it can be discarded, and looked at"
        assert shown(turnout, "final_ui@2") == {names.users2} and shown(turnout) == {names.users}
        produce(names.bootstrap, names.users, [named(names.users, RECORDS)])
        wait_total(turnout, "final_ui", RECORDS + 1)

        create_topic(names.bootstrap, names.users2, 1)
        produce(names.bootstrap, names.users2, [named(names.users2, RECORDS + number) for number in range(3)])
        wait_total(turnout, "final_ui@2", RECORDS + 3)
        assert outcome(turnout, "publish", expectedGeneration=2) == ("applied", 2)
        assert shown(turnout) == {names.users2} and turnout.total("final_ui") == RECORDS + 3
        assert history(turnout) == [("applied", 1), ("candidate", 2), ("applied", 2)]


def at_once(turnout: ServedTurnout, *paths: str) -> dict[str, list[dict[str, Any]]]:
    """Send messages at the same moment, each from a thread; gives the answers by path."""
    answers: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
    generation, together = turnout.status()["candidate"]["generation"], threading.Barrier(len(paths))

    def press(path: str) -> None:
        together.wait()
        with httpx.Client(base_url=turnout.url, timeout=patience()) as http:
            answers[path].append(http.post(f"/api/{path}", json={"expectedGeneration": generation}).json())

    threads = [threading.Thread(target=press, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    return answers


def test_one_of_two_operators_who_decide_at_once_is_followed(names: Names, spark: SparkSession, tmp_path: Path) -> None:
    with names.served(tmp_path, spark) as turnout:
        assert outcome(turnout, usersTopic=names.users2, publish=False) == ("candidate", 2)
        answers = at_once(turnout, "publish", "publish", "publish")["publish"]
        assert sorted(answer.get("outcome", "refused") for answer in answers) == ["applied", "refused", "refused"]
        assert [answer["error"]["code"] for answer in answers if "error" in answer] == ["no_candidate"] * 2
        assert history(turnout) == [("applied", 1), ("candidate", 2), ("applied", 2)]
        assert (turnout.status()["generation"], shown(turnout)) == (2, {names.users2})

        assert outcome(turnout, usersTopic=names.users3, publish=False) == ("candidate", 3)
        both = at_once(turnout, "publish", "discard")
        [followed] = [path for path, [answer] in both.items() if answer.get("outcome") == "applied"]
        [refused] = [answer["error"]["code"] for [answer] in both.values() if "error" in answer]
        assert refused == "no_candidate"
        last, topic = {"publish": ("applied", names.users3), "discard": ("discarded", names.users2)}[followed]
        assert (history(turnout)[-1], shown(turnout)) == ((last, 3), {topic})


def test_candidate_that_expires_while_somebody_publishes_is_published_or_gone(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    with names.served(tmp_path, spark, candidate_seconds=2) as turnout:
        topics = itertools.cycle((names.users2, names.users3, names.users))
        before, topic = names.users, next(topics)
        for early_seconds in (0.2, 0.03, 0.0, -0.03, -0.5):
            made, number = outcome(turnout, usersTopic=topic, publish=False)
            assert made == "candidate"
            ends = datetime.fromisoformat(turnout.status()["candidate"]["expiresAt"]).timestamp()
            time.sleep(max(0.0, ends - early_seconds - time.time()))
            answer = send(turnout, "publish", expectedGeneration=number)
            if answer.get("outcome") == "applied":
                assert history(turnout)[-1] == ("applied", number)
                before, topic = topic, next(topics)
            else:
                assert answer["error"]["code"] == "no_candidate"
                assert early_seconds < 0.2, "its time had not ended"
                last = turnout.rows("swaps")[-1]
                assert (last["outcome"], last["generation"]) == ("discarded", number)
                assert last["detail"] == "it expired (swap.candidate_seconds: 2)"
            assert (turnout.status()["candidate"], shown(turnout)) == (None, {before})


def test_control_topic_of_a_new_folder_publishes_only_what_was_published(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    messages: list[dict[str, Any]] = [
        {"usersTopic": names.users3, "publish": False},
        {"usersTopic": names.users2, "publish": False},
        {"action": "publish"},
        {"usersTopic": names.users3, "publish": False},
    ]
    produce(names.bootstrap, f"{names.users}-control", messages)
    with names.served(tmp_path, spark) as turnout:
        wait_until(lambda: shown(turnout) == {names.users2}, interval=ASKED_SECONDS, what="the published candidate")
        assert (turnout.status()["generation"], turnout.status()["candidate"]) == (1, None)
        outcomes = [row["outcome"] for row in turnout.rows("control_raw")]
        assert outcomes == ["superseded", "superseded", "applied", "superseded"]


def set_seconds(turnout: ServedTurnout, seconds: float) -> None:
    """Let candidates wait so long; it is taken at once, and the candidate stays."""
    document = yaml.safe_load(turnout.config.read_text())
    document["swap"]["candidate_seconds"] = seconds
    assert turnout.put_config(yaml.safe_dump(document)).json()["outcome"] == "applied"


def end_candidate(turnout: ServedTurnout, way: str, generation: int) -> None:
    if way == "expire":
        set_seconds(turnout, 0.1)
        wait_until(lambda: turnout.status()["candidate"] is None, interval=ASKED_SECONDS, what="the end of its time")
        set_seconds(turnout, 3600)
    elif way != "replace":
        assert send(turnout, way, expectedGeneration=generation)["outcome"] == "applied"


def test_candidates_under_load_disturb_no_viewer_and_leave_nothing_behind(
    names: Names, spark: SparkSession, tmp_path: Path
) -> None:
    sink = f"{names.users}-sink"
    create_topic(names.bootstrap, sink, 1)
    given = sections(names.users, names.accounts, swap={"linger_seconds": 0.1})
    given |= {"sinks": {"final_out": {"table": "final_ui", "topic": sink}}}
    written = itertools.count(RECORDS)

    def load(stopped: threading.Event) -> None:
        with writing(names.bootstrap) as writer:
            while not stopped.wait(0.1 if LONG else 0.8):  # each write is a batch
                number = next(written)
                for topic in (names.users, names.users2):
                    writer.write(topic, [named(topic, number)])
                writer.write(names.accounts, [account(number % 40)])

    def settled(turnout: ServedTurnout) -> bool:
        status = turnout.status()
        return not status["lingering"] and status["candidate"] is None and len(spark.streams.active) == 1

    with ServedTurnout(tmp_path, spark, names.bootstrap, **given) as turnout:
        kinds = itertools.cycle(("window", "summary", "sql", "changes", "status"))
        watchers = [Watcher(turnout.url, kind) for kind in itertools.islice(kinds, APPLIES_VIEWERS)]
        try:
            wait_until(lambda: all(one.last or one.fault for one in watchers), what="the first messages")
            topics, before = itertools.cycle((names.users2, names.users)), [0, 0]
            with beside(load):
                topic = next(topics)
                for number, way in zip(range(CANDIDATES), itertools.cycle(("discard", "replace", "expire", "publish"))):
                    # A candidate of the same plan as the one before would be unchanged.
                    start = {"users": "earliest", "accounts": "earliest" if number % 2 else "latest"}
                    answer = send(turnout, usersTopic=topic, start=start, publish=False)
                    assert answer["outcome"] == "candidate", answer
                    end_candidate(turnout, way, answer["generation"])
                    if way == "publish":
                        topic = next(topics)
                        if number in (3, CANDIDATES - 1):
                            wait_until(lambda: settled(turnout), interval=ASKED_SECONDS, what="an end of lingering")
                            before = before if any(before) else held()
                wait_until(
                    lambda: not grown(before, CANDIDATES - 4),
                    interval=ASKED_SECONDS,
                    what=lambda: f"threads and files as before: {before}, now {held()}",
                )
            assert [one.fault for one in watchers if one.fault] == []
            generation = turnout.status()["generation"]
            wait_until(lambda: all(one.generation == generation for one in watchers), what="the last generation")
            users, followers = next(written), [one.follower for one in watchers if one.kind == "changes"]
            folded = SunkTopic(names.bootstrap, sink)

            def are_equal() -> bool:
                found = turnout.rows("final_ui")
                shown_rows = sorted_rows_of(turnout.url, "final_ui")
                followed = all(follower.sorted_rows() == shown_rows for follower in followers)
                return len(found) == users and followed and folded.rows() == bag(found)

            wait_until(are_equal, interval=ASKED_SECONDS, what="the same rows for followers, the sink and HTTP")
            folded.close()
            assert [one.fault for one in watchers if one.fault] == []
            ends = [row[0] for row in history(turnout)[1:]]
            assert ends.count("candidate") == CANDIDATES and ends.count("discarded") == CANDIDATES // 4 * 3
        finally:
            for one in watchers:
                one.stop()
