"""A subscription to every change of a table, with a mirror of the table and a queue of changes not yet consumed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from turnout_client.events import Changes, Columns, Json, Row, Snapshot, Texts, Values, named
from turnout_client.frames import Frames
from turnout_client.live import Live
from turnout_client.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow

# The queue of a slow consumer: more events or more rows than this are merged into one event.
MAX_EVENTS, MAX_ROWS = 1_000, 100_000


@dataclass(slots=True)
class Delta:
    """Changes that lead a consumer of all earlier changes to a version."""

    version: int
    inserted: dict[str, Values] = field(default_factory=dict)
    updated: dict[str, Values] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, message: Json) -> Delta:
        return cls(message["version"], _by_id(message["insert"]), _by_id(message["update"]), set(message["delete"]))

    def __len__(self) -> int:
        return len(self.inserted) + len(self.updated) + len(self.deleted)

    def absorb(self, later: Delta) -> None:
        """Add later changes to this delta; a row that was inserted and deleted in between no longer appears."""
        for identity in later.deleted:
            if self.inserted.pop(identity, None) is None:
                self.updated.pop(identity, None)
                self.deleted.add(identity)
        for identity, row in later.inserted.items():
            self._put(identity, row, self.inserted)
        for identity, row in later.updated.items():
            self._put(identity, row, self.updated)
        self.version = later.version

    def _put(self, identity: str, row: Values, into: dict[str, Values]) -> None:
        if identity in self.inserted:
            into = self.inserted
        elif identity in self.deleted or identity in self.updated:
            # For a consumer of the merged delta the row never disappeared.
            self.deleted.discard(identity)
            into = self.updated
        into[identity] = row


class Mirror(Frames):
    """A live copy of a table. It can be read from any thread; each read is consistent."""

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
        """All rows by their ids, as a copy."""
        return self.snapshot().rows

    @property
    def generation(self) -> int:
        """The generation of the rows; 0 before the first data."""
        return self._now.generation

    @property
    def version(self) -> int:
        """The table version of the rows; 0 before the first data."""
        return self._now.version

    @property
    def columns(self) -> Columns:
        """The name and type of each column; empty before the first data."""
        return self._now.columns

    def snapshot(self) -> Snapshot:
        """Return a consistent copy of rows, generation and version; empty before the first data."""
        with self._lock:
            return replace(self._now, _values=self._now._values.copy())

    def to_arrow(self) -> pyarrow.Table:
        """Return the current rows as an Arrow table."""
        return self.snapshot().to_arrow()

    # -- called by the subscription

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


class ChangesSubscription(Subscription[Changes]):
    """A subscription to every change of a table, with a mirror of it; a slow consumer gets several changes as one."""

    _kind = "changes"

    def __init__(self, live: Live, table: str, columns: Texts = ()) -> None:
        super().__init__(live, table, {"columns": columns})
        self.mirror = Mirror(table)
        """The current table; it may be ahead of the consumed events."""
        self._max_events, self._max_rows = MAX_EVENTS, MAX_ROWS
        # The parts of a snapshot that have arrived so far.
        self._part_position: tuple[int, int] | None = None
        self._part_rows: dict[str, Values] = {}
        # True: the next event has all rows, so that changes need not be queued.
        self._show_all = True
        self._pending: deque[Delta] = deque()
        self._pending_rows = 0

    def _position(self) -> tuple[int, int]:
        return self.mirror.generation, self.mirror.version

    def _request(self) -> Json:
        with self._changed:
            self._part_rows = {}  # drop the parts of an earlier answer
            return super()._request()

    def _apply(self, message: Json) -> bool:
        if message["type"] == "snapshot":
            return self._part(message)
        if not self._had_data:
            return False
        if message["type"] == "changes":
            return self._change(message)
        return (message["generation"], message["version"]) == self._position()

    def _part(self, message: Json) -> bool:
        """Collect a part of a snapshot; the last part replaces all rows at once."""
        position = message["generation"], message["version"]
        if position != self._part_position:  # the server started another snapshot
            self._part_position, self._part_rows = position, {}
        self._part_rows.update(_by_id(message))
        if message["last"]:
            self.mirror._replace(Snapshot(self.table, *position, tuple(message["columns"]), self._part_rows))
            self._part_rows = {}
            self._reset()
        return True

    def _change(self, message: Json) -> bool:
        generation, version = self._position()
        if message["generation"] == generation and message["version"] <= version:
            return True  # already applied
        if (message["generation"], message["since"]) != (generation, version):
            return False
        change = Delta.of(message)
        self.mirror._apply(change)
        if not self._show_all:
            self._pending.append(change)
            self._pending_rows += len(change)
            if len(self._pending) > self._max_events or self._pending_rows > self._max_rows:
                self._merge()
        return True

    def _merge(self) -> None:
        """Merge all queued changes into one event; if it has more rows than the table and the limit, send all rows."""
        merged = self._pending.popleft()
        for later in self._pending:
            merged.absorb(later)
        self._pending = deque([merged])
        self._pending_rows = len(merged)
        if self._pending_rows > max(self._max_rows, len(self.mirror)):
            self._reset()

    def _reset(self) -> None:
        self._show_all = True
        self._pending.clear()
        self._pending_rows = 0

    def _collect(self) -> Callable[[], Changes] | None:
        if not self._had_data:
            return None
        if self._show_all:
            self._show_all = False
            now = self.mirror.snapshot()
            swapped, all_rows = self._swapped(now.generation), Delta(now.version, now._values)
            return lambda: _event(now, all_rows, snapshot=True, swapped=swapped)
        if not self._pending:
            return None
        change, at = self._pending.popleft(), self.mirror._now
        self._pending_rows -= len(change)
        return lambda: _event(at, change)


def _event(at: Snapshot, change: Delta, snapshot: bool = False, swapped: bool = False) -> Changes:
    return Changes(
        table=at.table,
        generation=at.generation,
        version=change.version,
        columns=at.columns,
        snapshot=snapshot,
        swapped=swapped,
        inserted=named(at.columns, change.inserted),
        updated=named(at.columns, change.updated),
        deleted=frozenset(change.deleted),
    )


def _by_id(rows: Json) -> dict[str, Values]:
    return dict(zip(rows["ids"], rows["rows"], strict=True))
