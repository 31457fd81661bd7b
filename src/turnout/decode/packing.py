"""A Decoded as bytes or as a file, so that it can leave the process that made it.

Arrow streams, one after the other: the first, which has no rows, names the others.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from turnout.decode.shape import Decoded, joined_batches

_FAULTS, _LEFT_OVER = "faults", "left_over"
_PARTS, _RECORDS = b"parts", b"records"


def write(decoded: Decoded, sink: pa.NativeFile) -> None:
    """Write to an open sink."""
    parts = {str(number): table for number, table in decoded.rows.items()}
    if decoded.faults is not None:
        parts[_FAULTS] = decoded.faults
    if decoded.left_over is not None:
        parts[_LEFT_OVER] = pa.Table.from_batches([decoded.left_over])
    header = pa.schema([]).with_metadata({_PARTS: " ".join(parts), _RECORDS: str(decoded.records)})
    for table in (header.empty_table(), *parts.values()):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)


def read(source: str | Path | bytes) -> Decoded:
    """What `write` wrote: a file, or its bytes.

    A file is mapped: it may be removed at once, its rows stay as long as they are used. Rows share the memory of bytes.
    """
    opened = pa.BufferReader(source) if isinstance(source, bytes) else pa.memory_map(str(source))
    header = _next_table(opened).schema.metadata
    parts = {name: _next_table(opened) for name in header[_PARTS].decode().split()}
    faults, left_over = parts.pop(_FAULTS, None), parts.pop(_LEFT_OVER, None)
    return Decoded(
        {int(number): table for number, table in parts.items()},
        faults,
        joined_batches(left_over.to_batches()) if left_over is not None else None,
        int(header[_RECORDS]),
    )


def _next_table(opened: pa.NativeFile) -> pa.Table:
    with pa.ipc.open_stream(opened) as stream:
        return stream.read_all()
