"""A chain over many rows: each of its steps by itself, as a join of two sides in parts that share no value, by files.

What a step gave is the left side of the next: ids in a table of the store, which may go to disk. So no more is in
memory than for any other view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import duckdb

from turnout.plan.joins import KEY, right_id
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, RowBound, SourceTable, joined_view
from turnout.store.batch_rows import hash_sql
from turnout.store.database import registered, scalar
from turnout.store.views.parts import PartRunner, export_joined


def join_steps(
    cursor: duckdb.DuckDBPyConnection,
    view: ChainView,
    rows: Mapping[str, str],
    needed: Callable[[int], str] | None,
    run: PartRunner,
    joined: Callable[[RowBound | None, str], str],
) -> None:
    """Put the ids of the view's rows into the table `_chain`; `rows` is a relation with hashes for each source.

    `needed` gives the condition of right rows that a step needs, where those are not all, and `joined` that of rows
    whose value is not left out.
    """
    chain = view.chain
    scalar(cursor, f"CREATE OR REPLACE TEMP TABLE _chain AS SELECT _id FROM {rows[view.left.source]}")
    for number, (step, right) in enumerate(zip(chain.steps, view.rights, strict=True)):
        kind = right.columns[step.right_on]
        scalar(cursor, f"CREATE OR REPLACE TEMP TABLE _chain_left AS {_left_sql(view, number, rows)}")
        hashed = right.hash_name(step.right_on)
        met = f"SELECT {quoted(step.right_on)} AS {quoted(KEY)}, _id, _ts, {hashed} AS _hash FROM {rows[right.source]}"
        met += f" WHERE {joined(view.step_bound(number), step.right_on)}"
        met = met if needed is None else f"FROM ({met}) WHERE {needed(number)}"
        sides = [SourceTable(name, "", "", KEY, {KEY: kind}, latest=False, max_rows=None) for name in ("left", "right")]
        join = joined_view("step", sides, step.join, step.duplicates)
        size = scalar(cursor, f"SELECT (SELECT count(*) FROM _chain_left) + (SELECT count(*) FROM ({met}))")
        below = run.folder / f"step_{number}"
        below.mkdir()
        both = {"left": "_chain_left", "right": f"({met})"}
        sql, files = export_joined(cursor, join, both, below, run.parts(size))
        columns = "_id BIGINT" if step.hides else "_id BIGINT, _right_id BIGINT"
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE _chain_found ({columns})")
        for part in run.over(sql, files):
            with registered(cursor, _step_ids=part):
                scalar(cursor, "INSERT INTO _chain_found BY NAME FROM _step_ids")
        own = "" if step.hides else f", f._right_id AS {right_id(number)}"
        scalar(
            cursor,
            f"CREATE OR REPLACE TEMP TABLE _chain_next AS "
            f"SELECT x.*{own} FROM _chain_found AS f LEFT JOIN _chain AS x ON x.rowid = f._id",
        )
        cursor.execute("DROP TABLE _chain")
        cursor.execute("ALTER TABLE _chain_next RENAME TO _chain")
    cursor.execute("DROP TABLE IF EXISTS _chain_left")
    cursor.execute("DROP TABLE IF EXISTS _chain_found")


def _left_sql(view: ChainView, number: int, rows: Mapping[str, str]) -> str:
    """What each row of `_chain` is joined by in a step, under its place in that table."""
    chain, joined, values = view.chain, "_chain AS x", []
    for at, column in chain.origins[number]:
        name = "_id" if at == 0 else right_id(at - 1)
        joined += f" LEFT JOIN {rows[view.sources[at].source]} AS s{at} ON s{at}._id = x.{name}"
        values.append(f"s{at}.{quoted(column)}")
    kind = view.rights[number].columns[chain.steps[number].right_on].duckdb
    value = f"coalesce({', '.join(values)}, NULL)" if values else f"CAST(NULL AS {kind})"
    # Rows without a value match nothing, and are in any part.
    hashed = f"CASE WHEN {quoted(KEY)} IS NULL THEN hash(_id) ELSE {hash_sql(quoted(KEY))} END"
    found = f"SELECT {value} AS {quoted(KEY)}, x.rowid AS _id, CAST(0 AS BIGINT) AS _ts FROM {joined}"
    return f"SELECT *, {hashed} AS _hash FROM ({found})"
