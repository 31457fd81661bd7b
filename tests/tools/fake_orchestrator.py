"""A fake of the orchestrator for the server, without Kafka and Spark: status, message queue, topics and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sampled_topics import example
from turnout.config import Settings, parse
from turnout.config.configuration import Configuration
from turnout.config.tables import first_plan
from turnout.example.by_example import source_json
from turnout.plan.control import ApplyRequest, ControlMessage, ControlRejected, Outcome
from turnout.plan.control_parsing import parse_message
from turnout.store.ledger import MessageRecord
from turnout.swap.applies import apply_of, record_of
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout.swap.explainer import Explainer
from turnout.swap.health import Readiness
from turnout.swap.metrics import Metrics
from turnout.swap.orchestrator import Orchestrator

STATUS = {
    "usersTopic": "users",
    "accountsTopic": "accounts",
    "joinType": "left",
    "lastApplied": "2026-01-01T00:00:00Z",
    "generation": 1,
    "state": "live",
    "lag": 0,
    "requestId": None,
}


def sources_named(*names: str) -> dict[str, Any]:
    """Return settings with sources of one column each, and no view."""
    columns = {"key": "id", "columns": {"id": "string"}}
    return {"sources": {name: {"topic": name, "table": f"{name}_ui", **columns} for name in names}, "views": {}}


def read(document: dict[str, Any]) -> Settings:
    """Return the settings of a file."""
    return parse(document, Path("/etc/turnout"), {})


class FakeQueue:
    """A control queue that answers each message at once by `decide`; if that returns None, the message waits."""

    def __init__(self) -> None:
        self.messages: list[QueuedMessage] = []
        self.decide: Callable[[QueuedMessage], Reply | None] = lambda _: Reply(Outcome.APPLIED, "generation 2", 2)

    @property
    def requesters(self) -> list[str]:
        """The requesters of the messages."""
        return [message.record.requester for message in self.messages]

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        text = raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw
        parsed: ControlMessage | ControlRejected
        try:
            parsed = parse_message(raw, ("users", "accounts"))
        except ControlRejected as error:
            parsed = error
        message = QueuedMessage(MessageRecord(text, requester, number=len(self.messages) + 1), parsed)
        self.messages.append(message)
        reply = self.decide(message)
        if isinstance(parsed, ControlRejected):
            reply = Reply(Outcome.REJECTED, str(parsed), 1, parsed)
        if reply is not None:
            self.settle(message, reply)
        return message

    def settle(self, message: QueuedMessage, reply: Reply) -> None:
        """Answer a waiting message."""
        message.answer = reply
        message.done.set()


def leave_waiting(_: QueuedMessage) -> Reply | None:
    """Return None: a `decide` that lets messages wait."""
    return None


class FakeOrchestrator(Orchestrator):
    """An orchestrator that has published generation 1 and builds nothing. Tests override the methods that they use."""

    topic_names: Sequence[str] = ("users",)

    queue: Any

    def __init__(self, queue: Any = None, **settings: Any) -> None:
        self.queue = queue or FakeQueue()
        self.configuration = Configuration(read(settings) if settings else Settings())
        ledger: Any = None
        self.explainer = Explainer(tuple, self.configuration, ledger)

    def status(self) -> dict[str, Any]:
        return STATUS

    def readiness(self) -> Readiness:
        return Readiness(True, "generation 1 is published")

    def metrics(self) -> Metrics:
        return Metrics(self.readiness())

    def topics(self) -> list[str]:
        return list(self.topic_names)

    def test_alert(self, name: str) -> None:
        raise NotImplementedError

    def example(self, topic: str, records: int) -> dict[str, Any]:
        """Return the example of a topic with three records."""
        values = [{"userId": f"u{number}", "city": "Ulm"} for number in range(3)]
        return source_json(example(topic, values[:records]), Settings())

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        raise NotImplementedError


class ApplyingOrchestrator(FakeOrchestrator):
    """An orchestrator that decides on files and builds nothing: applied settings take effect at once."""

    def __init__(self, **document: Any) -> None:
        super().__init__()
        self.configuration = Configuration(read(document))
        self.records: list[MessageRecord] = []
        """The records that the store would contain."""

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        record, parsed = record_of(self.configuration, request, requester)
        self.records.append(record)
        try:
            if isinstance(parsed, ControlRejected):
                raise parsed
            found, _ = apply_of(self.configuration, parsed, first_plan(self.configuration.settings))
            outcome = Outcome.APPLIED if found.changes and not request.dry_run else Outcome.UNCHANGED
            answer = Reply(outcome, "decided", 1, report=found.report)
            if outcome is Outcome.APPLIED:
                self.configuration.adopt(found.settings)
        except ControlRejected as error:
            answer = Reply(Outcome.REJECTED, str(error), 1, error, error.report)
        message = QueuedMessage(record, parsed, answer=answer)
        message.done.set()
        return message
