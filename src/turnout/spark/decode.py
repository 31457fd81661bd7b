"""Decode on Spark: Kafka records -> typed rows of each source, and what is wrong with the others.

`decode` is one projection without filters, because Spark parses the JSON again for each filter on a decoded column.
A record that is not a JSON object has no row and a fault without a field; a field of the wrong type is null, with a
fault that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from turnout.columns import ColumnType
from turnout.joins import OFFSET_BITS
from turnout.spark.json_text import exact

NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "not an object"
NULL_VALUE = "null value"

_STRICT_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "dateFormat": "yyyy-MM-dd",
}
_SPACE = "' \\t\\r\\n'"
# `[text]` has one element and `[text,0]` has two only if the text is one JSON value and nothing else.
_ONE_VALUE = "json_array_length(concat('[', text, ']')) = 1 AND json_array_length(concat('[', text, ',0]')) = 2"
_SHOWN_IN_REASON = 80


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How the records of one topic become rows of one source."""

    name: str
    topic: str
    key: str
    columns: Mapping[str, ColumnType]
    tombstones: bool
    """Whether a null value removes a row (`rows: latest`), or is a fault."""


def decode(records: DataFrame, sources: Sequence[SourceReading]) -> DataFrame:
    """Each record with `_id`, `_ts`, a struct of typed columns and an array of faults (or null) for each source.

    The struct of a source is null where the record gives it no row; with `_deleted` it has only the key of the row to
    remove. `_key`, `_value` and `_text` are set only where something is wrong.
    """
    known = records.select(
        "topic",
        "partition",
        "offset",
        F.expr(f"(CAST(`partition` AS BIGINT) << {OFFSET_BITS}) | `offset`").alias("_id"),
        F.col("timestamp").alias("_ts"),
        "key",
        "value",
        F.expr("CAST(value AS STRING)").alias("text"),
    ).withColumn("object", F.expr(f"is_valid_utf8(text) AND startswith(ltrim({_SPACE}, text), '{{')"))
    parsed = known.select("*", *[_parsed(i, source) for i, source in enumerate(sources)])
    explained = parsed.select("*", *[_reread(i, source) for i, source in enumerate(sources)])
    rows = explained.select("*", *[_row(i, source) for i, source in enumerate(sources)])
    faults = rows.select("*", *[_faults(i, source) for i, source in enumerate(sources)])
    wrong = " OR ".join(f"faults_{i} IS NOT NULL" for i in range(len(sources)))
    return faults.select(
        "topic",
        "partition",
        "offset",
        "_id",
        "_ts",
        F.expr("value IS NULL").alias("_deleted"),
        *[f"row_{i}" for i in range(len(sources))],
        *[f"faults_{i}" for i in range(len(sources))],
        F.expr(f"CASE WHEN {wrong} THEN key END").alias("_key"),
        F.expr(f"CASE WHEN {wrong} THEN value END").alias("_value"),
        F.expr(f"CASE WHEN {wrong} THEN make_valid_utf8(text) END").alias("_text"),
    )


def _parsed(index: int, source: SourceReading) -> Column:
    schema = ", ".join(f"{_name(c)} {t.spark}" for c, t in source.columns.items())
    json = F.from_json("text", f"{schema}, _corrupt string", _STRICT_JSON)
    return F.when(_of(source) & F.col("object"), json).alias(f"parsed_{index}")


def _reread(index: int, source: SourceReading) -> Column:
    """The fields as text, where the typed reading failed: tells a mistyped field from a malformed record."""
    schema = ", ".join(f"{_name(c)} string" for c in source.columns)
    json = F.from_json("text", f"{schema}, _corrupt string", _STRICT_JSON)
    failed = F.col(f"parsed_{index}._corrupt").isNotNull() | _infinite(index, source)
    return F.when(failed, json).alias(f"reread_{index}")


