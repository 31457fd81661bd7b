"""A copy of a whole table that follows it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from turnout.client.events import Columns, Row, Snapshot
from turnout.client.frames import Frames

if TYPE_CHECKING:
    import pyarrow

    from turnout.client.changes import Delta


class Mirror(Frames):
    """A copy of a table that follows it. Safe to read from any thread; every answer is of one moment."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._now = Snapshot(table, 0, 0, (), {})

    def __len__(self) -> int:
        return len(self._now)

    def __contains__(self, identity: object) -> bool:
        return identity in self._now._values

    def __repr__(self) -> str:
        now = self._now
        return f"<Mirror of {self.table}: {len(now):,} rows, generation {now.generation}, version {now.version}>"

    @property
    def rows(self) -> dict[str, Row]:
        """Every row by its id, as a copy."""
        return self.snapshot().rows

    @property
    def generation(self) -> int:
        """0 before the first data."""
        return self._now.generation

    @property
    def version(self) -> int:
        return self._now.version

    @property
    def columns(self) -> Columns:
        return self._now.columns

    def snapshot(self) -> Snapshot:
        """All of it at one moment: rows, generation and version belong together. Empty before the first data."""
        with self._lock:
            return replace(self._now, _values=self._now._values.copy())

    def to_arrow(self) -> pyarrow.Table:
        """The table as it is now."""
        return self.snapshot().to_arrow()

    # -- for its subscription

    def _replace(self, now: Snapshot) -> None:
        with self._lock:
            self._now = now

    def _apply(self, change: Delta) -> None:
        with self._lock:
            for identity in change.deleted:
                self._now._values.pop(identity, None)
            self._now._values.update(change.inserted)
            self._now._values.update(change.updated)
            self._now = replace(self._now, version=change.version)
