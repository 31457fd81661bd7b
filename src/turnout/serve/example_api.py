"""The HTTP calls about topics: which there are, which are sources, and what one that is none could be."""

from dataclasses import dataclass, field

import anyio
from starlette.requests import Request
from starlette.responses import Response

from turnout.config import Format as SourceFormat
from turnout.config import Role
from turnout.errors import TurnoutError
from turnout.plan.control import topic_field
from turnout.plan.plan import parse_topic
from turnout.serve.access import check_operator, identity_of
from turnout.serve.parameters import OF_EXAMPLES, records_of
from turnout.serve.read_api import Services
from turnout.serve.responses import json_response
from turnout.serve.rounds import Threads
from turnout.serve.routes import READING, Call
from turnout.serve.schemas import Answer

# Kafka may be slow to fail; only these threads wait for that.
_LISTING, _LISTING_SECONDS = 2, 15.0
_LOOKING, _LOOKING_SECONDS = 2, 25.0
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
    format: SourceFormat
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


@dataclass(frozen=True, slots=True)
class ExampleApi:
    """The calls, bound to their services."""

    _services: Services
    _listing: Threads = field(default_factory=lambda: Threads(_LISTING, "topics"))
    _looking: Threads = field(default_factory=lambda: Threads(_LOOKING, "examples"))

    @Call("/api/topics", TopicList, errors=(*READING, *_KAFKA))
    async def list_topics(self, request: Request) -> Response:
        """The topics of Kafka, without its own (`__...`), and the topics of sources; viewers get the latter alone."""
        with anyio.move_on_after(_LISTING_SECONDS):
            names = await self._listing.run(self._services.orchestrator.topics)
            status = await self._listing.run(self._services.orchestrator.status)
            sources = {name: status.get(topic_field(name)) for name in self._services.sources}
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
        check_operator(request.scope, "viewers may not read topics that are not sources")
        topic, records = _topic(request.path_params["topic"]), records_of(request.query_params)
        with anyio.move_on_after(_LOOKING_SECONDS):
            found = await self._looking.run(lambda: self._services.orchestrator.example(topic, records))
            return json_response(found)
        raise _too_slow(f"the records of topic {topic!r} did not arrive within {_LOOKING_SECONDS:g} s")


def _topic(name: str) -> str:
    try:
        return parse_topic(name)
    except ValueError as error:
        raise TurnoutError("bad_parameter", f"topic: {error}", "GET /api/topics lists the topics") from None


def _too_slow(message: str) -> TurnoutError:
    hint = "check that the brokers run; `turnout check` says what is wrong"
    return TurnoutError("kafka_unreachable", message, hint)
