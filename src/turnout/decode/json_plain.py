"""Many JSON records -> columns, by Arrow's reader: only of records that it surely reads as `json_exact` does.

A run of records is read as a whole, or not at all. Where Arrow says which record it could not read, that one is left
out; otherwise the run is halved. So one odd record does not hold up many, and where most are odd we soon give up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from turnout_client.arrow_columns import arrow_type

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

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
