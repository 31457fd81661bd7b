"""Kept topics: which rows a new generation takes over from the published one, and the origin of each source's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb

from turnout.plan.offsets import Offsets
from turnout.plan.plan import Plan
from turnout.store.generation_tables import GenerationTables
from turnout.store.kept_sources import copy_sources, kept_rows


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """The origin of a source's rows: `kept` rows of the published generation, if any, and records to read."""

    kept: int | None
    read: int

    def to_json(self) -> dict[str, int]:
        return {"read": self.read} if self.kept is None else {"kept": self.kept, "read": self.read}


def origins_of(plan: Plan, kept: Mapping[str, int], start: Offsets, target: Offsets) -> dict[str, SourceOrigin]:
    """The origin of each source of a generation that reads from `start` to `target`, with the kept rows of some."""
    return {
        source: SourceOrigin(kept.get(source), start.topic(topic).behind(target.topic(topic)))
        for source, topic in plan.topics.items()
    }


def origins_json(origins: Mapping[str, SourceOrigin]) -> dict[str, dict[str, int]]:
    return {source: origin.to_json() for source, origin in origins.items()}


@dataclass(frozen=True, slots=True)
class KeptTopics:
    """The topics that a new generation keeps, with the tables and the first offsets of the published generation."""

    tables: GenerationTables | None = None
    start: Offsets = field(default_factory=lambda: Offsets({}))
    topics: frozenset[str] = frozenset()

    def offsets(self, cursor: duckdb.DuckDBPyConnection | None = None) -> Offsets:
        """How far the published generation has stored the kept topics."""
        if self.tables is None:
            return Offsets({})
        stored = Offsets.kept(self.tables.progress(cursor).offsets, self.start)
        return Offsets({place: offset for place, offset in stored.next.items() if place[0] in self.topics})

    def rows(self) -> dict[str, int]:
        """How many rows of each source are kept."""
        return kept_rows(self.tables, self.topics) if self.tables else {}

    def copy(self, cursor: duckdb.DuckDBPyConnection, new: GenerationTables) -> dict[str, int]:
        """Copy what is kept into the empty tables of a new generation; return how many rows each source shows."""
        return copy_sources(cursor, self.tables, new, self.topics) if self.tables else {}
