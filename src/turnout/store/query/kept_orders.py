"""Orders that are read again: their first rows and their totals are kept, and what changed since is merged into them.

A filter or an order over millions of rows costs a scan each time; what a few batches changed costs milliseconds. An
order (a table with a `where` and a `sort`) is kept from the second read on, for all windows near its top, and until so
much has changed since its last read that a scan is cheaper. Threads share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.plan.tables import SHOWN_OF_GENERATION, SHOWN_OF_STORE
from turnout.plan.where import MAX_SMALL_FILTER, known_column, weight
from turnout.store.database import PUBLISHED, Readable
from turnout.store.feed import Commit, Delta, Feed, Wanted
from turnout.store.identity import ROW
from turnout.store.query.window_rows import (
    KEY,
    MAX_HELD_ROWS,
    SPARE_ROWS,
    DeltaQueries,
    Held,
    Order,
    TrackedWindow,
    hold,
    track_window,
    wanted_columns,
)
from turnout.store.query.windows import Column, Window, WindowResult, split_name, store_faults

MAX_ORDERS = 100
MAX_BYTES = 64 * 1024 * 1024
"""The most bytes of the rows of all orders; one order may have a sixteenth of them."""

MAX_CHANGES = 32
MAX_CHANGED_ROWS = 50_000
"""What may wait for an order to be read again: to merge more than that takes as long as a scan."""

_MOST_ASKED = 1_000
# Their rows come without changes, and are few.
_NEVER = frozenset({*SHOWN_OF_STORE, *SHOWN_OF_GENERATION})


@dataclass(frozen=True, slots=True)
class _State:
    """The first rows of an order at one version of its table, `most` at most."""

    position: Position
    columns: tuple[Column, ...]
    order: Order
    held: Held
    most: int

    def after(self, now: Position, changes: dict[Position, Delta | None], queries: DeltaQueries) -> _State | None:
        """The state at another version of the generation; None where a part of what led to it is not known."""
        held = self.held
        for version in range(self.position.version + 1, now.version + 1):
            delta = changes.get(Position(now.generation, version))
            if delta is None or not delta.tells(self.order.columns):
                return None
            held = queries.sift(delta, [self.order]).advance(held, self.order, self.most)
        # A reader whose snapshot is older has to read.
        return replace(self, position=now, held=held) if now.reaches(self.position) else None

    def cut(self, window: Window) -> TrackedWindow | None:
        """A window of this order; None where it ends below the rows that are held."""
        assert window.limit is not None
        held, types = self.held, {column.name: column for column in self.columns}
        if held.bound is not None and held.rows.num_rows < window.offset + window.limit:
            return None
        for name in window.columns or ():
            known_column(name, types, "columns", "bad_columns")
        names = list(types if window.columns is None else window.columns)
        rows = pa.Table.from_batches([held.rows.slice(window.offset, window.limit)]).select([*names, KEY, ROW])
        chosen = tuple(types[name] for name in names)
        result = WindowResult(window.table, self.position, held.total, chosen, rows.select(names))
        return TrackedWindow(result, rows, self.order)


@dataclass(slots=True)
class _KeptOrder:
    """An order, as it was when it was last read, and what has changed since in any generation."""

    table: str
    wanted: Wanted
    state: _State | None = None
    changes: dict[Position, Delta | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return int(self.state.held.rows.nbytes) if self.state else 0

    @property
    def costly(self) -> bool:
        changed = sum(delta.size for delta in self.changes.values() if delta is not None)
        return len(self.changes) > MAX_CHANGES or changed > MAX_CHANGED_ROWS


class KeptOrders:
    """The orders, the one that was read last at the end."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._queries = DeltaQueries()
        # Commits are heard on the threads of writers; nothing is calculated under the lock.
        self._lock = threading.Lock()
        self._orders: OrderedDict[str, _KeptOrder] = OrderedDict()
        self._asked: OrderedDict[int, None] = OrderedDict()
        feed.listen(self._heard)

    def find(self, store: Readable, window: Window) -> TrackedWindow | None:
        """The window as it is now, where its order is kept; None where it has to be read as it is."""
        table = split_name(window.table)[0]
        if window.limit is None or table in _NEVER or weight(window.where) > MAX_SMALL_FILTER:
            return None
        end = window.offset + window.limit
        if end > MAX_HELD_ROWS:
            return None
        # By their texts: values that people give may be equal and mean different things, such as 1 and 1.0 as names.
        name = repr((window.table, window.where, window.sort))
        kept = self._kept(name, table, window)
        if kept is None:
            return None
        state = self._forward(store, window.table, kept)
        found = state.cut(window) if state else None
        if found is None:
            # Twice as many as are asked for: who goes on to the next page finds it.
            most = min(2 * end, MAX_HELD_ROWS) + SPARE_ROWS
            state = _read(store, replace(window, columns=None, offset=0, limit=most))
            found = state.cut(window) if state else None
        self._settle(name, kept, state)
        return found

    def _kept(self, name: str, table: str, window: Window) -> _KeptOrder | None:
        """The order, made where it is asked for again: most are asked for once, and cost no batch anything."""
        with self._lock:
            kept = self._orders.get(name)
            if kept is None:
                asked = hash(name)
                if asked not in self._asked:
                    self._asked[asked] = None
                    if len(self._asked) > _MOST_ASKED:
                        self._asked.popitem(last=False)
                    return None
                # Before it is read: what is committed meanwhile has to be known.
                wanted = wanted_columns((key.column for key in window.sort), window.where)
                kept = self._orders[name] = _KeptOrder(table, wanted)
                self._want()
            self._orders.move_to_end(name)
            return kept

    def _forward(self, store: Readable, name: str, kept: _KeptOrder) -> _State | None:
        """The order as it is in the store now; None where that cannot be told from what is known."""
        state, (table, generation) = kept.state, split_name(name)
        if state is None:
            return None
        known = state.position.generation
        text = f"SELECT ({PUBLISHED}), (SELECT coalesce(max(version), 0) FROM g{known}.versions WHERE name = ?)"
        try:
            with store_faults("read"), store.read() as cursor:
                published, version = cursor.execute(text, [table]).fetchall()[0]
        except duckdb.CatalogException:
            return None  # its generation was retired
        if known != (published if generation is None else generation):
            return None
        with self._lock:
            # After the version: what led to it has been heard by now, or is in a moment.
            changes = dict(kept.changes)
        return state.after(Position(known, version), changes, self._queries)

    def _settle(self, name: str, kept: _KeptOrder, state: _State | None) -> None:
        """Keep what was found for the next, as far as there is room."""
        with self._lock:
            if self._orders.get(name) is not kept:
                return
            if state is None:
                del self._orders[name]
            elif not (kept.state and kept.state.position.is_after(state.position)):
                kept.state = state
                kept.changes = {at: delta for at, delta in kept.changes.items() if at.is_after(state.position)}
            if kept.size > MAX_BYTES // 16:
                del self._orders[name]
            while len(self._orders) > MAX_ORDERS or sum(one.size for one in self._orders.values()) > MAX_BYTES:
                self._orders.popitem(last=False)
            self._want()

    def _want(self) -> None:
        self._feed.want([(kept.table, kept.wanted) for kept in self._orders.values()], self)

    def _heard(self, commit: Commit | None) -> None:
        """On the thread that committed."""
        if commit is None:
            return
        with self._lock:
            known = len(self._orders)
            for name, kept in list(self._orders.items()):
                if kept.table in commit.versions:
                    position = Position(commit.generation, commit.versions[kept.table])
                    kept.changes[position] = commit.deltas.get(kept.table)
                    if kept.costly:
                        del self._orders[name]
            if len(self._orders) < known:
                self._want()


def _read(store: Readable, window: Window) -> _State | None:
    """The first rows of an order; None where reading them fails, as the caller's own read then does."""
    try:
        tracked = track_window(store, window)
    except TurnoutError:
        return None
    result, most = tracked.result, window.limit or 0
    held = hold(tracked.rows, most, result.total)
    return _State(result.position, result.columns, tracked.order, held, most)
