"""Raw records -> rows and faults of every source, by Arrow where records are plain and one by one where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode.exact_reader import HEADER, ExactReader, Faults, Record, schema_id, shown
from turnout.decode.json_plain import FEWEST, PlainReader
from turnout.decode.shape import RAW, Decoded, SourceShape, joined_batches, merge

Decode = Callable[[pa.RecordBatch | pa.Table], Decoded]

LARGEST_BYTES = 16 << 20
"""The largest value of a record that is decoded, unless another is given."""
KEPT_BYTES = 1_000
"""As much is kept of the value of a larger one."""
_PIECE_RECORDS = 16_384
_PIECE_BYTES = 4 << 20
_LONGEST_PAUSE = 64


def refused(sources: Sequence[SourceShape], topic: int, record: Record, reason: str) -> Decoded:
    """A record of a topic that is not decoded, as a fault of all its sources; its value may be the beginning alone."""
    faults, value = Faults(), record[3]
    for number, source in enumerate(sources):
        if source.topic == topic:
            faults.add(number, record, None, reason, None if value is None else shown(value))
    return Decoded({n: source.schema.empty_table() for n, source in enumerate(sources)}, faults.table(), records=1)


def too_large(size: int, largest_bytes: int) -> str:
    """Why a record of this size is refused."""
    return f"record too large: {size:,} bytes, more than kafka.max_record_megabytes ({largest_bytes >> 20}) allows"


def open_decoder(sources: Sequence[SourceShape], largest_bytes: int = LARGEST_BYTES) -> Decode:
    """What decodes batches of RAW for these sources. It is for one thread, and learns how records look."""
    readers = [_SourceReader(number, source) for number, source in enumerate(sources)]
    topics: dict[int, list[_SourceReader]] = {}
    for reader in readers:
        topics.setdefault(reader.source.topic, []).append(reader)

    def decode(records: pa.RecordBatch | pa.Table) -> Decoded:
        faults = Faults()
        rows: list[list[pa.Table]] = [[] for _ in sources]
        left: list[pa.RecordBatch] = []
        large: list[Decoded] = []
        for whole in _batches(records):
            batch = _without_large(whole, sources, largest_bytes, large)
            found = pc.unique(batch["_topic"]).to_pylist()
            for topic in found:
                some = batch if len(found) == 1 else batch.filter(pc.equal(batch["_topic"], topic))
                own = topics.get(topic, [])
                known = _known(some, own, left)
                for reader in own:
                    rows[reader.number] += reader.read(known, faults)
        left_over = joined_batches(left)
        decoded = Decoded(
            {n: pa.concat_tables([sources[n].schema.empty_table(), *tables]) for n, tables in enumerate(rows)},
            faults.table(),
            left_over,
            records.num_rows - len(large) - (left_over.num_rows if left_over is not None else 0),
        )
        return merge([decoded, *large]) if large else decoded

    return decode


def _without_large(
    batch: pa.RecordBatch, sources: Sequence[SourceShape], largest_bytes: int, large: list[Decoded]
) -> pa.RecordBatch:
    """The records whose values are not too large; the others go to `large`."""
    sizes = pc.fill_null(pc.binary_length(batch["value"]), 0)
    if pc.max(sizes).as_py() <= largest_bytes:
        return batch
    over = pc.greater(sizes, largest_bytes)
    some = batch.filter(over)
    some = some.set_column(4, "value", pc.binary_slice(some["value"], 0, KEPT_BYTES))
    for row, size in zip(some.to_pylist(), sizes.filter(over).to_pylist(), strict=True):
        record = (row["_id"], row["_ts"], row["key"], row["value"])
        large.append(refused(sources, row["_topic"], record, too_large(size, largest_bytes)))
    return batch.filter(pc.invert(over))


def _batches(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    chosen = records.select(RAW.names)
    batches = chosen.to_batches() if isinstance(chosen, pa.Table) else [chosen]
    return [batch.cast(RAW) if batch.schema != RAW else batch for batch in batches if batch.num_rows]


def _known(records: pa.RecordBatch, readers: Sequence[_SourceReader], left: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The records whose schemas all sources know, or know that they lack; the others go to `left`."""
    partial = [reader.source for reader in readers if reader.source.framed and not reader.source.complete]
    if not partial:
        return records
    headers = pc.binary_slice(records["value"], 0, HEADER)
    known = [{None, *source.schemas, *source.unusable} for source in partial]
    unknown = [
        header
        for header in headers.unique().to_pylist()
        if header is not None and any(schema_id(header) not in some for some in known)
    ]
    if not unknown:
        return records
    missing = pc.is_in(headers, pa.array(unknown, pa.binary()))
    left.append(records.filter(missing))
    return records.filter(pc.invert(missing))


class _SourceReader:
    """The two readers of a source, and when which is used."""

    def __init__(self, number: int, source: SourceShape) -> None:
        self.number = number
        self.source = source
        self._exact = ExactReader(number, source)
        self._plain = PlainReader(source.columns) if source.form == "json" else None
        self._pause = 0
        self._paused = 0

    def read(self, records: pa.RecordBatch, faults: Faults) -> list[pa.Table]:
        """The rows of these records of its topic."""
        return [table for piece in _pieces(records) for table in self._piece(piece, faults)]

    def _piece(self, records: pa.RecordBatch, faults: Faults) -> list[pa.Table]:
        if self._plain is None:
            return self._one_by_one(records, faults)
        if self._paused:
            # Most records were odd of late: trying each piece would cost more than it saves.
            self._paused -= 1
            return self._one_by_one(records, faults)
        tables = []
        odd = np.ones(records.num_rows, dtype=bool)
        ids = records.select(["_id", "_ts"])
        for places, table in self._plain.read(records["value"]):
            odd[places] = False
            tables.append(self._with_ids(table, ids if len(places) == len(odd) else ids.take(pa.array(places))))
        left = np.flatnonzero(odd)
        if len(left):
            some = records if len(left) == records.num_rows else records.take(pa.array(left))
            tables += self._one_by_one(some, faults)
        if len(left) * 2 <= records.num_rows:
            self._pause = 0
        elif records.num_rows >= FEWEST:
            self._pause = self._paused = min(2 * self._pause or 1, _LONGEST_PAUSE)
        return tables

    def _with_ids(self, table: pa.Table, ids: pa.RecordBatch) -> pa.Table:
        columns = [*table.columns, *ids.columns]
        if self.source.tombstones:
            columns.append(pa.array(np.zeros(ids.num_rows, dtype=bool)))
        return pa.table(columns, schema=self.source.schema)

    def _one_by_one(self, records: pa.RecordBatch, faults: Faults) -> list[pa.Table]:
        each: Iterator[Record] = zip(*(records[name].to_pylist() for name in RAW.names[1:]), strict=True)
        table = self._exact.read(each, faults)
        return [table] if table is not None else []


def _pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The records in pieces that are not too large to try again."""
    values = records["value"]
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    ends = ends.astype(np.int64)  # so that it is not converted for each search
    start = 0
    while start < len(values):
        fits = int(np.searchsorted(ends, ends[start] + _PIECE_BYTES, "right")) - 1
        stop = min(max(fits, start + 1), start + _PIECE_RECORDS, len(values))
        yield records.slice(start, stop - start)
        start = stop
