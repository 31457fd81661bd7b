"""Killed in each state of a swap, it comes back with the plan and the data, and the message has exactly one outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import killing
from kafka_log import read_all
from lengths import LONG
from running import RunningTurnout
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, produce, wait_until

ROWS = 30
POINTS = tuple(killing.POINTS) if LONG else killing.APART


def fill(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [{"userId": f"k{i}", "name": topic, "email": "e", "age": i} for i in range(ROWS)])


def outcome_of(turnout: RunningTurnout, request: str) -> list[str | None]:
    return [row["outcome"] for row in turnout.rows("control_raw") if f'"{request}"' in row["raw"]]


def has_outcome(turnout: RunningTurnout, request: str) -> bool:
    return None not in outcome_of(turnout, request)


def leftovers(turnout: RunningTurnout) -> list[str]:
    return sorted(path.name for path in (turnout.data_dir / "checkpoints").iterdir())


def test_kill_in_each_state_of_a_swap_loses_no_message_and_no_row(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    users = (topic_name("users"), topic_name("users"))
    accounts, control, acks = topic_name("accounts"), topic_name("control"), topic_name("acks")
    for topic in users:
        fill(bootstrap, topic)
    for topic in (accounts, control, acks):
        create_topic(bootstrap, topic, 1)
    turnout = RunningTurnout(
        tmp_path,
        bootstrap,
        start="earliest",
        control={"topic": control, "ack_topic": acks},
        swap={"linger_seconds": 0.5},
        sources={
            "users": {
                "topic": users[0],
                "table": "users_ui",
                "key": "userId",
                "columns": {"userId": "string", "name": "string", "email": "string", "age": "int64"},
            },
            "accounts": {
                "topic": accounts,
                "table": "accounts_ui",
                "key": "userId",
                "columns": {"userId": "string", "accountType": "string", "balance": "double"},
            },
        },
    )
    flag = tmp_path / "flag"
    turnout.command = [sys.executable, str(Path(killing.__file__)), str(flag)]
    requests: dict[str, Any] = {}
    with turnout:
        for number, point in enumerate(POINTS):
            wanted = users[(number + 1) % 2]
            flag.write_text(point)
            requests[point] = wanted
            produce(bootstrap, control, [{"usersTopic": wanted, "requestId": point}])
            turnout.wait_killed()
            flag.unlink()
            turnout.start()
            settled = partial(has_outcome, turnout, point)
            wait_until(settled, what=f"an outcome of {point}")
            assert outcome_of(turnout, point) == ["applied"], point
            status = turnout.status()
            assert status["usersTopic"] == wanted, point
            rows = turnout.rows("users_ui")
            assert (len(rows), {row["name"] for row in rows}) == (ROWS, {wanted}), point
            assert turnout.total("final_ui") == ROWS
            applied = [row for row in turnout.rows("swaps") if row["requestId"] == point]
            assert [row["outcome"] for row in applied] == ["applied"], point
            wait_until(
                lambda: leftovers(turnout) == [f"g{turnout.status()['generation']}"],
                what=f"nothing left of {point}",
            )
    told: dict[str, set[str]] = {}
    for record in read_all(bootstrap, [acks]):
        assert record.key is not None
        assert record.value is not None
        told.setdefault(record.key.decode(), set()).add(json.loads(record.value)["outcome"])
    assert told == {point: {"applied"} for point in requests}
