"""Raw records -> rows and faults of every source: by Arrow where records are plain, and one by one where not.

Arrow's reader gets only JSON that it surely reads as `json_exact` does. It reads a run of records as a whole, or not at
all. Where it says which record it could not read, that one is left out; otherwise the run is halved. So one odd record
does not hold up many, and where most are odd we soon give up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from turnout.decode.exact_reader import HEADER, ExactReader, Faults, Record, schema_id, shown
from turnout.decode.shape import RAW, SourceShape
from turnout_client.arrow_columns import arrow_type

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

LARGEST_BYTES = 16 << 20
"""The largest value of a record that is decoded, unless another is given."""
KEPT_BYTES = 1_000
"""As much is kept of the value of a larger one."""
_PIECE_RECORDS = 16_384
_PIECE_BYTES = 4 << 20
_LONGEST_PAUSE = 64

_LONGEST = 1 << 20
# Arrow's reader recurses.
_CERTAINLY_SHALLOW = 1_000
_TOO_NESTED = 500
FEWEST = 64
"""Fewer records are read faster one by one: each attempt waits for a thread of Arrow."""
_SMALLEST_HALVED = 128
_MISSES = 8
"""How many attempts may fail at first, and how many records each further one must have brought."""
_RECORDS_A_MISS = 128
_ROW = re.compile(r" in row ([0-9]+)$")
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (string to number|number to string) in row 0$", re.DOTALL)
_MINUS_ZERO = re.compile(rb":\s*-0\s*[,}]")
_SURELY_HELD_SECONDS = 9 * 10**12
_SPECIAL = "[][:,\\s-](?:NaN|Inf)"
# Arrow looks the power of ten of a decimal up in a table, without a look at its length.
_LARGE_SCALE = '[:\\s"][+-]?[0-9.]*[eE][+-]?[0-9]{2}|[0-9]{30}'


@dataclass(slots=True)
class Decoded:
    """The rows and faults of some records."""

    rows: dict[int, pa.Table]
    """By the position of the source, every source: declared columns, `_id`, `_ts`, and `_deleted` where tombstones
    remove rows (such a row has only its key). The order is not that of the records."""
    faults: pa.Table | None = None
    left_over: pa.RecordBatch | None = None
    """Records of schemas that were not given; they are in no rows and no faults."""
    records: int = 0
    """How many records were decoded, without those left over."""

    @property
    def tables(self) -> list[pa.Table]:
        """The tables of rows and of faults."""
        return [*self.rows.values(), *([] if self.faults is None else [self.faults])]


Decode = Callable[[pa.RecordBatch | pa.Table], Decoded]


def merge(parts: Sequence[Decoded]) -> Decoded:
    """Merge several results of the same sources."""
    rows: dict[int, list[pa.Table]] = {}
    for part in parts:
        for number, table in part.rows.items():
            rows.setdefault(number, []).append(table)
    faults = [part.faults for part in parts if part.faults is not None]
    left = [part.left_over for part in parts if part.left_over is not None]
    return Decoded(
        {number: pa.concat_tables(tables) for number, tables in rows.items()},
        pa.concat_tables(faults) if faults else None,
        joined_batches(left),
        sum(part.records for part in parts),
    )


def joined_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Join batches to one; None where they have no record."""
    [whole] = pa.Table.from_batches(batches, RAW).combine_chunks().to_batches() or [None]
    return whole


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


