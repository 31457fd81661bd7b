"""Creating a topic that somebody asks for on the command line; nothing else of Turnout creates one."""

from __future__ import annotations

import contextlib

from confluent_kafka import KafkaException

from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import TopicAdmin, describe
from turnout.kafka.topics import TIMEOUT_SECONDS, Topics
from turnout.plan.plan import parse_topic


def create_topic(kafka: KafkaSettings, name: str, partitions: int, *, compact: bool) -> None:
    """Create a topic, and return when it can be used."""
    try:
        parse_topic(name)
    except ValueError as error:
        raise TurnoutError("topic_refused", str(error), "choose another name") from None
    with contextlib.closing(Topics(kafka)) as topics:
        if name in topics.names():  # also tells why Kafka cannot be reached
            raise TurnoutError("topic_exists", f"topic {name!r} already exists", "give another name")
        config = {"cleanup.policy": "compact"} if compact else {}
        try:
            TopicAdmin(kafka, "settings", TIMEOUT_SECONDS).create(name, partitions, config)
        except KafkaException as exception:
            text = f"Kafka does not create topic {name!r} ({describe(exception.args[0])})"
            hint = "give Turnout's Kafka identity the right to create topics, or ask somebody who has it"
            raise TurnoutError("topic_refused", text, hint) from None
