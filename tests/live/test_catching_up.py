"""Catching up, exactly: random records in pieces, decoded in bulk, and views built in parts."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from test_exactness import Case, Runner, batches, cases, compare

from lengths import BULK_EXAMPLES
from oracle import Sent
from turnout.offsets import Offsets

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
        piece = Piece(before, before, end, last=end.reached(self._target))
        self._query.take_piece(piece, decode_bulk(frame, readings_of(self._layout)))


@pytest.mark.timeout(900)
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
            built = built or end.reached(runner._target)
            compare(case, runner, seen, views=built)
        runner.database.close()
