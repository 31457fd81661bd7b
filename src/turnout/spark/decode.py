"""Decode on Spark: Kafka records -> typed rows of each source, and what is wrong with the others.

`decode` is one projection without filters, because Spark parses the JSON again for each filter on a decoded column.
A record that is not a JSON object has no row and a fault without a field; a field of the wrong type is null, with a
fault that names it. It is written as SQL text, because each call of the DataFrame API costs a message to the JVM.
Of a source that is not JSON, records that have a value are handed on as bytes, for `completing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame

from turnout.columns import ColumnType
from turnout.decoders import Decoder
from turnout.joins import OFFSET_BITS
from turnout.layout import Layout
from turnout.spark.json_text import exact_sql

ID = f"(CAST(`partition` AS BIGINT) << {OFFSET_BITS}) | `offset`"
"""The id of a record, as SQL over Kafka's columns."""

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
    decoder: Decoder | None = None
    """What reads the values, where they are not JSON."""


def readings_of(layout: Layout, decoders: Mapping[str, Decoder] = MappingProxyType({})) -> list[SourceReading]:
    """How a generation with this layout reads its topics; the decoders are those of sources that are not JSON."""
    return [
        SourceReading(s.source, s.topic, s.key, s.columns, tombstones=s.latest, decoder=decoders.get(s.source))
        for s in layout.sources
    ]


def decode(records: DataFrame, sources: Sequence[SourceReading]) -> DataFrame:
    """Each record with `_id`, `_ts`, a struct of typed columns and an array of faults (or null) for each source.

    The struct of a source is null where the record gives it no row; with `_deleted` it has only the key of the row to
    remove. `_key`, `_value` and `_text` are set only where something is wrong; the first two also where a decoder is
    to read the value.
    """
    numbered = list(enumerate(sources))
    json = [(i, source) for i, source in numbered if source.decoder is None]
    handed_on = [f"{_is_of(source)} AND value IS NOT NULL" for source in sources if source.decoder is not None]
    known = records.selectExpr(
        "topic",
        "`partition`",
        "`offset`",
        f"{ID} AS _id",
        "timestamp AS _ts",
        "key",
        "value",
        "CAST(value AS STRING) AS text",
    ).selectExpr("*", f"is_valid_utf8(text) AND startswith(ltrim({_SPACE}, text), '{{') AS object")
    parsed = known.selectExpr("*", *[_parsed(i, source) for i, source in json])
    explained = parsed.selectExpr("*", *[_reread(i, source) for i, source in json])
    rows = explained.selectExpr("*", *[_row(i, source) for i, source in numbered])
    faults = rows.selectExpr("*", *[_faults(i, source) for i, source in numbered])
    wrong = " OR ".join(f"faults_{i} IS NOT NULL" for i, _ in numbered)
    kept = " OR ".join([wrong, *handed_on])
    return faults.selectExpr(
        *("topic", "`partition`", "`offset`", "_id", "_ts", "value IS NULL AS _deleted"),
        *[f"row_{i}" for i, _ in numbered],
        *[f"faults_{i}" for i, _ in numbered],
        f"CASE WHEN {kept} THEN key END AS _key",
        f"CASE WHEN {kept} THEN value END AS _value",
        f"CASE WHEN {wrong} THEN make_valid_utf8(text) END AS _text",
    )


def _parsed(index: int, source: SourceReading) -> str:
    schema = ", ".join(f"{_name(c)} {t.spark}" for c, t in source.columns.items())
    return f"CASE WHEN {_is_of(source)} AND object THEN {_from_json(schema)} END AS parsed_{index}"


def _reread(index: int, source: SourceReading) -> str:
    """The fields as text, where the typed reading failed: tells a mistyped field from a malformed record."""
    schema = ", ".join(f"{_name(c)} string" for c in source.columns)
    infinite = [f"abs({_field(index, c)}) = double('Infinity')" for c, t in source.columns.items() if not t.exact]
    failed = " OR ".join([f"parsed_{index}._corrupt IS NOT NULL", *infinite])
    return f"CASE WHEN {failed} THEN {_from_json(schema)} END AS reread_{index}"


def _from_json(schema: str) -> str:
    options = ", ".join(f"'{name}', '{value}'" for name, value in _STRICT_JSON.items())
    return f"from_json(text, '{_string(schema)}, _corrupt string', map({options}))"