class PlainReader:
    """Reads the columns of one source. It keeps what it learns of how records look."""

    def __init__(self, columns: Mapping[str, str], fewest: int = FEWEST) -> None:
        self._kinds = dict(columns)
        self._fewest = fewest
        self._decimals = any(kind.startswith("decimal") for kind in columns.values())
        self._strict = True
        self._numbers: set[str] = set()
        """Columns of texts and times that come as whole numbers."""

    def read(self, values: pa.BinaryArray) -> list[tuple[Places, pa.Table]]:
        """The rows of plain values, in runs: where the values stand, and their columns."""
        if len(values) < self._fewest or not self._kinds:
            return []
        strict = self._strict
        mask = promising(values)
        if self._decimals:
            mask &= ~pc.fill_null(pc.match_substring_regex(values, _LARGE_SCALE), True).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(mask)
        if len(places) < self._fewest:
            return []
        joined = _Joined.of(values, places, strict)
        found: list[tuple[Places, pa.Table]] = []
        pending = [(0, len(joined.places))]
        misses = read = 0
        while pending:
            start, stop = pending.pop()
            if stop - start < self._fewest or misses > _MISSES + read // _RECORDS_A_MISS:
                continue
            table, row = self._attempt(joined, start, stop)
            if strict and not self._strict:
                # There are fields that nobody asked for, so more must be looked at beforehand.
                return self.read(values)
            if table is not None:
                found.append((joined.places[start:stop], table))
                read += stop - start
                continue
            misses += 1
            if row is not None:
                pending += [(start + row + 1, stop), (start, start + row)]
            elif stop - start > _SMALLEST_HALVED:
                half = (start + stop) // 2
                pending += [(half, stop), (start, half)]
        return found

    def _attempt(self, joined: _Joined, start: int, stop: int) -> tuple[pa.Table | None, int | None]:
        """The columns of a run, or None and, where that is known, which of its values is odd."""
        try:
            table = self._parsed(joined, start, stop)
        except pa.ArrowInvalid as error:
            if not self._adapted(str(error)):
                row = _ROW.search(str(error))
                return None, int(row[1]) if row and int(row[1]) < stop - start else None
            try:
                table = self._parsed(joined, start, stop)
            except pa.ArrowInvalid:
                return None, None
        try:
            return (self._typed(table, joined.lines(start, stop)) if table is not None else None), None
        except pa.ArrowInvalid:
            return None, None

    def _adapted(self, error: str) -> bool:
        """Whether another way of reading may help. It is kept, since the next records are like these."""
        if self._strict and error.endswith("unexpected field"):
            self._strict = False
            return False
        changed = _CHANGED.search(error)
        if changed is None or self._kinds.get(changed[1]) not in ("string", "timestamp"):
            return False
        self._numbers ^= {changed[1]}
        return True

    def _parsed(self, joined: _Joined, start: int, stop: int) -> pa.Table | None:
        """Read values in lines by Arrow; None unless that gives one row for each.

        A value begins with { and ends with }, and a string cannot hold the line break between two. Inside of an object
        no { follows on a }, so no value can go on in the next: as many rows as values means one row for each.
        """
        data = joined.lines(start, stop)
        # Floats are rounded once to a double, as everywhere, and only then to a float.
        others = {"date": pa.string(), "timestamp": pa.string(), "float": pa.float64()}
        fields = [
            (name, pa.int64() if name in self._numbers else others.get(kind) or arrow_type(kind))
            for name, kind in self._kinds.items()
        ]
        parsing = pj.ParseOptions(
            explicit_schema=pa.schema(fields),
            # In a field that is ignored, NaN is too.
            unexpected_field_behavior="error" if self._strict else "ignore",
            newlines_in_values=True,
        )
        # All in one block: then Arrow counts rows from the first.
        reading = pj.ReadOptions(use_threads=False, block_size=data.size + 1)
        table = pj.read_json(pa.BufferReader(data), parse_options=parsing, read_options=reading)
        return table.select(list(self._kinds)) if table.num_rows == stop - start else None

    def _typed(self, table: pa.Table, lines: pa.Buffer) -> pa.Table | None:
        """The columns in their declared types; None or ArrowInvalid where a value may not fit."""
        columns = []
        for (_, kind), column in zip(self._kinds.items(), table.columns, strict=True):
            if kind in ("float", "double"):
                found = column.cast(arrow_type(kind), safe=False)
                if not pc.all(pc.is_finite(found), min_count=0).as_py():
                    return None
            elif kind == "timestamp":
                found = _times(column)
            elif kind == "date":
                found = column.cast(pa.date32())
            elif kind == "string" and pa.types.is_integer(column.type):
                if pc.any(pc.equal(column, 0)).as_py() and _MINUS_ZERO.search(lines):
                    return None
                found = column.cast(pa.string())
            else:
                found = column
                if kind.startswith("decimal"):
                    # Arrow's reader takes whole numbers that have more digits than the type.
                    found.validate(full=True)
            columns.append(found)
        return pa.table(columns, names=list(self._kinds))


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = pa.timestamp("us", "UTC")
    if pa.types.is_integer(column.type):
        seconds = pa.timestamp("s", "UTC")
        limits = pc.min_max(column)
        furthest = max(abs(limits["min"].as_py() or 0), abs(limits["max"].as_py() or 0))
        if furthest > _SURELY_HELD_SECONDS:
            raise pa.ArrowInvalid("beyond what is surely held")
        return column.cast(seconds).cast(kind)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us")).cast(kind)


