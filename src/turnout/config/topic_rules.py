"""The topics that a source may read: none that Turnout writes or takes commands from, none of Kafka's own.

The same rules hold for the file and for control messages; messages may have an allow-list besides (`control.topics`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from turnout.config.settings import KafkaSettings, Settings

INTERNAL = "__"
"""Names of Kafka's own topics begin so, such as `__consumer_offsets`."""

_SHOWN_PATTERNS = 10


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What topics a control message may name."""

    taken: Mapping[str, str] = field(default_factory=dict)
    """Topics that no source may read, and what each is."""
    configured: frozenset[str] = frozenset()
    allowed: tuple[str, ...] = ()
    """Patterns; with none, all topics that are not `taken`."""

    @classmethod
    def of(cls, settings: Settings) -> TopicRules:
        configured = frozenset(source.topic for source in settings.sources.values())
        taken = taken_topics(settings)
        taken |= {
            topic: f"is where {path.removesuffix('.topic')} writes" for path, topic in settings.written_topics.items()
        }
        return cls(taken, configured, settings.control.topics)

    def fault(self, topic: str) -> tuple[str, str] | None:
        """Why a message may not name this topic, and what to do; None where it may."""
        if reason := reserved(topic, self.taken):
            return f"topic {topic!r} {reason}", "name a topic that holds records of the source"
        if not self.allowed or topic in self.configured or any(fnmatchcase(topic, one) for one in self.allowed):
            return None
        more = f" and {len(self.allowed) - _SHOWN_PATTERNS} more" if len(self.allowed) > _SHOWN_PATTERNS else ""
        patterns = ", ".join(self.allowed[:_SHOWN_PATTERNS]) + more
        return f"topic {topic!r} is not allowed here", f"control.topics allows {patterns}, and the topics of the file"


def taken_topics(settings: Settings) -> dict[str, str]:
    """Topics of the data's cluster that no source may read, and what each is."""
    control, taken = settings.control, {}
    if one_cluster(settings.kafka, control.kafka):
        taken[control.topic] = "is the control topic"
        if control.ack_topic is not None:
            taken[control.ack_topic] = "is where outcomes are written (control.ack_topic)"
    if settings.dead_letter_topic is not None:
        taken[settings.dead_letter_topic] = "is where bad records are written (dead_letter_topic)"
    return taken


def reserved(topic: str, taken: Mapping[str, str]) -> str | None:
    """Why no source may read a topic, if so."""
    return "is one of Kafka's own" if topic.startswith(INTERNAL) else taken.get(topic)


def one_cluster(data: KafkaSettings | None, control: KafkaSettings | None) -> bool:
    """Whether control and data are on one cluster, as far as the settings tell."""
    if control is None or "bootstrap_servers" not in control.model_fields_set:
        return True
    return data is not None and data.bootstrap_servers == control.bootstrap_servers