def _whole() -> str:
    """Whether nothing follows the object, since Spark reads no further than its end.

    A text whose first closing brace is its last character is whole, told in bytes; others are looked at again.
    """
    first = "octet_length(substring_index(text, '}', 1)) = octet_length(text) - 1 AND endswith(text, '}')"
    return f"({first} OR {_ONE_VALUE})"


def _row(index: int, source: SourceReading) -> str:
    if source.decoder is not None:
        removes = _removes(source) if source.tombstones else "false"
        return f"CASE WHEN {removes} THEN {_struct(_removed(source))} END AS row_{index}"
    readable = f"parsed_{index} IS NOT NULL AND (reread_{index} IS NULL OR reread_{index}._corrupt IS NULL)"
    cases = (
        f"WHEN {readable} AND {_whole()} THEN {_struct({c: _value(index, c, t) for c, t in source.columns.items()})}"
    )
    if source.tombstones:
        cases += f" WHEN {_removes(source)} THEN {_struct(_removed(source))}"
    return f"CASE {cases} END AS row_{index}"


def _struct(values: Mapping[str, str]) -> str:
    return f"struct({', '.join(f'{value} AS {_name(column)}' for column, value in values.items())})"


def _value(index: int, column: str, kind: ColumnType) -> str:
    value = _field(index, column)
    if kind.name == "string":
        return exact_sql("text", column, value)
    # A number too large for its type reads as infinity.
    return value if kind.exact else f"CASE WHEN abs({value}) <> double('Infinity') THEN {value} END"


def _removes(source: SourceReading) -> str:
    """A tombstone whose Kafka key is the text of a key."""
    text = "CAST(key AS STRING)"
    same = f"CAST({_key_of(source)} AS STRING) = {text}"
    return f"{_is_of(source)} AND value IS NULL AND is_valid_utf8({text}) AND {same}"


def _removed(source: SourceReading) -> dict[str, str]:
    nulls = {column: f"CAST(NULL AS {kind.spark})" for column, kind in source.columns.items()}
    return nulls | {source.key: _key_of(source)}


def _key_of(source: SourceReading) -> str:
    return f"try_cast(CAST(key AS STRING) AS {source.columns[source.key].spark})"


def _faults(index: int, source: SourceReading) -> str:
    nothing = f"{_is_of(source)} AND value IS NULL AND row_{index} IS NULL"
    if source.decoder is not None:
        return (
            f"CASE WHEN {nothing} THEN array(struct(CAST(NULL AS STRING) AS field, '{NULL_VALUE}' AS reason)) END "
            f"AS faults_{index}"
        )
    malformed = f"{_is_of(source)} AND row_{index} IS NULL"
    reason = (
        f"CASE WHEN NOT object AND is_valid_utf8(text) AND {_ONE_VALUE} THEN '{NOT_AN_OBJECT}' ELSE '{NOT_JSON}' END"
    )
    mistyped = ", ".join(_fault_of_field(index, column, kind) for column, kind in source.columns.items())
    return (
        f"CASE WHEN {nothing} THEN array(struct(CAST(NULL AS STRING) AS field, '{NULL_VALUE}' AS reason)) "
        f"WHEN {malformed} THEN array(struct(CAST(NULL AS STRING) AS field, {reason} AS reason)) "
        f"WHEN reread_{index} IS NOT NULL THEN filter(array({mistyped}), f -> f IS NOT NULL) END "
        f"AS faults_{index}"
    )


def _fault_of_field(index: int, column: str, kind: ColumnType) -> str:
    text, value = f"reread_{index}.{_name(column)}", f"row_{index}.{_name(column)}"
    got = f"substring({text}, 1, {_SHOWN_IN_REASON})"
    return (
        f"CASE WHEN {text} IS NOT NULL AND {value} IS NULL "
        f"THEN struct('{_string(column)}' AS field, concat('expected {kind.name}, got ', {got}) AS reason) END"
    )


def _field(index: int, column: str) -> str:
    return f"parsed_{index}.{_name(column)}"


def _is_of(source: SourceReading) -> str:
    return f"topic = {sql_string(source.topic)}"


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def sql_string(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    return f"'{_string(text)}'"


def _string(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
