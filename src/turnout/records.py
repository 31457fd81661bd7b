"""Decoded records on their way from Spark to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from turnout.joins import OFFSET_BITS

Place = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of a batch: those of `decode`, and those that gave plain rows, by the number of their source."""

    records: pa.Table | None = None
    rows: Mapping[int, pa.Table] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables())

    def newest(self) -> datetime | None:
        """The latest timestamp; None where there are no records."""
        return max(filter(None, (pc.max(table["_ts"]).as_py() for table in self._tables())), default=None)

    def _tables(self) -> list[pa.Table]:
        return [*self.rows.values(), *([] if self.records is None else [self.records])]

    def firsts(self, topics: Sequence[str]) -> dict[Place, int]:
        """The first offset of each place, given the topic of each source."""
        found: dict[Place, int] = {}
        if self.records is not None:
            _note(found, self.records)
        for number, rows in self.rows.items():
            places = {"partition": pc.shift_right(rows["_id"], OFFSET_BITS), "_id": rows["_id"]}
            least = pa.table(places).group_by("partition").aggregate([("_id", "min")])
            for partition, first in zip(*(least[name].to_pylist() for name in ("partition", "_id_min")), strict=True):
                place, offset = (topics[number], partition), first & ((1 << OFFSET_BITS) - 1)
                found[place] = min(found.get(place, offset), offset)
        return found


def _note(found: dict[Place, int], records: pa.Table) -> None:
    least = records.group_by(["topic", "partition"]).aggregate([("offset", "min")])
    for row in least.to_pylist():
        found[row["topic"], row["partition"]] = row["offset_min"]
