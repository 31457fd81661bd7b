"""Many JSON records -> columns, by Arrow's reader: only of records that it surely reads as `json_exact` does.

All records of a piece are read at once, or none. A piece that cannot be read is halved, so that one odd record does
not hold up many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from turnout.decode.columns import arrow_type

Mask = npt.NDArray[np.bool_]

_BLOCK_BYTES = 1 << 20
_LONGEST = 1 << 20
# Arrow's reader recurses.
_CERTAINLY_SHALLOW = 1_000
_TOO_NESTED = 500
_SMALLEST_PIECE = 256
_FEWEST = 16
"""Fewer records are read faster one by one."""


class PlainReader:
    """Reads the columns of one source."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._kinds = dict(columns)
        self._strict = True
        self._numbers_as_times = False

    def read(self, values: pa.BinaryArray) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The rows of plain values, in groups: where the values stand, and their columns."""
        if len(values) < _FEWEST or not self._kinds:
            return
        mask = promising(values)
        if mask.all():
            yield from self._halves(values, np.arange(len(values)))
        else:
            places = np.flatnonzero(mask)
            if len(places) >= _FEWEST:
                yield from self._halves(values.take(pa.array(places)), places)

    def _halves(
        self, values: pa.BinaryArray, places: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        table = self._attempt(values)
        if table is not None:
            yield places, table
        elif len(values) > _SMALLEST_PIECE:
            half = len(values) // 2
            yield from self._halves(values.slice(0, half), places[:half])
            yield from self._halves(values.slice(half), places[half:])

    def _attempt(self, values: pa.BinaryArray) -> pa.Table | None:
        """The columns of all values, or None if one of them is not surely a plain record."""
        whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        data: pa.Buffer = pc.binary_join(whole, b"\n")[0].as_buffer()
        if not _is_text(data):
            return None
        try:
            try:
                table = self._parsed(data, len(values))
            except pa.ArrowInvalid as error:
                if not self._adapted(str(error)):
                    return None
                table = self._parsed(data, len(values))
            return self._typed(table) if table is not None else None
        except pa.ArrowInvalid:
            return None

    def _adapted(self, error: str) -> bool:
        """Whether another way of reading may help. It is kept, since the next records are like these."""
        if self._strict and error.endswith("unexpected field"):
            self._strict = False
            return True
        if "timestamp" in self._kinds.values() and "changed from" in error:
            self._numbers_as_times = not self._numbers_as_times
            return True
        return False

    def _parsed(self, data: pa.Buffer, count: int) -> pa.Table | None:
        """What Arrow makes of values in lines, if that is one row for each.

        A value begins with { and ends with }, and a string cannot hold the line break between two. Inside of an object
        no { follows on a }, so no value can go on in the next: as many rows as values means one row for each.
        """
        if not self._strict and _has_special_number(data):
            return None
        fields = [(name, self._read_as(kind)) for name, kind in self._kinds.items()]
        parsing = pj.ParseOptions(
            explicit_schema=pa.schema(fields),
            # Where a field is unknown to Arrow's reader, NaN in it is too.
            unexpected_field_behavior="error" if self._strict else "ignore",
            newlines_in_values=True,
        )
        size = data.size if data.size < 2 * _BLOCK_BYTES else _BLOCK_BYTES
        reading = pj.ReadOptions(use_threads=False, block_size=max(size, _BLOCK_BYTES) + 1)
        table = pj.read_json(pa.BufferReader(data), parse_options=parsing, read_options=reading)
        return table.select(list(self._kinds)) if table.num_rows == count else None

    def _read_as(self, kind: str) -> pa.DataType:
        if kind == "timestamp":
            return pa.int64() if self._numbers_as_times else pa.string()
        # Rounded once to a double, as everywhere, and only then to a float.
        return {"date": pa.string(), "float": pa.float64()}.get(kind) or arrow_type(kind)

    def _typed(self, table: pa.Table) -> pa.Table | None:
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
        if limits["min"].is_valid and not -(10**12) < limits["min"].as_py() <= limits["max"].as_py() < 10**12:
            raise pa.ArrowInvalid("beyond what is surely held")
        return column.cast(seconds).cast(kind)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us")).cast(kind)


def _is_text(data: pa.Buffer) -> bool:
    """Whether all of it is UTF-8, without the NUL that Arrow's reader takes for the end."""
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int64)), data])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return not (np.frombuffer(data, np.uint8) == 0).any()


def _has_special_number(data: pa.Buffer) -> bool:
    found = data.to_pybytes()
    return b"NaN" in found or b"Inf" in found


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
    last = len(data) - 1
    mask &= (data[np.minimum(offsets[:-1], last)] == ord("{")) & (data[np.maximum(offsets[1:] - 1, 0)] == ord("}"))
    long = np.flatnonzero(mask & (length > _CERTAINLY_SHALLOW))
    if len(long):
        some = values.take(pa.array(long))
        nested = pc.add(pc.count_substring(some, b"["), pc.count_substring(some, b"{"))
        mask[long[nested.to_numpy() > _TOO_NESTED]] = False
    return mask