class _Joined:
    """Values joined by line breaks: valid UTF-8, no NUL, no NaN."""

    __slots__ = ("_data", "_starts", "places")

    def __init__(self, values: pa.BinaryArray, places: Places) -> None:
        whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        self._data: pa.Buffer = pc.binary_join(whole, b"\n")[0].as_buffer()
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        self._starts = offsets - offsets[0] + np.arange(len(values) + 1)
        self.places = places

    @classmethod
    def of(cls, values: pa.BinaryArray, places: Places, strict: bool) -> _Joined:
        """Join the values at `places` that pass these checks; without `strict` also refuse NaN and Infinity."""
        chosen = values if len(places) == len(values) else values.take(pa.array(places))
        joined = cls(chosen, places)
        good: Mask = np.ones(len(chosen), dtype=bool)
        data = joined._data
        # UTF-8, without the NUL that Arrow's reader takes for the end.
        if not (_is_utf8(data) and np.frombuffer(data, np.uint8).all()):
            good &= ~pc.match_substring(chosen, b"\0").to_numpy(zero_copy_only=False)
            good &= np.fromiter((_is_utf8(value.as_buffer()) for value in chosen), bool, len(chosen))
        if not strict and any(word in data.to_pybytes() for word in (b"NaN", b"Inf")):
            good &= ~pc.match_substring_regex(chosen, _SPECIAL).to_numpy(zero_copy_only=False)
        return joined if good.all() else cls(chosen.filter(pa.array(good)), places[good])

    def lines(self, start: int, stop: int) -> pa.Buffer:
        return self._data.slice(int(self._starts[start]), int(self._starts[stop] - self._starts[start]) - 1)


def _is_utf8(data: pa.Buffer) -> bool:
    ends = pa.py_buffer(np.array([0, data.size], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, ends, data]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def promising(values: pa.BinaryArray) -> Mask:
    """Values that look like one object, and are not too large or nested for Arrow's reader."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    length = np.diff(offsets)
    mask: Mask = (length >= 2) & (length <= _LONGEST)
    if values.null_count:
        mask &= values.is_valid().to_numpy(zero_copy_only=False)
    if not len(data):
        return mask
    first, last = np.minimum(offsets[:-1], len(data) - 1), np.maximum(offsets[1:] - 1, 0)
    for _ in range(2):  # a line break at the end
        last = last - ((last > first) & ((data[last] == ord("\n")) | (data[last] == ord("\r"))))
    mask &= (data[first] == ord("{")) & (data[last] == ord("}"))
    long = np.flatnonzero(mask & (length > _CERTAINLY_SHALLOW))
    if len(long):
        some = values.take(pa.array(long))
        nested = pc.add(pc.count_substring(some, b"["), pc.count_substring(some, b"{"))
        mask[long[nested.to_numpy() > _TOO_NESTED]] = False
    return mask
