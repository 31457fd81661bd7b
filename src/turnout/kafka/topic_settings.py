"""How Kafka keeps a topic: whether it is compacted. Asked of the brokers, which may refuse to say."""

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from turnout.config import KafkaSettings
from turnout.kafka.clients import SILENT, client_properties, set_up

_POLICY = "cleanup.policy"


def is_compacted(kafka: KafkaSettings, topic: str, timeout_seconds: float) -> bool | None:
    """Whether Kafka keeps only the newest record of each key; None where it does not say within the time."""
    admin = set_up(lambda properties: AdminClient(properties, logger=SILENT), client_properties(kafka, "settings"))
    asked = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found: Future[Any] = admin.describe_configs([asked], request_timeout=timeout_seconds)[asked]
        return "compact" in found.result(timeout_seconds + 1)[_POLICY].value
    # A right that Turnout has no other need of (DescribeConfigs), or a broker that does not know the setting.
    except (KafkaException, KeyError, TypeError, TimeoutError):
        return None
