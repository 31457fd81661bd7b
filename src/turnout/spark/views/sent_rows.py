"""Rows that go from the driver to a task anywhere, as a broadcast of Arrow batches that a Python worker reads.

A frame made of the rows themselves would have them in the task's own message, which Spark limits, and in the driver's
heap several times. A worker gets this module by value, so it imports nothing of Turnout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

BATCH_ROWS = 50_000


def packed(rows: pa.Table) -> bytes:
    """The rows as one compressed value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows, max_chunksize=BATCH_ROWS)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def reader(sent: Broadcast[bytes]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over a single row: the rows that were packed."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from pa.ipc.open_stream(sent.value)

    return run
