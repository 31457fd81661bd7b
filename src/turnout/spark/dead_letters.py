"""Bad records -> the dead-letter topic, by Spark's Kafka sink, with headers that say where each came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from turnout.store.batches import Batch

_HEADERS = ("topic", "partition", "offset", "reason")


class DeadLetters:
    """Sends the bad records of batches; to nowhere without a topic."""

    def __init__(self, session: SparkSession, topic: str | None, kafka: Callable[[], Mapping[str, str]]) -> None:
        self._session = session
        self._topic = topic
        self._kafka = kafka

    def send(self, batch: Batch) -> None:
        """At least once: they are sent before the batch is kept, and again when it is read again after a crash."""
        letters = batch.dead_letters() if self._topic else None
        if letters is None:
            return
        headers = [
            F.struct(
                F.lit(f"turnout.{name}").alias("key"),
                F.col(name).cast("string").cast("binary").alias("value"),
            )
            for name in _HEADERS
        ]
        # In one task: several would write side by side, and the letters would not be in the order of their records.
        frame = (
            self._session.createDataFrame(letters)
            .coalesce(1)
            .select("key", "value", F.array(*headers).alias("headers"))
        )
        frame.write.format("kafka").options(**self._kafka()).option("topic", self._topic).save()
