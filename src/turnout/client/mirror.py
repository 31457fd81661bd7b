"""The two kinds of live data, without threads and sockets: a window, and a mirror of a whole table with its changes.

A feed takes in the server's messages, says when it cannot go on from where it is, and hands out events at the
consumer's pace: windows conflate to the newest, changes merge when they pile up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from turnout.client.events import Changes, Columns, Json, Row, Snapshot, Window, WindowOptions, named

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow

Values = Sequence[Any]
E_co = TypeVar("E_co", covariant=True)


class Feed(Protocol[E_co]):
    """One subscription's data. Its owner sees to it that only one thread at a time is inside."""

    table: str

    def request(self) -> Json:
        """What to ask the server, without an id; with `resume` where that saves sending all again."""

    def doubt(self) -> None:
        """What is known stays on show, but nothing can go on from it: the next request asks for all."""

    def receive(self, message: Json) -> bool:
        """Take in a message; False: it does not fit what is known, ask again."""

    def collect(self) -> Callable[[], E_co] | None:
        """What is new since the last time, or None; the event itself is made by the call, outside of any lock."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many changes wait one by one for a slow consumer; beyond that they become one."""

    events: int = 1_000
    rows: int = 100_000


@dataclass(frozen=True, slots=True)
class Position:
    generation: int
    version: int

    @classmethod
    def of(cls, message: Json) -> Position:
        return cls(message["generation"], message["version"])

    def as_json(self) -> Json:
        return {"generation": self.generation, "version": self.version}


class WindowFeed:
    """The newest state of a window."""

    def __init__(self, table: str, options: WindowOptions) -> None:
        self.table = table
        self._options = options
        self._newest: Json | None = None
        self._collected = False
        self._resumable = False
        self._shown_generation: int | None = None

    def move(self, options: WindowOptions) -> None:
        """Look at other rows: those on show stay until the new ones come."""
        self._options = self._options | options
        self.doubt()

    def doubt(self) -> None:
        self._resumable = False

    @property
    def options(self) -> WindowOptions:
        return self._options

    def request(self) -> Json:
        asked: Json = {"type": "window", "table": self.table, **self._options}
        if self._resumable and self._newest is not None:
            asked["resume"] = Position.of(self._newest).as_json()
        return asked

    def receive(self, message: Json) -> bool:
        if message["type"] == "rows":
            self._newest, self._collected, self._resumable = message, False, True
            return True
        # `current` without anything to be current about would show nothing for ever.
        return message["type"] == "current" and self._newest is not None

    @property
    def newest(self) -> Window | None:
        return None if self._newest is None else _window(self._newest, swapped=False)

    def collect(self) -> Callable[[], Window] | None:
        message = self._newest
        if message is None or self._collected:
            return None
        swapped = self._shown_generation not in (None, message["generation"])
        self._collected, self._shown_generation = True, message["generation"]
        return lambda: _window(message, swapped)


def _window(message: Json, swapped: bool) -> Window:
    names = [column["name"] for column in message["columns"]]
    return Window(
        table=message["table"],
        generation=message["generation"],
        version=message["version"],
        total=message["total"],
        columns=tuple(message["columns"]),
        rows=tuple(dict(zip(names, row, strict=True)) for row in message["rows"]),
        ids=tuple(message["ids"]),
        offset=message["offset"],
        swapped=swapped,
    )


