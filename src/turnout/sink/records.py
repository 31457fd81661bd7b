"""The records that bring a sink's topic to what is shown now, made in SQL from one moment of the store.

While the sink keeps up they are the changed rows of one batch. Otherwise, and after a swap, they are the difference
between what the topic holds and the whole table. Either way a row that is in the topic as it is shown is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb

from turnout.kafka.clients import Header
from turnout.plan.position import Position
from turnout.plan.sql_text import quoted
from turnout.sink.topic_state import RecordSet
from turnout.store.database import PUBLISHED, scalar, stored_offsets_sql
from turnout.store.identity import ROW
from turnout.store.outgoing import BOOK, relation
from turnout.store.row_json import record_key_sql, record_value_sql
from turnout_client.column_types import ColumnType

_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() AND schema_name = ?
AND table_name = ? AND column_name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY column_index
"""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the published generation at one moment."""

    position: Position
    table: str
    key: str
    columns: Mapping[str, ColumnType]
    offsets: str
    """Where the sources are read up to, as JSON."""
    since: int | None
    """Changes after this version are all kept, or those of none."""

    @property
    def schema(self) -> str:
        return f"g{self.position.generation}"


Encode = Callable[[str | None, int | None], tuple[bytes | str | None, list[Header]]]
"""From a row as JSON and its fingerprint: the value of its record, and its headers; None is a row that is gone."""

Encoder = Callable[[PublishedTable], Encode]
"""Makes the values of a sink's records, in the form of the sink. `avro_values.py` has another."""


def json_encoder(table: PublishedTable) -> Encode:
    """The JSON of the row as it is, which tells the row's fingerprint."""
    return lambda row, _: (row, [])


def published_table(cursor: duckdb.DuckDBPyConnection, table: str) -> PublishedTable | None:
    """The table in this transaction; None where the published generation has none of that name."""
    generation = scalar(cursor, PUBLISHED)
    schema = f"g{generation}"
    found = cursor.execute(_COLUMNS, [schema, table]).fetchall() if generation else []
    if not found:
        return None
    columns = {name: ColumnType.parse(ColumnType.from_duckdb(kind)) for name, kind in found}
    book = f"SELECT key, since, upto FROM {schema}.{BOOK} WHERE name = ?"
    [(key, since, upto)] = cursor.execute(book, [table]).fetchall()
    version = scalar(cursor, f"SELECT version FROM {schema}.versions WHERE name = ?", [table])
    [(offsets,)] = cursor.execute(stored_offsets_sql(generation)).fetchall()
    position = Position(generation, version)
    return PublishedTable(position, table, key, columns, offsets, since if upto == version else None)


def changed_table(cursor: duckdb.DuckDBPyConnection, table: str, known: Position) -> PublishedTable | None:
    """The table in this transaction; None where it is at `known`, which is quick: each commit of the store asks."""
    if known.generation and scalar(cursor, PUBLISHED) == known.generation:
        version = f"SELECT version FROM g{known.generation}.versions WHERE name = ?"
        if scalar(cursor, version, [table]) == known.version:
            return None
    now = published_table(cursor, table)
    return None if now is None or now.position == known else now


def kept_changes(now: PublishedTable, written: Position) -> str | None:
    """The SQL of what a batch changed in each row since `written`; None where not all of that is kept."""
    if written.generation != now.position.generation or now.since is None or now.since > written.version:
        return None
    return f"{relation(now.schema, now.table)} WHERE _version > {written.version}"


def lag(cursor: duckdb.DuckDBPyConnection, table: str, written: Position) -> tuple[int, int]:
    """The versions of a table that wait, and the rows, about; where a difference has to be made, all of its rows."""
    now = published_table(cursor, table)
    if now is None or now.position == written:
        return 0, 0
    same = now.position.generation == written.generation
    versions = max(1, now.position.version - (written.version if same else 0))
    rows = kept_changes(now, written) or f"main.{quoted(table)}"
    return versions, scalar(cursor, f"SELECT count(*) FROM {rows}")


def make_records(
    cursor: duckdb.DuckDBPyConnection, now: PublishedTable, written: Position, state: str, form: str
) -> RecordSet:
    """The records that bring the topic from `written` to the table; `state` is the relation of what the topic holds."""
    records = RecordSet(cursor)
    key = record_key_sql(now.key, now.columns[now.key])
    value = record_value_sql(now.columns)
    # A row that is written in another form is another record.
    printed = "md5_number(value)" if form == "json" else f"md5_number('{form}:' || value)"
    if rows := kept_changes(now, written):
        newest = f"QUALIFY row_number() OVER (PARTITION BY {ROW} ORDER BY _version DESC) = 1"
        # A row that went and came again is written in any case: its tombstone may be in the topic already.
        fresh = (
            f"SELECT {key} AS record, CASE WHEN NOT _gone THEN {value} END AS value, "
            f"bool_or(_gone) OVER (PARTITION BY {ROW}) AND NOT _gone AS again FROM {rows} {newest}"
        )
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE _fresh AS "
            f"SELECT *, md5_number_lower(record) AS id, {printed} AS fingerprint FROM ({fresh})"
        )
        known = f"SELECT record, fingerprint AS known FROM {state} WHERE id IN (SELECT id FROM _fresh)"
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {records.relation} AS SELECT record, id, value, fingerprint FROM _fresh "
            f"LEFT JOIN ({known}) USING (record) WHERE again OR fingerprint IS DISTINCT FROM known"
        )
        cursor.execute("DROP TABLE _fresh")
    else:
        table = f"main.{quoted(now.table)}"
        rows = f"SELECT *, {printed} AS fingerprint FROM (SELECT {key} AS record, {value} AS value FROM {table})"
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {records.relation} AS "
            f"SELECT record, md5_number_lower(record) AS id, value, now.fingerprint FROM ({rows}) AS now "
            f"LEFT JOIN {state} AS was USING (record) WHERE now.fingerprint IS DISTINCT FROM was.fingerprint"
        )
        gone = f"record NOT IN (SELECT {key} FROM {table})"
        cursor.execute(f"INSERT INTO {records.relation} SELECT record, id, NULL, NULL FROM {state} WHERE {gone}")
    return records
