"""Keys that are left out of a view, because too many rows of both sides would be paired: `max_rows_per_key`.

Ten thousand rows of one key on each side would be a hundred million rows of the view. So the rows of keys are counted
before they are joined. Which keys are left out depends on the rows of the sources alone, never on how they came: those
of the keys that a batch touches are counted again, and a key comes back when it has fewer.

In a joined view such a key has no row. In a step of a chain it matches nothing, as null does, and none of its right
rows is shown: rows of other steps do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnout.plan.chains import Origin
from turnout.plan.joins import Join
from turnout.plan.sql_text import literal, quoted
from turnout.plan.tables import ChainView, RowBound, ViewTable
from turnout.store.batch_rows import Hashes, Mask, chosen, holds, shown_sql
from turnout.store.database import arrow_table, registered

Counts = npt.NDArray[np.float64]

KeysLeftOut = Mapping[str, Mapping[str, int]]
"""Keys as texts, with their hashes, by the name of their bound."""


def most_rows(join: Join, left: Counts, rights: Sequence[Counts]) -> Counts:
    """How many rows keys with so many rows on each side have after the join that gives most of them."""
    rows, most = left, np.zeros_like(left)
    for right in rights:
        pairs = np.maximum(rows, int(join.outer)) * np.maximum(right, int(join.keeps_all))
        there = (rows > 0) | (right > 0) if join.outer and join.keeps_all else pairs > 0
        rows = np.where(there, pairs, 0)
        most = np.maximum(most, rows)
    return most


def _may_exceed(bound: RowBound, sides: Sequence[pa.ChunkedArray]) -> bool:
    """Whether a key may have too many rows, by the hashes of rows of each side; cheap where it cannot."""
    if np.prod([max(1.0, len(side)) for side in sides]) <= bound.most:
        return False
    largest = [np.unique(side.to_numpy(), return_counts=True)[1].max(initial=1) for side in sides]
    return bool(np.prod(largest, dtype=np.float64) > bound.most)


@dataclass(slots=True)
class LeftOutState:
    """The keys that are left out of views after a batch, and which of them the batch brought or took away."""

    _cursor: duckdb.DuckDBPyConnection
    _schema: str
    _table: Callable[[str], str]
    keys: dict[str, Mapping[str, int]]
    came: dict[str, list[str]] = field(default_factory=dict)
    """The keys that are left out from now on, by the name of their bound."""
    back: dict[str, list[str]] = field(default_factory=dict)
    """The keys that are shown again."""

    def joined(self, view: ViewTable, rows: Sequence[pa.Table], masks: list[Mask], hashes: Hashes) -> list[Mask]:
        """Mark the rows of each side that are joined; count the keys with these hashes, if they may have too many."""
        for bound in view.bounds:
            sides = [chosen(some["_hash"], mask) for some, mask in zip(rows, masks, strict=True)]
            if _of_hashes(self.keys.get(bound.name, {}), hashes) or _may_exceed(bound, sides):
                self.count(view, bound, hashes)
            if (keys := self.values(view, bound)) is not None:
                masks = [mask & ~holds(some[view.key], keys) for some, mask in zip(rows, masks, strict=True)]
        return masks

    def count_all(self, view: ViewTable) -> None:
        """Find the keys with too many rows before a view is built."""
        for bound in view.bounds:
            self.count(view, bound)

    def count(self, view: ViewTable, bound: RowBound, hashes: Hashes | None = None) -> Hashes:
        """Count the rows of keys with these hashes, or of all keys; the hashes of keys that come or go."""
        known = self.keys.get(bound.name, {})
        found = self._too_many(view, bound, hashes)
        again = set(known) if hashes is None else _of_hashes(known, hashes)
        came = {key: own for key, own in found.items() if key not in known}
        back = {key: known[key] for key in again if key not in found}
        if not came and not back:
            return _hashes({})
        self.keys[bound.name] = {key: own for key, own in {**known, **found}.items() if key not in back}
        self.came |= {bound.name: list(came)} if came else {}
        self.back |= {bound.name: list(back)} if back else {}
        self._write(bound.name, list(back), came)
        return np.concatenate([_hashes(came), _hashes(back)])

    def _write(self, name: str, back: Sequence[str], came: Mapping[str, int]) -> None:
        table = f"{self._schema}.left_out"
        if back:
            with registered(self._cursor, _back=pa.table({"key": pa.array(back, pa.string())})):
                gone = "name = ? AND key IN (SELECT key FROM _back)"
                self._cursor.execute(f"DELETE FROM {table} WHERE {gone}", [name])
        if came:
            rows = pa.table({"key": pa.array(came, pa.string()), "_hash": _hashes(came)})
            with registered(self._cursor, _came=rows):
                self._cursor.execute(f"INSERT INTO {table} SELECT ?, key, _hash FROM _came", [name])
        count = len(self.keys[name])
        self._cursor.execute(f"UPDATE {self._schema}.join_quality SET leftOutKeys = ? WHERE view = ?", [count, name])

    def _too_many(self, view: ViewTable, bound: RowBound, hashes: Hashes | None) -> dict[str, int]:
        """The keys that have too many rows: first by hashes alone, which takes less time."""
        sides = [(0, origin) for origin in bound.lefts] + list(enumerate(bound.rights, 1))
        numbers = range(len(bound.rights) + 1)
        counted = ", ".join(f"count(*) FILTER (side = {number}) AS n{number}" for number in numbers)
        product = " * ".join(f"greatest(n{number}, 1)::DOUBLE" for number in numbers)

        def grouped(by: str, near: Hashes | None, *, keys: bool) -> str:
            if near is not None:
                self._cursor.register("_counted", {"h": near})
            rows = " UNION ALL ".join(
                self._rows(view, origin, side, near is not None, keys=keys) for side, origin in sides
            )
            more = ", any_value(_hash) AS _hash" if keys else ""
            return f"FROM (SELECT {by}{more}, {counted} FROM ({rows}) GROUP BY {by}) WHERE {product} > {bound.most}"

        near = self._cursor.execute(f"SELECT _hash {grouped('_hash', hashes, keys=False)}").fetchnumpy()["_hash"]
        if not len(near):
            return {}
        names = ", ".join(f"n{number}::DOUBLE AS n{number}" for number in numbers)
        keys = f"SELECT CAST(key AS VARCHAR) AS key, _hash, {names} {grouped('key', near, keys=True)}"
        found = arrow_table(self._cursor, keys)
        left, *rights = (found[f"n{number}"].to_numpy() for number in numbers)
        found = found.filter(pa.array(most_rows(bound.join, left, rights) > bound.most))
        return dict(zip(found["key"].to_pylist(), found["_hash"].to_pylist(), strict=True))

    def _rows(self, view: ViewTable, origin: Origin, side: int, near: bool, *, keys: bool) -> str:
        source, column = view.sources[origin[0]], origin[1]
        hashed = source.hash_name(column)
        conditions = [f"{quoted(column)} IS NOT NULL"] if keys else []
        conditions += [f"{hashed} IN (SELECT h FROM _counted)"] if near else []
        key = f", {quoted(column)} AS key" if keys else ""
        rows = f"FROM ({shown_sql(source, self._table(source.table))})"
        return f"SELECT {hashed} AS _hash{key}, {side} AS side {rows} WHERE {' AND '.join(conditions) or 'true'}"

    def values(self, view: ViewTable, bound: RowBound) -> pa.Array | None:
        """The keys that are left out, in their own type; None where there are none."""
        if not self.keys.get(bound.name):
            return None
        at, column = bound.rights[0]
        kind = view.sources[at].columns[column].duckdb
        found = f"SELECT CAST(key AS {kind}) AS key FROM {self._schema}.left_out WHERE name = ?"
        return arrow_table(self._cursor, found, [bound.name])["key"].combine_chunks()

    def of_step(self, view: ChainView, number: int) -> pa.Array | None:
        """The values that match nothing in a step of a chain; None where there are none."""
        bound = view.step_bound(number)
        return None if bound is None else self.values(view, bound)

    def condition(self, bound: RowBound | None, column: str) -> str:
        """The SQL condition of rows whose column has no key that is left out."""
        if bound is None or not self.keys.get(bound.name):
            return "true"
        keys = f"SELECT key FROM {self._schema}.left_out WHERE name = {literal(bound.name)}"
        return f"({quoted(column)} IS NULL OR CAST({quoted(column)} AS VARCHAR) NOT IN ({keys}))"


def without(rows: pa.Table, column: str, values: pa.Array | None) -> pa.Table:
    """The rows whose column has none of these values."""
    return rows if values is None else rows.filter(pa.array(~holds(rows[column], values)))


def _hashes(keys: Mapping[str, int]) -> Hashes:
    return np.fromiter(keys.values(), np.uint64, len(keys))


def _of_hashes(keys: Mapping[str, int], hashes: Hashes) -> set[str]:
    return {key for key, there in zip(keys, np.isin(_hashes(keys), hashes), strict=True) if there}
