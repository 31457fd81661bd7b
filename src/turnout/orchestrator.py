"""The orchestrator: the only owner of lifecycles. It decides nothing by itself: `control` and `swap` do.

One thread takes control messages in turn, builds generations, publishes, lets linger, retires, and starts queries again that
ended. Messages are kept in the store before anything is done with them, so each one gets its outcome, also after a crash.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.control import Action, ControlMessage, ControlRejected, Outcome, parse_message, resolve
from turnout.errors import TurnoutError
from turnout.generations import Generation, Generations, Stopped
from turnout.kafka.inbox import Acknowledgements, ControlRecord
from turnout.plan import Plan
from turnout.progress import Meter
from turnout.store.ledger import Arrival, Ledger, Swap
from turnout.swap import Batch, Lingering, Queued, SwapState, Verdict, Work, plan_batch, replay, to_retire

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one message, for whoever sent it."""

    outcome: Outcome
    detail: str
    generation: int
    request_id: str | None
    error: TurnoutError | None = None
    report: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "requestId": self.request_id,
            "outcome": self.outcome.value,
            "detail": self.detail,
            "generation": self.generation,
        }
        if self.report is not None:
            shown["report"] = self.report
        return shown


@dataclass(slots=True)
class Ticket:
    """A message on its way: what it says, and where its answer will be."""

    message: int
    queued: Queued
    raw: str
    requester: str
    control_offset: int | None
    done: threading.Event = field(default_factory=threading.Event)
    answer: Answer | None = None

    @property
    def request_id(self) -> str | None:
        return self.queued.request_id

    def wait(self, timeout_seconds: float | None = None) -> Answer | None:
        """The answer, or None where it has not come in time."""
        self.done.wait(timeout_seconds)
        return self.answer
