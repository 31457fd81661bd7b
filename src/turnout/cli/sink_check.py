"""The check of a sink: its topic exists, may be written and read, and is compacted. Nothing is written."""

from confluent_kafka import KafkaException

from turnout.cli.check import Finding
from turnout.config import KafkaSettings, SinkSettings
from turnout.sink.failures import failure
from turnout.sink.topic_reader import TopicReader, policy_complaint


def check_sink(name: str, sink: SinkSettings, kafka: KafkaSettings) -> Finding:
    subject = f"sink {name}"
    reader = TopicReader(kafka, sink.topic, lambda: False)
    try:
        found = reader.find()
    except (KafkaException, TimeoutError) as error:
        return Finding.of_error(subject, failure(error, sink, kafka))
    if found.missing_rights:
        text = (
            f"topic {sink.topic} may not be used with Turnout's Kafka identity (no {', '.join(found.missing_rights)})"
        )
        return Finding(subject, "fault", text, "grant it Describe, Read and Write on the topic")
    if complaint := policy_complaint(sink.topic, reader.cleanup_policy()):
        return Finding(subject, "warning", *complaint)
    return Finding(subject, "ok", f"topic {sink.topic}: partitions {len(found.partitions)}, {sink.delivery}")