def _infinite(index: int, source: SourceReading) -> Column:
    """A number too large for its type reads as infinity."""
    found = F.lit(False)
    for column, kind in source.columns.items():
        if not kind.exact:
            found = found | (F.abs(F.col(f"parsed_{index}.{_name(column)}")) == float("inf"))
    return F.coalesce(found, F.lit(False))


def _whole() -> str:
    """Whether nothing follows the object, since Spark reads no further than its end.

    A text whose first closing brace is its last character is whole, told in bytes; others are looked at again.
    """
    first = "octet_length(substring_index(text, '}', 1)) = octet_length(text) - 1 AND endswith(text, '}')"
    return f"({first} OR {_ONE_VALUE})"


def _row(index: int, source: SourceReading) -> Column:
    readable = f"parsed_{index} IS NOT NULL AND (reread_{index} IS NULL OR reread_{index}._corrupt IS NULL)"
    row = F.when(F.expr(f"{readable} AND {_whole()}"), F.struct(*_values(index, source)))
    if source.tombstones:
        row = row.when(F.expr(_removes(source)), F.struct(*_removed(source)))
    return row.alias(f"row_{index}")


def _values(index: int, source: SourceReading) -> list[Column]:
    values = []
    for column, kind in source.columns.items():
        value = F.col(f"parsed_{index}.{_name(column)}")
        if kind.name == "string":
            value = exact(F.col("text"), column, value)
        elif not kind.exact:
            value = F.when(F.abs(value) != float("inf"), value)
        values.append(value.alias(column))
    return values


def _removes(source: SourceReading) -> str:
    """A tombstone whose Kafka key is the text of a key."""
    text = "CAST(key AS STRING)"
    same = f"CAST({_key_of(source)} AS STRING) = {text}"
    return f"{_is_of(source)} AND value IS NULL AND is_valid_utf8({text}) AND {same}"


def _removed(source: SourceReading) -> list[Column]:
    return [
        F.expr(_key_of(source) if column == source.key else f"CAST(NULL AS {kind.spark})").alias(column)
        for column, kind in source.columns.items()
    ]


def _key_of(source: SourceReading) -> str:
    return f"try_cast(CAST(key AS STRING) AS {source.columns[source.key].spark})"


def _faults(index: int, source: SourceReading) -> Column:
    nothing = f"{_is_of(source)} AND value IS NULL AND row_{index} IS NULL"
    malformed = f"{_is_of(source)} AND row_{index} IS NULL"
    reason = (
        f"CASE WHEN NOT object AND is_valid_utf8(text) AND {_ONE_VALUE} THEN '{NOT_AN_OBJECT}' ELSE '{NOT_JSON}' END"
    )
    mistyped = ", ".join(_fault_of_field(index, column, kind) for column, kind in source.columns.items())
    return F.expr(
        f"CASE WHEN {nothing} THEN array(struct(CAST(NULL AS STRING) AS field, '{NULL_VALUE}' AS reason)) "
        f"WHEN {malformed} THEN array(struct(CAST(NULL AS STRING) AS field, {reason} AS reason)) "
        f"WHEN reread_{index} IS NOT NULL THEN filter(array({mistyped}), f -> f IS NOT NULL) END"
    ).alias(f"faults_{index}")


def _fault_of_field(index: int, column: str, kind: ColumnType) -> str:
    text, value = f"reread_{index}.{_name(column)}", f"row_{index}.{_name(column)}"
    got = f"substring({text}, 1, {_SHOWN_IN_REASON})"
    return (
        f"CASE WHEN {text} IS NOT NULL AND {value} IS NULL "
        f"THEN struct('{_string(column)}' AS field, concat('expected {kind.name}, got ', {got}) AS reason) END"
    )


def _of(source: SourceReading) -> Column:
    return F.col("topic") == source.topic


def _is_of(source: SourceReading) -> str:
    return f"topic = '{_string(source.topic)}'"


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _string(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
