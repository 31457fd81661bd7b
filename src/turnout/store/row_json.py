"""The SQL of a row as JSON: a record's key and its value, in the same form as rows over HTTP.

NaN and infinities are null, decimals are texts, times are ISO 8601 in UTC, of any year.
"""

from collections.abc import Callable, Mapping

from turnout.plan.sql_text import literal, quoted
from turnout.store.identity import ROW
from turnout_client.column_types import ColumnType

_DAY = "%m-%d"
_MOMENT = "%m-%dT%H:%M:%S.%fZ"


def record_key_sql(key: str, kind: ColumnType) -> str:
    """What makes a record's key: the row's key, and its id among the rows of the table."""
    return f"CAST(json_object('key', {json_sql(quoted(key), kind)}, 'id', {ROW}) AS VARCHAR)"


def record_value_sql(columns: Mapping[str, ColumnType]) -> str:
    """The whole row."""
    fields = ", ".join(f"{literal(name)}, {json_sql(quoted(name), kind)}" for name, kind in columns.items())
    return f"CAST(json_object({fields}) AS VARCHAR)"


def json_sql(column: str, kind: ColumnType) -> str:
    """A value that `json_object` writes as the rows of HTTP have it."""
    return _JSON[kind.family](column)


def equal_in_json(kind: ColumnType) -> bool:
    """Whether values are equal where their JSON is; floats have NaN and -0.0."""
    return _JSON[kind.family] not in (_double, _float)


def _as_it_is(column: str) -> str:
    return column


def _double(column: str) -> str:
    return f"CASE WHEN isfinite({column}) THEN {column} END"


def _float(column: str) -> str:
    # By way of its shortest text, so that the float 0.1 is 0.1 and not 0.10000000149011612.
    return f"CASE WHEN isfinite({column}) THEN CAST(CAST({column} AS VARCHAR) AS DOUBLE) END"


def _decimal(column: str) -> str:
    return f"CAST({column} AS VARCHAR)"


def _date(column: str) -> str:
    return _time(column, _DAY)


def _timestamp(column: str) -> str:
    # Not by a cast, which asks for the time zone of the session.
    return _time(f"make_timestamp(epoch_us({column}))", _MOMENT)


def _time(value: str, rest: str) -> str:
    year = f"year({value})"
    form = f"CASE WHEN {year} BETWEEN 0 AND 9999 THEN '%04d-' WHEN {year} < 0 THEN '-%06d-' ELSE '+%06d-' END"
    return f"printf({form}, abs({year})) || strftime({value}, '{rest}')"


_JSON: Mapping[str, Callable[[str], str]] = {
    "string": _as_it_is,
    "boolean": _as_it_is,
    "int32": _as_it_is,
    "int64": _as_it_is,
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
}
"""The SQL of a value in JSON, by the family of its type."""
