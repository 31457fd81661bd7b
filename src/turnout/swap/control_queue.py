"""The desk: where control messages come in, wait, and get their one outcome.

A message is kept in the store before anything is done with it, wherever it came from, so a crash loses none. What a
message means is `control`, which one is built is `swap`, and building is the orchestrator's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.config.topic_rules import TopicRules
from turnout.errors import TurnoutError, first_line
from turnout.kafka.control_topic import Acknowledgements, ControlRecord, Inbox
from turnout.plan.control import MAX_MESSAGE_BYTES, ControlRejected, Outcome, parse_message
from turnout.plan.control_text import kept_text
from turnout.plan.swap_rules import Queued
from turnout.store.database import Database, store_failed
from turnout.store.ledger import Arrival, Ledger, Pending

log = logging.getLogger("turnout")

Say = Callable[[str, str], None]
_HINT = f"send one JSON object of at most {MAX_MESSAGE_BYTES:,} bytes, as UTF-8 text"


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
        self._rules = TopicRules.of(settings)
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
            kept = [self._ticket(pending) for pending in self._ledger.pending() if pending.number not in taken]
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
    def trouble(self) -> str | None:
        """Why messages of the control topic do not come, if so."""
        return self._inbox.trouble if self._inbox is not None else None

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
            return self._take([self._arrival(raw, requester)])[0]
        except duckdb.Error as error:
            raise store_failed(error) from error

    def deliver(self, records: Sequence[ControlRecord]) -> None:
        """Take messages from the control topic, whatever they are; raises only where the store is at fault."""
        self._take([self._of_topic(record) for record in records])

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
            tickets = [self._ticket(pending) for pending in self._kept(arrivals) if pending is not None]
            self._queue += tickets
        self.arrived.set()
        return tickets

    def _kept(self, arrivals: Sequence[Arrival]) -> list[Pending | None]:
        """The messages in the store; None for those that were there. One that the store cannot hold blocks no other."""
        try:
            return self._ledger.arrive(arrivals)
        except Exception as error:
            if not _of_its_own(error):
                raise
            if len(arrivals) > 1:
                return [kept for arrival in arrivals for kept in self._kept([arrival])]
            [arrival] = arrivals
            if arrival.refused is not None and arrival.raw is None:
                raise
            log.exception("a control message of %s cannot be kept as it is", arrival.requester)
            return self._kept([replace(arrival, raw=None, refused=f"it cannot be kept ({first_line(error)})")])

    def _arrival(self, raw: bytes | str | None, requester: str) -> Arrival:
        text, whole = kept_text(raw)
        # Where the text is not what came, only what came says what is wrong with it.
        return Arrival(text, requester, refused=None if whole else self._fault(raw))

    def _of_topic(self, record: ControlRecord) -> Arrival:
        arrival = self._arrival(record.value, "topic")
        return replace(arrival, partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)

    def _fault(self, raw: bytes | str | None) -> str:
        read = self._read(raw)
        return read.message if isinstance(read, ControlRejected) else "it is no text that can be kept"

    def _read(self, raw: bytes | str | None) -> Queued:
        """What a message says, or why it cannot be followed; whatever it is, it has an outcome."""
        try:
            return parse_message(raw, self._settings.sources, self._settings.joined_views, self._rules.fault)
        except ControlRejected as error:
            return error
        except Exception as error:
            log.exception("a control message could not be read")
            return ControlRejected(message=f"it cannot be read ({first_line(error)})", hint=_HINT)

    def _ticket(self, pending: Pending) -> Ticket:
        refused = pending.refused
        queued = self._read(pending.raw) if refused is None else ControlRejected(message=refused, hint=_HINT)
        return Ticket(pending.number, queued, pending.raw, pending.requester, pending.offset)

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


def _of_its_own(error: Exception) -> bool:
    """Whether an error is about the message that is written, and not about the store."""
    if isinstance(error, duckdb.Error):
        return isinstance(error, (duckdb.DataError, duckdb.InvalidInputException, duckdb.NotSupportedError))
    return isinstance(error, (ValueError, TypeError, ArithmeticError))
