"""What makes a row of a table the same row while its cells change: the SQL of the hidden column `_row`.

A record's row is known by its place in Kafka; the row of a key (`rows: latest`) by the key. A row of a view is that of
its left row, and where several right rows of a key are shown, of the pair; so the rows of a view that has one row of a
key are known by the key, under every join. One of somebody's own SQL is the nth of its key. The column is computed when
it is read and takes no room.
"""

from __future__ import annotations

from collections.abc import Collection

from turnout.plan.chains import Chain
from turnout.plan.joins import quoted, right_id
from turnout.plan.tables import SourceTable, ViewTable

ROW = "_row"
BAD_RECORD = "md5(concat_ws('|', topic, _id, field, reason))"
QUALITY = "view"
WITHOUT_ORDER = frozenset({"bad_records"})
"""Tables in which rows can share a place in the order: one record can have several faults."""


def ties(hidden: Collection[str]) -> list[str]:
    """Those of a table's hidden columns that tell the order of rows that nothing else tells."""
    if "_nth" in hidden:
        return ["_hash", "_nth"]
    # `_right_id_10` comes after `_right_id_9`.
    rights = sorted((name for name in hidden if name.startswith("_right_id")), key=lambda name: (len(name), name))
    return [*(["_id"] if "_id" in hidden else []), *rights]


def of_source(source: SourceTable) -> str:
    return _key(source) if source.latest else "CAST(_id AS VARCHAR)"


def of_view(view: ViewTable) -> str:
    if view.own:
        return f"{_key(view.left)} || ':' || CAST(_nth AS VARCHAR)"
    if view.chain is not None:
        return _of_chain(view, view.chain)
    key = _key(view.left)
    left = key if view.left.latest else f"CASE WHEN _id IS NULL THEN ':' || {key} ELSE CAST(_id AS VARCHAR) END"
    # Other right sides have one row of a key at most, whatever the join is.
    many = [right_id(number) for number, right in enumerate(view.rights) if view.pairs and not right.latest]
    return " || ':' || ".join([left, *(f"coalesce(CAST({own} AS VARCHAR), '')" for own in many)])


def _of_chain(view: ViewTable, chain: Chain) -> str:
    """The left row, and of each step what tells its right row from others that the same row could have there."""
    parts = [f"CASE WHEN _id IS NULL THEN '' ELSE {of_source(view.left)} END"]
    before = ["_id"]
    for number, (step, right) in enumerate(zip(chain.steps, view.rights, strict=True)):
        own, names = right_id(number), chain.names[number]
        several = step.pairs and not (right.latest and step.right_on == right.key)
        if step.hides:
            parts.append("''")
        elif several and right.latest:
            parts.append(f"CASE WHEN {own} IS NULL THEN '' ELSE {_short(names[right.key])} END")
        elif several:
            parts.append(f"coalesce(CAST({own} AS VARCHAR), '')")
        else:
            # One right row at most; without a row to the left of it, what it is joined by tells it from others.
            alone = f"coalesce({', '.join(before)}, NULL) IS NULL AND {own} IS NOT NULL"
            parts.append(f"CASE WHEN {alone} THEN {_short(names.get(step.right_on, step.left_on))} ELSE '' END")
        before.append(own)
    return " || ':' || ".join(parts)


def _key(source: SourceTable) -> str:
    return _short(source.key)


def _short(column: str) -> str:
    """A short text for a key of any length; the null key has a name of its own."""
    return f"coalesce(md5(CAST({quoted(column)} AS VARCHAR)), 'null')"
