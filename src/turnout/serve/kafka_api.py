"""The HTTP calls that ask others than the store: Kafka for topics and records, and the targets of alerts.

Kafka and targets may be slow to fail: only threads of their own wait for that, so they never hold up another call.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio
from starlette.requests import Request
from starlette.responses import Response

from turnout.config import Format, Role
from turnout.errors import TurnoutError
from turnout.plan.answers import Answer
from turnout.plan.plan import parse_topic
from turnout.serve.access import identity_of
from turnout.serve.limits import caller
from turnout.serve.read_api import Services
from turnout.serve.requests import OF_EXAMPLES, OF_WHY, records_of, why_of
from turnout.serve.responses import Answers, encoded_json, json_response, to_json
from turnout.serve.rounds import Threads, Turns, do
from turnout.serve.routes import READING, Call
from turnout.store.query.row_records import Explanation
from turnout_client.control_fields import topic_field

_TESTING = 2
_LISTING, _LISTING_SECONDS = 2, 15.0
_LOOKING, _LOOKING_SECONDS = 2, 25.0
_ASKING, _ASKING_SECONDS = 2, 20.0
_KAFKA = ("kafka_unreachable", "bad_config", "closed")


class TopicList(Answer):
    """Topics to choose from, and the topic of each source; null before the first generation."""

    topics: list[str]
    sources: dict[str, str | None]


class ExampleColumn(Answer):
    """A column, its type, and the evidence for it."""

    name: str
    type: str
    evidence: str


class Choice(Answer):
    """The value of a setting, and the evidence for it."""

    value: str
    evidence: str


class LeftOut(Answer):
    name: str
    reason: str


class Example(Answer):
    """A source for a topic, by its newest records."""

    topic: str
    """The topic that was read."""
    source: str
    """A name for the source that no other has."""
    table: str
    """A name for its table."""
    format: Format
    """`json`, `avro` or `protobuf`; the last two by the schema registry."""
    partitions: int
    """How many the topic has."""
    records: int
    """From its first record to its end; compaction leaves gaps."""
    looked: int
    """How many of the newest were read."""
    tombstones: int
    """How many of those have no value."""
    columns: list[ExampleColumn]
    """Columns, their types, and the evidence for each."""
    leftOut: list[LeftOut]  # noqa: N815 - the names of the wire
    """Fields that cannot be columns, and why."""
    key: Choice
    """The likely key, and the evidence for it."""
    rows: Choice
    """`all` or `latest`, and the evidence for it."""
    views: list[str]
    """Names for views that join it with sources of the same key."""
    yaml: str
    """The lines for the file: the source and its views, with the evidence as comments."""


class AlertTested(Answer):
    """A sample that has arrived."""

    alert: str
    outcome: Literal["delivered"]


class KafkaTurns(Turns[str, bytes]):
    """Questions to Kafka: each client has one thread at most."""

    def __init__(self) -> None:
        super().__init__(do, may_begin=lambda client: self.running.total() < _ASKING and not self.running[client])
        self._threads = Threads(_ASKING, "why")

    async def on_thread(self, question: Callable[[], bytes]) -> bytes:
        asked = asyncio.ensure_future(self._threads.run(question))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:  # the client has gone; its thread has not
            await asyncio.wait([asked])
        return asked.result()


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """The calls, bound to their services."""

    _services: Services
    _answers: Answers
    _turns: KafkaTurns = field(default_factory=KafkaTurns)
    _listing: Threads = field(default_factory=lambda: Threads(_LISTING, "topics"))
    _looking: Threads = field(default_factory=lambda: Threads(_LOOKING, "examples"))
    _testing: Threads = field(default_factory=lambda: Threads(_TESTING, "alerts"))

    @Call(
        "/api/tables/{name}/why",
        Explanation,
        errors=(*READING, "unknown_table", "unknown_row", "starting", "not_found"),
        parameters=OF_WHY,
    )
    async def explain_rows(self, request: Request) -> Response:
        """The records that a row is made of, those of its key that were not chosen, and what made its generation."""
        question = why_of(request.path_params["name"], request.query_params)
        explainer = self._services.orchestrator.explainer
        found = await self._answers.read(request, lambda store: explainer.rows(store, question))
        raw_values = identity_of(request.scope).role is Role.OPERATOR
        with anyio.move_on_after(_ASKING_SECONDS):
            work = lambda: to_json(explainer.answer(found, raw_values=raw_values))  # noqa: E731
            turns = self._turns
            return encoded_json(await turns.ask(caller(request.scope), lambda: turns.on_thread(work)))
        found.notes.append(f"Kafka did not give the records within {_ASKING_SECONDS:g} s")
        return json_response(explainer.as_json(found, {}))

    @Call("/api/topics", TopicList, errors=(*READING, *_KAFKA))
    async def list_topics(self, request: Request) -> Response:
        """The topics of Kafka, without its own (`__...`), and the topics of sources; viewers get the latter alone."""
        with anyio.move_on_after(_LISTING_SECONDS):
            names = await self._listing.run(self._services.orchestrator.topics)
            status = await self._listing.run(self._services.orchestrator.status)
            sources = {name: status.get(topic_field(name)) for name in self._services.settings.sources}
            shown = names if identity_of(request.scope).role is Role.OPERATOR else set(names) & set(sources.values())
            topics = sorted(name for name in shown if not name.startswith("__"))
            return json_response({"topics": topics, "sources": sources})
        raise _too_slow(f"Kafka did not list its topics within {_LISTING_SECONDS:g} s")

    @Call(
        "/api/topics/{topic}/example",
        Example,
        errors=(
            *_KAFKA,
            *("forbidden", "unknown_topic", "not_authorized", "bad_example"),
            *("registry_unreachable", "registry_refused", "not_found"),
        ),
        parameters=OF_EXAMPLES,
    )
    async def read_example(self, request: Request) -> Response:
        """Columns, a likely key and YAML for a topic, by its newest records; for operators."""
        identity_of(request.scope).check_operator("viewers may not preview topics")
        topic, records = _topic(request.path_params["topic"]), records_of(request.query_params)
        with anyio.move_on_after(_LOOKING_SECONDS):
            found = await self._looking.run(lambda: self._services.orchestrator.example(topic, records))
            return json_response(found)
        raise _too_slow(f"the records of topic {topic!r} did not arrive within {_LOOKING_SECONDS:g} s")

    @Call(
        "/api/alerts/{name}/test",
        AlertTested,
        errors=("unknown_alert", "alert_not_delivered", "store_unavailable"),
        method="POST",
    )
    async def test_alert(self, request: Request) -> Response:
        """Send a sample event to the target of an alert, and wait until it has arrived."""
        name = request.path_params["name"]
        await self._testing.run(lambda: self._services.orchestrator.test_alert(name))
        return json_response({"alert": name, "outcome": "delivered"})


def _topic(name: str) -> str:
    try:
        return parse_topic(name)
    except ValueError as error:
        raise TurnoutError("bad_parameter", f"topic: {error}", "GET /api/topics lists the topics") from None


def _too_slow(message: str) -> TurnoutError:
    hint = "check that the brokers run; `turnout check` says what is wrong"
    return TurnoutError("kafka_unreachable", message, hint)
