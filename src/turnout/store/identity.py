"""What makes a row of a table the same row while its cells change: the SQL of the hidden column `_row`.

A record's row is known by its place in Kafka; the row of a key (`rows: latest`) by the key. The kinds of views in
`views` say it for theirs. The column is computed when it is read and takes no room.
"""

from __future__ import annotations

from collections.abc import Collection

from turnout.plan.sql_text import quoted
from turnout.plan.tables import SourceTable
from turnout.plan.where import ROW as ROW

BAD_RECORD = "md5(concat_ws('|', topic, _id, field, reason))"
QUALITY = "view"
WITHOUT_ORDER = frozenset({"bad_records"})
"""Tables in which rows can share a place in the order: one record can have several faults."""


def ties(hidden: Collection[str]) -> list[str]:
    """The hidden columns that break ties in a sort."""
    if "_nth" in hidden:
        return ["_hash", "_nth"]
    # `_right_id_10` comes after `_right_id_9`.
    rights = sorted((name for name in hidden if name.startswith("_right_id")), key=lambda name: (len(name), name))
    return [*(["_id"] if "_id" in hidden else []), *rights]


def of_source(source: SourceTable) -> str:
    """The SQL of `_row` in the table of a source."""
    return key_text(source.key) if source.latest else "CAST(_id AS VARCHAR)"


def key_text(column: str) -> str:
    """A short text for a key of any length; the null key has a name of its own."""
    return f"coalesce(md5(CAST({quoted(column)} AS VARCHAR)), 'null')"
