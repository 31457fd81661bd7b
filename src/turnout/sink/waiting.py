"""The records that bring a sink's topic to what is shown now, made in SQL from one moment of the store.

While the sink keeps up they are the changed rows of one batch. Otherwise, and after a swap, they are the difference
between what the topic holds and the whole table. Either way a row that is in the topic as it is shown is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from turnout.plan.columns import ColumnType
from turnout.plan.joins import quoted
from turnout.sink.row_json import record_key_sql, record_value_sql
from turnout.sink.topic_state import Written
from turnout.store.database import PUBLISHED, scalar
from turnout.store.identity import ROW
from turnout.store.outgoing import BOOK, relation

_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() AND schema_name = ?
AND table_name = ? AND column_name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY column_index
"""
_OFFSETS = """
SELECT coalesce(nullif(offsets, '{{}}'), (SELECT start_offsets FROM turnout.generations WHERE generation = ?), '{{}}')
FROM {schema}.progress
"""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table of the published generation at one moment."""

    generation: int
    version: int
    table: str
    key: str
    columns: Mapping[str, ColumnType]
    offsets: str
    """Where the sources are read up to, as JSON."""
    since: int | None
    """Changes after this version are all kept, or those of none."""

    @property
    def written(self) -> Written:
        return Written(self.generation, self.version)

    @property
    def schema(self) -> str:
        return f"g{self.generation}"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a sink is behind: versions of its table, and rows, about."""

    versions: int
    rows: int


def shown_table(cursor: duckdb.DuckDBPyConnection, table: str) -> ShownTable | None:
    """The table as it is shown in this transaction; None where nothing is published that has it."""
    generation = scalar(cursor, PUBLISHED)
    schema = f"g{generation}"
    found = cursor.execute(_COLUMNS, [schema, table]).fetchall() if generation else []
    if not found:
        return None
    columns = {name: ColumnType.parse(ColumnType.from_duckdb(kind)) for name, kind in found}
    book = f"SELECT key, since, upto FROM {schema}.{BOOK} WHERE name = ?"
    [(key, since, upto)] = cursor.execute(book, [table]).fetchall()
    version = scalar(cursor, f"SELECT version FROM {schema}.versions WHERE name = ?", [table])
    [(offsets,)] = cursor.execute(_OFFSETS.format(schema=schema), [generation]).fetchall()
    return ShownTable(generation, version, table, key, columns, offsets, since if upto == version else None)


def is_shown(cursor: duckdb.DuckDBPyConnection, table: str, written: Written) -> bool:
    """Whether that is what is shown: soon found out, since it is asked after every commit of the store."""
    if scalar(cursor, PUBLISHED) != written.generation or not written.generation:
        return False
    version = f"SELECT version FROM g{written.generation}.versions WHERE name = ?"
    return scalar(cursor, version, [table]) == written.version


def keeps_up(shown: ShownTable, written: Written) -> bool:
    """Whether the changes since then are all kept."""
    return written.generation == shown.generation and shown.since is not None and shown.since <= written.version


def lag(cursor: duckdb.DuckDBPyConnection, table: str, written: Written) -> Lag:
    """How much waits; where a difference has to be made, all rows of the table."""
    shown = shown_table(cursor, table)
    if shown is None or shown.written == written:
        return Lag(0, 0)
    same = shown.generation == written.generation
    versions = max(1, shown.version - (written.version if same else 0))
    if keeps_up(shown, written):
        rows = f"{relation(shown.schema, table)} WHERE _version > {written.version}"
    else:
        rows = f"main.{quoted(table)}"
    return Lag(versions, scalar(cursor, f"SELECT count(*) FROM {rows}"))


def make_records(cursor: duckdb.DuckDBPyConnection, shown: ShownTable, written: Written, state: str, form: str) -> int:
    """Fill the temporary table `_records` of the cursor: `record`, `id`, `value`, `fingerprint`; how many there are.

    Value and fingerprint are null where the row is gone. `state` is the relation of what the topic holds.
    """
    key = record_key_sql(shown.key, shown.columns[shown.key])
    value = record_value_sql(shown.columns)
    printed = f"md5_number({fingerprinted('value', form)})"
    if keeps_up(shown, written):
        rows = f"{relation(shown.schema, shown.table)} WHERE _version > {written.version}"
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
            f"CREATE OR REPLACE TEMP TABLE _records AS SELECT record, id, value, fingerprint FROM _fresh "
            f"LEFT JOIN ({known}) USING (record) WHERE again OR fingerprint IS DISTINCT FROM known"
        )
        cursor.execute("DROP TABLE _fresh")
    else:
        table = f"main.{quoted(shown.table)}"
        rows = f"SELECT *, {printed} AS fingerprint FROM (SELECT {key} AS record, {value} AS value FROM {table})"
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE _records AS "
            f"SELECT record, md5_number_lower(record) AS id, value, now.fingerprint FROM ({rows}) AS now "
            f"LEFT JOIN {state} AS was USING (record) WHERE now.fingerprint IS DISTINCT FROM was.fingerprint"
        )
        gone = f"record NOT IN (SELECT {key} FROM {table})"
        cursor.execute(f"INSERT INTO _records SELECT record, id, NULL, NULL FROM {state} WHERE {gone}")
    return scalar(cursor, "SELECT count(*) FROM _records")


def fingerprinted(value: str, form: str) -> str:
    """What the fingerprint is of: a row that is written in another form is another record."""
    return value if form == "json" else f"'{form}:' || {value}"
