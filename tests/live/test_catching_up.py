"""Catching up, exactly: random records in pieces, decoded in bulk, and views built in parts."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from test_exactness import Case, Runner, batches, cases, compare

from fed import Quiet
from kafka_log import read_all
from lengths import BULK_EXAMPLES
from oracle import Sent
from turnout.broker import EmbeddedBroker
from turnout.joins import Duplicates, Join
from turnout.offsets import Offsets
from turnout.testing import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CatchingUp(Runner):
    """A generation that is fed pieces until it has caught up, then batches."""

    def feed(self, number: int, records: list[Sent], end: Offsets) -> None:
        from turnout.spark.bulk import bulk_session, decode_bulk
        from turnout.spark.catch_up import Piece
        from turnout.spark.decode import readings_of
        from turnout.spark.sampling import KAFKA_SCHEMA

        progress = self.tables.progress()
        if progress.views_built:
            super().feed(number, records, end)
            return
        before = Offsets.kept(progress.offsets, self._start)
        times = [datetime.fromtimestamp(r.timestamp_ms / 1000, UTC) for r in records]
        columns = [
            [r.key for r in records],
            [r.value for r in records],
            [r.topic for r in records],
            [r.partition for r in records],
            [r.offset for r in records],
            times,
        ]
        frame = bulk_session(self._spark).createDataFrame(pa.table(columns, schema=KAFKA_SCHEMA))
        piece = Piece(before, before, end, last=end.reached(self.target))
        self._query.take_piece(piece, decode_bulk(frame, readings_of(self._layout)))


@settings(max_examples=BULK_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_tables_equal_a_plain_computation_whatever_the_pieces(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        # So that views of few rows, too, are built in parts; of keys that fall into no part there are some.
        patched.setattr("turnout.spark.generation.SMALL_BATCH", 0)
        patched.setattr("turnout.spark.generation.PART_ROWS", 5)
        runner = CatchingUp(spark, case, Path(folder))
        seen: list[Sent] = []
        built = case.caught_up_after == 0
        for number, records, end in batches(case):
            runner.feed(number, records, end)
            if number in case.restarts:
                runner.restart()
            seen += records
            built = built or end.reached(runner.target)
            compare(case, runner, seen, views=built)
        runner.database.close()


class LargeBatches(Runner):
    """A generation whose batches are all so large that they are read in bulk, from a real Kafka."""

    bootstrap = ""

    def _open(self) -> None:
        from turnout.spark.generation import GenerationQuery, Reading

        super()._open()
        reading = Reading(
            lambda: {"bootstrap.servers": self.bootstrap},
            self._start,
            self.target,
            self._folder / "checkpoint",
            1000,
            ends=lambda topics: list(batches(self._case))[-1][2],
        )
        self._query = GenerationQuery(self._spark, self.tables, reading, Quiet())


def test_large_batches_of_a_stream_are_read_in_bulk(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("generation", "bulk"):
        monkeypatch.setattr(f"turnout.spark.{module}.FEW", 0)
    monkeypatch.setattr(LargeBatches, "bootstrap", broker.bootstrap_servers)
    odd = [b"nope", b'{"userId":"k1","age":"x","balance":[]}', b'{"userId":"\xff"}', b'{"userId":"k3","age":-0}']
    good = [b'{"userId":"k%d","name":"n","age":%d,"accountType":"a","balance":%d}' % (n % 7, n, n) for n in range(60)]
    for topic in ("u", "a"):
        create_topic(broker.bootstrap_servers, topic, 3)
        values = [*good, *odd, None, *reversed(good)]
        produce(broker.bootstrap_servers, topic, [(value, b"k1", n % 3) for n, value in enumerate(values)])
    records = sorted(read_all(broker.bootstrap_servers, ["u", "a"]), key=lambda record: record.offset)
    joins = [Join.LEFT, Join.FULL, Join.INNER]
    case = Case(records, [200], set(), 0, ("all", "latest"), None, Duplicates.LATEST, joins)
    runner = LargeBatches(spark, case, tmp_path)
    seen: list[Sent] = []
    for number, part, end in batches(case):
        runner._query.process_frame(cast(Any, None), number, end)
        seen += part
        compare(case, runner, seen, views=True)
    runner.database.close()
