"""The feed: what each commit of the store changed, for listeners. `batches.py` collects it during a batch.

The one place where data crosses from the writers' threads to the server: listeners are called on the thread that
committed and must not block. Rows are collected only of tables that somebody wants; nothing is kept here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

MAX_DELTA_ROWS = 200_000
"""Listeners do not get the rows of a batch that changes more than these: reading the table again is cheaper."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that went and rows that came, identity included; a row that changed is in both.

    Those that went have at least the columns that were wanted; those that came have all.
    """

    removed: pa.Table
    added: pa.Table

    @property
    def size(self) -> int:
        return int(self.removed.num_rows + self.added.num_rows)

    def tells(self, columns: Collection[str]) -> bool:
        """Whether these columns are known of the rows that went, too."""
        return set(columns) <= set(self.removed.column_names)


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch of a generation: the version of each table it changed, and what changed, where that is known."""

    generation: int
    versions: Mapping[str, int]
    deltas: Mapping[str, Delta]


Listener = Callable[[Commit | None], None]
"""Gets a batch, or None when anything else was committed: a name, a shared table."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What followers need to know of rows that go: some columns, or all of them. Texts are costly to look up."""

    columns: frozenset[str] = frozenset()
    every: bool = False

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(self.columns | other.columns, self.every or other.every)


class Feed:
    """The listeners, and what they want to know."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._wanters: dict[object, tuple[tuple[str, Wanted], ...]] = {}
        self._wanted: Mapping[str, Wanted] = {}

    def listen(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known != listener)

    def want(self, tables: Iterable[tuple[str, Wanted]], wanter: object = None) -> None:
        """Collect the changed rows of these tables from now on, and for this wanter of no others."""
        with self._lock:
            self._wanters[wanter] = tuple(tables)
            wanted: dict[str, Wanted] = {}
            for name, one in itertools.chain.from_iterable(self._wanters.values()):
                wanted[name] = wanted.get(name, Wanted()) | one
            self._wanted = wanted

    @property
    def wanted(self) -> Mapping[str, Wanted]:
        """What is wanted now; it does not change under who holds it."""
        return self._wanted

    def tell(self, commit: Commit | None = None) -> None:
        for listener in self._listeners:
            listener(commit)
