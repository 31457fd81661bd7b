"""The desk: where control messages come in, wait, and get their one outcome.

A message is kept in the store before anything is done with it, wherever it came from, so a crash loses none. What a
message means is `control`, which one is built is `swap`, and building is the orchestrator's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.control import ControlRejected, Outcome, parse_message
from turnout.errors import TurnoutError
from turnout.kafka.inbox import Acknowledgements, ControlRecord, Inbox
from turnout.store.database import Database, store_failed
from turnout.store.ledger import Arrival, Ledger
from turnout.swap import Queued

Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one message, for whoever sent it."""

    outcome: Outcome
    detail: str
    generation: int
    error: TurnoutError | None = None
    report: dict[str, Any] | None = None

    def as_json(self, request_id: str | None) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "requestId": request_id,
            "outcome": self.outcome.value,
            "detail": self.detail,
            "generation": self.generation,
        }
        return shown if self.report is None else shown | {"report": self.report}


@dataclass(slots=True)
class Ticket:
    """A message on its way: what it says, and where its answer will be."""

    message: int
    queued: Queued
    raw: str | None
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


class Desk:
    """The queue of control messages. Surfaces put in from their threads; the orchestrator alone takes out."""

    def __init__(self, settings: Settings, database: Database, ledger: Ledger, say: Say) -> None:
        self._settings = settings
        self._database = database
        self._ledger = ledger
        self._say = say
        self._queue: list[Ticket] = []
        self._lock = threading.Lock()
        self._acks: Acknowledgements | None = None
        self._inbox: Inbox | None = None
        self.arrived = threading.Event()

    def open(self) -> None:
        """Take up what waited when the process ended, and read the control topic; does nothing when open."""
        if self._inbox is not None:
            return
        with self._lock:
            taken = {ticket.message for ticket in self._queue}
            kept = [self._ticket(*pending) for pending in self._ledger.pending() if pending[0] not in taken]
            self._queue = sorted([*kept, *self._queue], key=lambda ticket: ticket.message)
        control, kafka = self._settings.control, self._settings.control_kafka
        if control.ack_topic and self._acks is None:
            self._acks = Acknowledgements(kafka, control.ack_topic, lambda text: self._say("WARNING", text))
            self._acknowledge()
        inbox = Inbox(
            kafka,
            control.topic,
            self._ledger.control_positions(),
            self.deliver,
            warn=lambda text: self._say("WARNING", text),
            info=lambda text: self._say("INFO", text),
        )
        inbox.start()
        self._inbox = inbox

    @property
    def caught_up(self) -> bool:
        """Whether everything that the control topic held at the start is in the queue."""
        return self._inbox is not None and self._inbox.caught_up.is_set()

    def close(self) -> None:
        """Stop to listen; whoever waits for an answer waits no longer, and what was not decided waits in the store."""
        for ticket in self.waiting():
            ticket.done.set()
        if self._inbox is not None:
            self._inbox.stop()
        if self._acks is not None:
            self._acks.close()

    def submit(self, raw: bytes | str, requester: str) -> Ticket:
        """Take a message from a surface; its answer comes on the ticket."""
        try:
            return self._take([Arrival(_text(raw), requester)])[0]
        except duckdb.Error as error:
            raise store_failed(error) from error

    def deliver(self, records: Sequence[ControlRecord]) -> None:
        """Take messages from the control topic."""
        self._take([_arrival(record) for record in records])

    def waiting(self) -> list[Ticket]:
        """All messages without an outcome, in the order they came."""
        with self._lock:
            return list(self._queue)

    def settle(
        self,
        tickets: Sequence[Ticket],
        answers: Sequence[Answer],
        together: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    ) -> None:
        """Give the messages at the front of the queue their outcomes, in one transaction with `together`."""
        with self._database.write() as cursor:
            if together is not None:
                together(cursor)
            for ticket, answer in zip(tickets, answers, strict=True):
                self._ledger.settle(cursor, ticket.message, ticket.request_id, answer.outcome.value, answer.detail)
        with self._lock:
            del self._queue[: len(tickets)]
        for ticket, answer in zip(tickets, answers, strict=True):
            ticket.answer = answer
            ticket.done.set()
        self._acknowledge()

    def _take(self, arrivals: Sequence[Arrival]) -> list[Ticket]:
        with self._lock:
            numbers = self._ledger.arrive(arrivals)
            tickets = [
                self._ticket(number, arrival.raw, arrival.requester, arrival.offset)
                for number, arrival in zip(numbers, arrivals, strict=True)
                if number is not None
            ]
            self._queue += tickets
        self.arrived.set()
        return tickets

    def _ticket(self, number: int, raw: str | None, requester: str, offset: int | None) -> Ticket:
        try:
            queued: Queued = parse_message(raw, self._settings.sources, self._settings.joined_views)
        except ControlRejected as error:
            queued = error
        return Ticket(number, queued, raw, requester, offset)

    def _acknowledge(self) -> None:
        """Send outcomes that were not sent yet. After a crash one may be sent twice, but never none."""
        if self._acks is None:
            return
        try:
            waiting = self._ledger.unacknowledged()
            for _, payload in waiting:
                self._acks.send(payload["requestId"], payload)
            if waiting and self._acks.flush(1.0):
                self._ledger.acknowledged([number for number, _ in waiting])
        except (duckdb.Error, TurnoutError) as error:
            # The outcomes are decided and kept: that telling them fails must not look as if deciding did.
            self._say("WARNING", f"outcomes are acknowledged later: {error}")


def _arrival(record: ControlRecord) -> Arrival:
    moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    return Arrival(_text(record.value), "topic", record.partition, record.offset, moment)


def _text(raw: bytes | str | None) -> str | None:
    """The message as the store can keep it; bytes that are no text show as such, and are rejected later."""
    return raw.decode("utf-8", errors="backslashreplace") if isinstance(raw, bytes) else raw