class Mirror:
    """A copy of a table that follows it. Safe to read from any thread; every answer is of one moment."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._position: Position | None = None
        self._columns: Columns = ()
        self._rows: dict[str, Values] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, identity: object) -> bool:
        return identity in self._rows

    def __repr__(self) -> str:
        at = self._position or Position(0, 0)
        return f"<Mirror of {self.table}: {len(self):,} rows, generation {at.generation}, version {at.version}>"

    @property
    def rows(self) -> dict[str, Row]:
        """Every row by its id, as a copy."""
        return self.snapshot().rows

    @property
    def generation(self) -> int:
        """0 before the first data."""
        position = self._position
        return position.generation if position else 0

    @property
    def version(self) -> int:
        position = self._position
        return position.version if position else 0

    @property
    def columns(self) -> Columns:
        return self._columns

    def snapshot(self) -> Snapshot:
        """All of it at one moment: rows, generation and version belong together. Empty before the first data."""
        with self._lock:
            position = self._position or Position(0, 0)
            return Snapshot(self.table, position.generation, position.version, self._columns, self._rows.copy())

    def to_arrow(self) -> pyarrow.Table:
        """The table as it is now."""
        return self.snapshot().to_arrow()

    def to_pandas(self) -> pandas.DataFrame:
        return self.snapshot().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        return self.snapshot().to_polars()

    # -- for its feed

    def _replace(self, position: Position, columns: Columns, rows: dict[str, Values]) -> None:
        with self._lock:
            self._position, self._columns, self._rows = position, columns, rows

    def _apply(self, position: Position, change: Delta) -> None:
        with self._lock:
            for identity in change.deleted:
                self._rows.pop(identity, None)
            self._rows.update(change.inserted)
            self._rows.update(change.updated)
            self._position = position


@dataclass(slots=True)
class Delta:
    """Changes up to a version, as a consumer who saw all before would make them."""

    version: int
    inserted: dict[str, Values] = field(default_factory=dict)
    updated: dict[str, Values] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, message: Json) -> Delta:
        return cls(
            message["version"],
            _by_id(message["insert"]),
            _by_id(message["update"]),
            set(message["delete"]),
        )

    def __len__(self) -> int:
        return len(self.inserted) + len(self.updated) + len(self.deleted)

    def absorb(self, later: Delta) -> None:
        """Become the sum of both: what came and went between them shows no more."""
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
            # Whoever sees the sum had the row all the time.
            self.deleted.discard(identity)
            into = self.updated
        into[identity] = row


class ChangesFeed:
    """A mirror, and what a consumer has not seen of it yet."""

    def __init__(self, table: str, options: Mapping[str, Any] | None = None, bounds: Bounds | None = None) -> None:
        self.table = table
        self.mirror = Mirror(table)
        self._options = dict(options or {})
        self._bounds = bounds or Bounds()
        self._parts: Json | None = None
        self._part_rows: dict[str, Values] = {}
        self._doubted = False
        # A consumer who must be shown everything anyway needs no list of changes.
        self._show_all = True
        self._pending: deque[Delta] = deque()
        self._pending_rows = 0
        self._shown_generation: int | None = None

    def request(self) -> Json:
        self._forget_parts()
        asked: Json = {"type": "changes", "table": self.table, **self._options}
        if self.mirror._position is not None and not self._doubted:
            asked["resume"] = self.mirror._position.as_json()
        return asked

    def doubt(self) -> None:
        self._doubted = True

    def receive(self, message: Json) -> bool:
        kind = message["type"]
        if kind == "snapshot":
            self._part(message)
            return True
        fits = (self._change if kind == "changes" else self._current)(message)
        self._doubted = not fits
        return fits

    def _current(self, message: Json) -> bool:
        return Position.of(message) == self.mirror._position

    def _part(self, message: Json) -> None:
        """Collect the parts of a snapshot; all of it takes the place of what was there at once, by its last."""
        begun = self._parts
        if begun is not None and Position.of(begun) != Position.of(message):
            self._forget_parts()  # the server began anew
        self._parts = message
        self._part_rows.update(zip(message["ids"], message["rows"], strict=True))
        if message["last"]:
            self.mirror._replace(Position.of(message), tuple(message["columns"]), self._part_rows)
            self._forget_parts()
            self._doubted = False
            self._reset()

    def _forget_parts(self) -> None:
        self._parts, self._part_rows = None, {}

    def _change(self, message: Json) -> bool:
        position, now = self.mirror._position, Position.of(message)
        if position is None:
            return False
        if now.generation == position.generation and now.version <= position.version:
            return True  # seen already
        if (now.generation, message["since"]) != (position.generation, position.version):
            return False
        change = Delta.of(message)
        self.mirror._apply(now, change)
        if not self._show_all:
            self._queue(change)
        return True

    def _queue(self, change: Delta) -> None:
        self._pending.append(change)
        self._pending_rows += len(change)
        if len(self._pending) > self._bounds.events or self._pending_rows > self._bounds.rows:
            self._merge()

    def _merge(self) -> None:
        """One event in place of many; where that has more rows than the table, all rows are the shorter story."""
        merged = self._pending.popleft()
        for later in self._pending:
            merged.absorb(later)
        self._pending = deque([merged])
        self._pending_rows = len(merged)
        if self._pending_rows > max(self._bounds.rows, len(self.mirror)):
            self._reset()

    def _reset(self) -> None:
        self._show_all = True
        self._pending.clear()
        self._pending_rows = 0

    def collect(self) -> Callable[[], Changes] | None:
        if self.mirror._position is None:
            return None
        if self._show_all:
            self._show_all = False
            return self._everything()
        if not self._pending:
            return None
        change = self._pending.popleft()
        self._pending_rows -= len(change)
        columns, generation = self.mirror.columns, self.mirror._position.generation
        return lambda: Changes(
            table=self.table,
            generation=generation,
            version=change.version,
            columns=columns,
            snapshot=False,
            swapped=False,
            inserted=named(columns, change.inserted),
            updated=named(columns, change.updated),
            deleted=frozenset(change.deleted),
        )

    def _everything(self) -> Callable[[], Changes]:
        now = self.mirror.snapshot()
        swapped = self._shown_generation not in (None, now.generation)
        self._shown_generation = now.generation
        return lambda: Changes(
            table=self.table,
            generation=now.generation,
            version=now.version,
            columns=now.columns,
            snapshot=True,
            swapped=swapped,
            inserted=now.rows,
            updated={},
            deleted=frozenset(),
        )


def _by_id(rows: Json) -> dict[str, Values]:
    return dict(zip(rows["ids"], rows["rows"], strict=True))
