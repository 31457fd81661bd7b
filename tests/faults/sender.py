"""Sends control messages by the topic and by HTTP, remembers each, and says whether each has exactly one outcome."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import httpx

from decompression_bombs import send_bomb
from kafka_log import read_all
from turnout.plan.control import Outcome
from turnout.testing import Record, produce
from turnout_process import RunningTurnout

OUTCOMES = frozenset(outcome.value for outcome in Outcome)


class ControlSender:
    """`sent` are the request ids that must have an outcome; `unsure` those that HTTP may or may not have taken."""

    def __init__(self, bootstrap: str, control: str, acks: str, turnout: RunningTurnout) -> None:
        self.sent: list[str] = []
        self.unsure: list[str] = []
        self._bootstrap = bootstrap
        self._control = control
        self._acks = acks
        self._turnout = turnout
        self._numbers = itertools.count(1)
        self._written = 0

    def send(self, message: Mapping[str, Any], timestamp_ms: int | None = None) -> str:
        """Write a message to the control topic; its request id."""
        request = f"sent-{next(self._numbers)}"
        record = Record({**message, "requestId": request}, timestamp_ms=timestamp_ms)
        self._written += produce(self._bootstrap, self._control, [record])
        self.sent.append(request)
        return request

    def send_raw(self, value: bytes | None) -> None:
        """Write a record that is no message; it needs an outcome all the same."""
        self._written += produce(self._bootstrap, self._control, [value])

    def send_bomb(self, codec: str, value: bytes) -> None:
        """Write a record that cannot be read; it needs an outcome all the same."""
        send_bomb(self._bootstrap, self._control, codec, value)
        self._written += 1

    def post(self, message: Mapping[str, Any], *, wait: bool = True) -> dict[str, Any]:
        """Ask over HTTP; the answer, empty where nobody took the question."""
        request = f"posted-{next(self._numbers)}"
        self.unsure.append(request)
        try:
            response = self._turnout.http.post(
                "/api/control",
                params={} if wait else {"wait": "false"},
                json={**message, "requestId": request},
            )
        except httpx.HTTPError:
            return {}
        self.unsure.remove(request)
        self.sent.append(request)
        answer: dict[str, Any] = response.json()
        return answer

    def outcome(self, request: str) -> str | None:
        rows = [row for row in self._turnout.rows("control_raw") if row["requestId"] == request]
        return rows[0]["outcome"] if rows else None

    def undecided(self) -> int:
        """How many messages have no outcome yet."""
        rows = [row for row in self._turnout.rows("control_raw") if row["outcome"] in OUTCOMES]
        decided = {row["requestId"] for row in rows}
        places = {(row["partition"], row["offset"]) for row in rows if row["offset"] is not None}
        return max(self._written - len(places), sum(request not in decided for request in self.sent))

    def differences(self) -> tuple[list[str], list[str]]:
        """What is lost (a message without a row, an outcome or an acknowledgement), and what is there twice."""
        rows = self._turnout.rows("control_raw")
        lost, doubled = self._of_requests(rows)
        places = Counter((row["partition"], row["offset"]) for row in rows if row["outcome"] in OUTCOMES)
        for record in read_all(self._bootstrap, [self._control]):
            found = places[(record.partition, record.offset)]
            lost += [f"no outcome of control record {record.offset}"] if not found else []
            doubled += [f"control record {record.offset} has {found} outcomes"] if found > 1 else []
        return lost, doubled

    def _of_requests(self, rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
        lost: list[str] = []
        doubled: list[str] = []
        told = self._acknowledged()
        by_request: dict[str, list[str | None]] = {}
        for row in rows:
            by_request.setdefault(row["requestId"], []).append(row["outcome"])
        for request in (*self.sent, *self.unsure):
            outcomes = by_request.get(request, [])
            if not outcomes and request in self.unsure:
                continue
            if not outcomes or None in outcomes:
                lost.append(f"no outcome of {request}")
            elif len(outcomes) > 1 or not OUTCOMES.issuperset(outcomes):
                doubled.append(f"{request} has the outcomes {outcomes}")
            elif told.get(request) is None:
                lost.append(f"no acknowledgement of {request}")
            elif told[request] != set(outcomes):
                doubled.append(f"{request} is {outcomes} and was acknowledged as {told[request]}")
        return lost, doubled

    def _acknowledged(self) -> dict[str, set[str | None]]:
        """The outcomes that each request was told. After a crash one may be told twice, but never two."""
        told: dict[str, set[str | None]] = {}
        for record in read_all(self._bootstrap, [self._acks]):
            if record.key is not None and record.value is not None:
                told.setdefault(record.key.decode(), set()).add(json.loads(record.value)["outcome"])
        return told
