"""The SQL of a row as JSON: a record's key and its value, in the same form as rows over HTTP.

NaN and infinities are null, decimals are texts, times are ISO 8601 in UTC, of any year.
"""

from collections.abc import Mapping

from turnout.plan.sql_text import literal, quoted
from turnout.store.identity import ROW
from turnout_client.column_types import ColumnType

_FINITE = "CASE WHEN isfinite({0}) THEN {1} END"
_YEAR = (
    "printf(CASE WHEN year({0}) BETWEEN 0 AND 9999 THEN '%04d-' WHEN year({0}) < 0 THEN '-%06d-' ELSE '+%06d-' END, "
    "abs(year({0})))"
)
_JSON: Mapping[str, str] = {
    "string": "{0}",
    "boolean": "{0}",
    "int32": "{0}",
    "int64": "{0}",
    # By way of its shortest text, so that the float 0.1 is 0.1 and not 0.10000000149011612.
    "float": _FINITE.format("{0}", "CAST(CAST({0} AS VARCHAR) AS DOUBLE)"),
    "double": _FINITE.format("{0}", "{0}"),
    "decimal": "CAST({0} AS VARCHAR)",
    "date": f"{_YEAR} || strftime({{0}}, '%m-%d')",
    # Not by a cast, which asks for the time zone of the session.
    "timestamp": f"{_YEAR} || strftime({{0}}, '%m-%dT%H:%M:%S.%fZ')".format("make_timestamp(epoch_us({0}))"),
}
"""The SQL of a value in JSON, by the family of its type."""


def record_key_sql(key: str, kind: ColumnType) -> str:
    """What makes a record's key: the row's key, and its id among the rows of the table."""
    return f"CAST(json_object('key', {json_sql(quoted(key), kind)}, 'id', {ROW}) AS VARCHAR)"


def record_value_sql(columns: Mapping[str, ColumnType]) -> str:
    """The whole row."""
    fields = ", ".join(f"{literal(name)}, {json_sql(quoted(name), kind)}" for name, kind in columns.items())
    return f"CAST(json_object({fields}) AS VARCHAR)"


def json_sql(column: str, kind: ColumnType) -> str:
    """A value that `json_object` writes as the rows of HTTP have it."""
    return _JSON[kind.family].format(column)


def equal_in_json(kind: ColumnType) -> bool:
    """Whether values are equal where their JSON is; floats have NaN and -0.0."""
    return kind.family not in ("double", "float")
