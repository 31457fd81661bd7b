"""The reference computation for `why`: the records of each row of a key, and the reasons of unused records.

It uses all records and pairs of them, without SQL, batches or ids. Records are identified by topic, partition and
offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import oracle
from filled_store import Filling
from oracle import Kept, Sent, Source
from turnout.config import Settings
from turnout.decode.shape import RAW
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import OFFSET_BITS
from turnout.schemas.record_decoder import RecordDecoder
from turnout.store.database import Database
from turnout.store.query.row_records import WhyRecord, WhyRow

Place = tuple[str, int, int]
Places = tuple[Place | None, ...]

HIDING = (Join.SEMI, Join.ANTI)


@dataclass(frozen=True, slots=True)
class Met:
    """A join: the origins of the left column, the column of the right side, and the join rules."""

    lefts: tuple[tuple[int, str], ...]
    """The side and column of the left value, then those of right sides that may fill it."""
    right_on: str
    join: Join
    duplicates: Duplicates

    @property
    def left_on(self) -> str:
        return self.lefts[0][1]

    @property
    def fills(self) -> bool:
        """Whether unmatched right rows fill the left column, because both columns have the same name."""
        return self.join in (Join.RIGHT, Join.FULL) and self.left_on == self.right_on

    @property
    def pairs(self) -> bool:
        return self.join is Join.INNER or self.duplicates is Duplicates.ALL


@dataclass(frozen=True, slots=True)
class Reasons:
    """The rows of a key by the records of their sides, and the reasons of the unused records."""

    rows: Counter[Places]
    others: dict[Place, str]


def first_value(row: Sequence[Kept | None], columns: Sequence[tuple[int, str]]) -> Any:
    """Return the value of a column that several sides may fill."""
    values = (kept.row[column] for at, column in columns if (kept := row[at]) is not None)
    return next((value for value in values if value is not None), None)


def place(kept: Kept) -> Place:
    return kept.record.topic, kept.record.partition, kept.record.offset


def joined(lefts: list[Kept], rights: Sequence[list[Kept]], steps: Sequence[Met]) -> list[tuple[Kept | None, ...]]:
    """Return all rows of a view as records by side; a semi join also has the newest matching record."""
    rows: list[tuple[Kept | None, ...]] = [(left,) for left in lefts]
    for step, right in zip(steps, rights, strict=True):
        made: list[tuple[Kept | None, ...]] = []
        met: set[int] = set()
        groups = oracle.by_key((kept for kept in right if kept.row[step.right_on] is not None), step.right_on)
        if not step.pairs or step.join in HIDING:
            groups = {value: [oracle.newest(group)] for value, group in groups.items()}
        for row in rows:
            matched = groups.get(first_value(row, step.lefts), [])
            met.update(id(kept) for kept in matched)
            if step.join is Join.ANTI:
                made += [(*row, None)] if not matched else []
            elif matched:
                made += [(*row, kept) for kept in matched]
            elif step.join in (Join.LEFT, Join.NATURAL, Join.FULL):
                made.append((*row, None))
        if step.join in (Join.RIGHT, Join.FULL):
            width = len(rows[0]) if rows else steps.index(step) + 1
            alone = [kept for group in groups.values() for kept in group if id(kept) not in met]
            made += [(*(None,) * width, kept) for kept in alone]
        rows = made
    return rows


def reason_of(kept: Kept, same: Sequence[Kept], *, latest: bool, takes_newest: bool) -> str:
    """Return why a record is in no row; `same` are all records of its source with its key value, also tombstones."""
    if kept.removes:
        return "tombstone"
    if latest or takes_newest:
        partition = [one for one in same if one.record.partition == kept.record.partition]
        if max(one.record.offset for one in partition) > kept.record.offset:
            return "older"
        if oracle.newest(same) is not kept:
            return "other partition is newer"
    return "no match"


class Fed(Filling):
    """A store filled with records of topics, through the real decoder and real batches."""

    def __init__(self, database: Database, settings: Settings, join: Join = Join.LEFT) -> None:
        super().__init__(database, settings)
        self.generation(join)
        self.publish()

    def feed(self, records: Sequence[Sent]) -> None:
        assert self.tables is not None
        layout = self.tables.layout
        decoder = RecordDecoder(layout.sources)
        columns: list[list[Any]] = [
            [layout.topics.index(r.topic) for r in records],
            [r.partition << OFFSET_BITS | r.offset for r in records],
            [r.timestamp_ms for r in records],
            [r.key for r in records],
            [r.value for r in records],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)]
        self.take(decoder.decode(pa.table(arrays, schema=RAW)))


def told(records: Sequence[WhyRecord]) -> Iterator[Place]:
    return (record.place for record in records)


def rows_told(rows: Sequence[WhyRow], sources: Sequence[Source]) -> Counter[Places]:
    """Return the rows of an answer by the records of their sides."""
    found: Counter[Places] = Counter()
    for row in rows:
        if row.row is not None:
            by_source: Mapping[str, Place] = {record.source: record.place for record in row.records}
            assert len(by_source) == len(row.records)
            found[tuple(by_source.get(source.name) for source in sources)] += 1
    return found
