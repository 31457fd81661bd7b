"""The cheap ones of the faults that `make faults` plays: nothing is lost and nothing doubled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faults.catalogue import FAULTS
from faults.stage import Stage
from shared_broker import formatted
from turnout.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOAD_SECONDS = 0.5
CHEAP = ("network-cut", "partitions-added", "poisoned-batch")


def test_network_partitions_and_hostile_records_lose_and_double_nothing(
    tmp_path: Path, broker: EmbeddedBroker, spark: SparkSession
) -> None:
    faults = {fault.name: fault for fault in FAULTS}
    with Stage(tmp_path, spark, LOAD_SECONDS) as stage:
        formatted(broker, stage.kafka_folder)
        for name in CHEAP:
            played = stage.play(faults[name])
            assert played.good, f"{name}: {played.comparison} {played.trouble}"
