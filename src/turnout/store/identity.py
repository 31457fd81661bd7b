"""What makes a row of a table the same row while its cells change: the SQL of the hidden column `_row`.

A record's row is known by its place in Kafka; the row of a key (`rows: latest`) by the key. A row of a view is that of
its left row, and where all pairs are shown, of the pair. The column is computed when it is read and takes no room.
"""

from __future__ import annotations

from turnout.joins import quoted
from turnout.layout import SourceTable, ViewTable

ROW = "_row"
BAD_RECORD = "md5(concat_ws('|', topic, _id, field, reason))"
QUALITY = "view"
WITHOUT_ORDER = frozenset({"bad_records"})
"""Tables in which rows can share a place in the order: one record can have several faults."""


def of_source(source: SourceTable) -> str:
    return _key(source) if source.latest else "CAST(_id AS VARCHAR)"


def of_view(view: ViewTable) -> str:
    left = of_source(view.left)
    if view.pairs:
        # Of a key there is one right row at most where only the newest is kept.
        right = "''" if view.right.latest else "coalesce(CAST(_right_id AS VARCHAR), '')"
        return f"coalesce({left}, '') || ':' || {right}"
    # A right row without a left one is the newest of its key, so the key is enough.
    return f"CASE WHEN _id IS NULL THEN ':' || {_key(view.left)} ELSE {left} END"


def _key(source: SourceTable) -> str:
    """A short text for a key of any length; the null key has a name of its own."""
    return f"coalesce(md5(CAST({quoted(source.key)} AS VARCHAR)), 'null')"
