"""A Decoded as bytes or as a file, so that it can leave the process that made it.

Arrow streams, one after the other: the first names the others.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from turnout.decode.shape import Decoded, joined_batches

_ROWS, _FAULTS, _LEFT_OVER = "rows", "faults", "left_over"
_RECORDS = b"records"


def write(decoded: Decoded, sink: str | Path | pa.NativeFile) -> None:
    """Write to a file that is not there yet, or to an open sink."""
    if isinstance(sink, str | Path):
        with pa.OSFile(str(sink), "wb") as file:
            write(decoded, file)
        return
    parts: list[tuple[str, int, pa.Table]] = [(_ROWS, number, table) for number, table in decoded.rows.items()]
    if decoded.faults is not None:
        parts.append((_FAULTS, 0, decoded.faults))
    if decoded.left_over is not None:
        parts.append((_LEFT_OVER, 0, pa.Table.from_batches([decoded.left_over])))
    names = pa.table({"part": [part for part, _, _ in parts], "number": [number for _, number, _ in parts]})
    index = pa.table([names["part"].cast(pa.string()), names["number"].cast(pa.int32())], names=names.column_names)
    for table in (index.replace_schema_metadata({_RECORDS: str(decoded.records)}), *(table for _, _, table in parts)):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)


def read(source: str | Path | bytes | pa.Buffer | pa.NativeFile) -> Decoded:
    """What `write` wrote. A file is mapped: it may be removed at once, its rows stay as long as they are used."""
    if isinstance(source, str | Path):
        source = pa.memory_map(str(source))
    elif not isinstance(source, pa.NativeFile):
        source = pa.BufferReader(source)
    with pa.ipc.open_stream(source) as stream:
        index = stream.read_all()
    decoded = Decoded({}, records=int(index.schema.metadata[_RECORDS]))
    for part, number in zip(index["part"].to_pylist(), index["number"].to_pylist(), strict=True):
        with pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
        if part == _ROWS:
            decoded.rows[number] = table
        elif part == _FAULTS:
            decoded.faults = table
        else:
            decoded.left_over = joined_batches(table.to_batches())
    return decoded


def pack(decoded: Decoded) -> bytes:
    """As one value."""
    sink = pa.BufferOutputStream()
    write(decoded, sink)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(packed: bytes | pa.Buffer) -> Decoded:
    """What `pack` packed; the rows share its memory."""
    return read(packed)
