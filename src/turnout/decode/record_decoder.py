"""Records of a generation's topics -> rows of its sources, on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode import RAW, Decoded, SourceShape, merge
from turnout.decode.schemas import Decoder, Schemas
from turnout.plan.joins import OFFSET_BITS
from turnout.plan.tables import Layout

Place = tuple[str, int]
"""A topic and a partition of it."""


class RecordDecoder:
    """Decodes what a generation reads; one thread at a time."""

    def __init__(self, layout: Layout, schemas: Mapping[str, Schemas] = MappingProxyType({})) -> None:
        """`schemas` are those of the sources that are not JSON."""
        self.topics = layout.topics
        self._sources = layout.sources
        shapes = [
            SourceShape(
                name=source.source,
                topic=self.topics.index(source.topic),
                key=source.key,
                columns={column: kind.name for column, kind in source.columns.items()},
                tombstones=source.latest,
                form=source.form,
            )
            for source in layout.sources
        ]
        self.decode = Decoder(shapes, schemas)

    def complete(self, decoded: Decoded) -> Decoded:
        """What workers decoded, with the records that they left over: only the driver can ask a schema registry."""
        if decoded.left_over is None:
            return decoded
        records, decoded.left_over = decoded.left_over, None
        return merge([decoded, self.decode(records)])

    def firsts(self, decoded: Decoded) -> dict[Place, int]:
        """The first offset of each partition among decoded records."""
        found: dict[Place, int] = {}
        tables = [(number, rows["_id"]) for number, rows in decoded.rows.items()]
        if decoded.faults is not None:
            faults = decoded.faults
            tables += [
                (number, faults["_id"].filter(pc.equal(faults["source"], number)))
                for number in pc.unique(faults["source"]).to_pylist()
            ]
        for number, ids in tables:
            places = pa.table({"partition": pc.shift_right(ids, OFFSET_BITS), "_id": ids})
            least = places.group_by("partition").aggregate([("_id", "min")])
            for partition, first in zip(*(least[name].to_pylist() for name in ("partition", "_id_min")), strict=True):
                place, offset = (self._sources[number].topic, partition), first & ((1 << OFFSET_BITS) - 1)
                found[place] = min(found.get(place, offset), offset)
        return found


def raw(values: Sequence[bytes | None], topics: Sequence[int] | None = None) -> pa.Table:
    """Values without keys and times as raw records, numbered from 0; of the first topic where none are given."""
    count = len(values)
    columns = [topics or [0] * count, range(count), [0] * count, [None] * count, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)


def newest(decoded: Decoded) -> int | None:
    """The latest timestamp of decoded records, in milliseconds; None where there are none."""
    return max((pc.max(table["_ts"]).as_py() for table in _tables(decoded) if table.num_rows), default=None)


def size_of(decoded: Decoded) -> int:
    """How many bytes of memory decoded records take."""
    return sum(table.nbytes for table in _tables(decoded))


def _tables(decoded: Decoded) -> list[pa.Table]:
    return [*decoded.rows.values(), *([] if decoded.faults is None else [decoded.faults])]
