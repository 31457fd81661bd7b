"""The queue of control messages: they come from the control topic or a surface, wait, and get one outcome each.

The store keeps a message before anything else happens, so a crash loses none. `control` says what a message means,
`swap_rules` which one is built.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.config.topic_rules import TopicRules
from turnout.errors import TurnoutError, first_line
from turnout.kafka.control_topic import Acknowledgements, ControlReader, ControlRecord
from turnout.logs import Say
from turnout.plan.control import MAX_MESSAGE_BYTES, ControlMessage, ControlRejected, Outcome
from turnout.plan.control_parsing import kept_text, parse_message
from turnout.plan.swap_rules import ParsedMessage
from turnout.store.database import store_failed
from turnout.store.ledger import Ledger, MessageRecord

log = logging.getLogger("turnout")

_HINT = f"send one JSON object of at most {MAX_MESSAGE_BYTES:,} bytes, as UTF-8 text"


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one message, for its sender."""

    outcome: Outcome
    detail: str
    generation: int
    error: TurnoutError | None = None
    report: Mapping[str, Any] | None = None

    def as_json(self, request_id: str | None) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "requestId": request_id,
            "outcome": self.outcome.value,
            "detail": self.detail,
            "generation": self.generation,
        }
        return shown if self.report is None else shown | {"report": self.report}

    def hidden(self, ledger: Ledger) -> "Reply":
        """The answer without secrets, as the ledger keeps it."""
        error = self.error
        if error is not None:
            texts = ledger.hide(error.message), ledger.hide(error.hint)
            error = TurnoutError(error.code, *texts, status=error.status)
        return replace(self, detail=ledger.hide(self.detail), error=error, report=ledger.hide(self.report))


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """A waiting message: what the store keeps of it, what it asks for, and later its answer."""

    record: MessageRecord
    parsed: ParsedMessage
    done: threading.Event = field(default_factory=threading.Event)
    answer: Reply | None = None
    request_id: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.parsed.request_id


Answers = Mapping[QueuedMessage, Reply]


class ControlQueue:
    """Surfaces put messages in from their threads; the orchestrator alone takes them out."""

    def __init__(self, settings: Settings, ledger: Ledger, say: Say) -> None:
        self._settings = settings
        self._ledger = ledger
        self._say = say
        self.rules = TopicRules.of(settings)
        self._queue: list[QueuedMessage] = []
        self._lock = threading.Lock()
        self._acks: Acknowledgements | None = None
        self._reader: ControlReader | None = None
        self.arrived = threading.Event()

    def adopt(self, settings: Settings) -> None:
        """Read messages by other settings from now on, those that wait, too: a source that they name may be gone."""
        self._settings, self.rules = settings, TopicRules.of(settings)
        with self._lock:
            for message in self._queue:
                if message.record.refused is None and message.record.apply is None:
                    message.parsed = self._parsed(message.record.raw)

    def open(self) -> None:
        """Queue the messages that the store has without an outcome, and read the control topic; nothing if open."""
        if self._reader is not None:
            return
        with self._lock:
            taken = {message.record.number for message in self._queue}
            kept = [self._queued(record) for record in self._ledger.open_messages() if record.number not in taken]
            self._queue = sorted([*kept, *self._queue], key=lambda message: message.record.number)
        control, kafka = self._settings.control, self._settings.control_kafka
        if control.ack_topic and self._acks is None:
            self._acks = Acknowledgements(kafka, control.ack_topic, self._say)
            self._acknowledge()
        reader = ControlReader(kafka, control.topic, self._ledger.control_positions(), self.deliver, self._say)
        reader.start()
        self._reader = reader

    @property
    def trouble(self) -> str | None:
        """Why the control topic cannot be read; None if it can."""
        return self._reader.trouble if self._reader is not None else None

    @property
    def caught_up(self) -> bool:
        """Whether everything that the control topic held at the start is in the queue."""
        return self._reader is not None and self._reader.caught_up.is_set()

    def close(self) -> None:
        """Stop reading, and wake all who wait for an answer. Messages without an outcome stay in the store."""
        for message in self.waiting():
            message.done.set()
        if self._reader is not None:
            self._reader.stop()
        if self._acks is not None:
            self._acks.close()

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        """Queue a message of a surface, which can wait for its answer. May block for a write to the store."""
        return self.submit_record(self._record(raw, requester))

    def submit_record(self, record: MessageRecord, parsed: ParsedMessage | None = None) -> QueuedMessage:
        """Queue a message of a surface as the store keeps it; an apply also as it came."""
        try:
            return self._take([record], parsed)[0]
        except duckdb.Error as error:
            raise store_failed(error) from error

    def deliver(self, records: Sequence[ControlRecord]) -> None:
        """Queue messages of the control topic, valid or not; raises only if the store fails."""
        self._take(
            [
                replace(
                    MessageRecord(None, "topic", refused=record.unreadable)
                    if record.unreadable
                    else self._record(record.value, "topic"),
                    partition=record.partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
        )

    def waiting(self) -> list[QueuedMessage]:
        """All messages without an outcome, in the order they came."""
        with self._lock:
            return list(self._queue)

    def settle(self, answers: Answers) -> None:
        """Give messages their outcomes, in a transaction of their own."""
        with self.settling(answers):
            pass

    @contextlib.contextmanager
    def settling(
        self, answers: Answers, then: Callable[[], object] = lambda: None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Write the outcomes of messages in one transaction with what the block writes, and tell their senders.

        `then` is called between: a sender that asks again finds what its message did.
        """
        decided = {message: _with_warnings(message, answer).hidden(self._ledger) for message, answer in answers.items()}
        with self._ledger.database.write() as cursor:
            yield cursor
            for message, answer in decided.items():
                number, outcome = message.record.number, answer.outcome.value
                self._ledger.settle(cursor, number, message.request_id, outcome, answer.detail)
        try:
            then()
        finally:  # the outcomes stand, whatever becomes of the rest
            self._announce(decided)

    def _announce(self, decided: Answers) -> None:
        with self._lock:
            self._queue = [message for message in self._queue if message not in decided]
        for message, answer in decided.items():
            message.answer = answer
            message.done.set()
        self._acknowledge()

    def _take(self, records: Sequence[MessageRecord], parsed: ParsedMessage | None = None) -> list[QueuedMessage]:
        with self._lock:
            stored = [record for record in self._stored(records) if record is not None]
            messages = [QueuedMessage(record, parsed) if parsed else self._queued(record) for record in stored]
            self._queue += messages
        self.arrived.set()
        return messages

    def _stored(self, records: Sequence[MessageRecord]) -> list[MessageRecord | None]:
        """Store messages; None for those it had before. One that the store cannot hold does not block the others."""
        try:
            return self._ledger.add_messages(records)
        except Exception as error:
            if not _is_about_the_message(error):
                raise
            if len(records) > 1:
                return [stored for record in records for stored in self._stored([record])]
            [record] = records
            if record.refused is not None and record.raw is None:
                raise
            log.exception("a control message of %s cannot be stored as it is", record.requester)
            return self._stored([replace(record, raw=None, refused=f"it cannot be stored ({first_line(error)})")])

    def _record(self, raw: bytes | str | None, requester: str) -> MessageRecord:
        text, whole = kept_text(raw)
        if whole:
            return MessageRecord(text, requester)
        # The kept text differs from the message: the message is checked now.
        parsed = self._parsed(raw)
        refused = parsed.message if isinstance(parsed, ControlRejected) else "it is not text that can be stored"
        return MessageRecord(text, requester, refused=refused)

    def _parsed(self, raw: bytes | str | None) -> ParsedMessage:
        """What a message asks for, or its rejection: every message gets an outcome."""
        try:
            return parse_message(raw, self._settings.sources, self._settings.joined_views, self.rules.fault)
        except ControlRejected as error:
            return error
        except Exception as error:
            log.exception("a control message could not be read")
            return ControlRejected(f"it cannot be read ({first_line(error)})", _HINT)

    def _queued(self, record: MessageRecord) -> QueuedMessage:
        if record.refused is None:
            return QueuedMessage(record, record.apply or self._parsed(record.raw))
        return QueuedMessage(record, ControlRejected(record.refused, _HINT))

    def _acknowledge(self) -> None:
        """Send outcomes that were not sent yet. A crash may repeat one, but loses none."""
        if self._acks is None:
            return
        try:
            waiting = self._ledger.unacknowledged()
            for _, payload in waiting:
                self._acks.send(payload["requestId"], payload)
            if waiting and self._acks.flush(1.0):
                self._ledger.acknowledged([number for number, _ in waiting])
        except (duckdb.Error, TurnoutError) as error:
            # The outcomes stand and are stored: a failure to send them must not look like a failed swap.
            self._say("WARNING", f"outcomes are acknowledged later: {error}")


def _with_warnings(message: QueuedMessage, answer: Reply) -> Reply:
    """The answer, with what of the message was ignored."""
    ignored = message.parsed.warnings if isinstance(message.parsed, ControlMessage) else ()
    return replace(answer, detail="; ".join([answer.detail, *ignored])) if ignored else answer


def _is_about_the_message(error: Exception) -> bool:
    """Whether the message caused the error, and not the store."""
    if isinstance(error, duckdb.Error):
        return isinstance(error, (duckdb.DataError, duckdb.InvalidInputException, duckdb.NotSupportedError))
    return isinstance(error, (ValueError, TypeError, ArithmeticError))
