"""The SQL of a row as JSON: a record's key and its value, in the same form as rows over HTTP.

NaN and infinities are null, decimals are texts, times are ISO 8601 in UTC, of any year.
"""

from collections.abc import Mapping

from turnout.plan.columns import ColumnType
from turnout.plan.joins import quoted
from turnout.store.database import literal
from turnout.store.identity import ROW

_DAY = "%m-%d"
_MOMENT = "%m-%dT%H:%M:%S.%fZ"


def record_key_sql(key: str, kind: ColumnType) -> str:
    """What makes a record's key: the row's key, and its id among the rows of the table."""
    return f"CAST(json_object('key', {_shown(quoted(key), kind)}, 'id', {ROW}) AS VARCHAR)"


def record_value_sql(columns: Mapping[str, ColumnType]) -> str:
    """The whole row."""
    fields = ", ".join(f"{literal(name)}, {_shown(quoted(name), kind)}" for name, kind in columns.items())
    return f"CAST(json_object({fields}) AS VARCHAR)"


def _shown(column: str, kind: ColumnType) -> str:
    if kind.name == "double":
        return f"CASE WHEN isfinite({column}) THEN {column} END"
    if kind.name == "float":
        # By way of its shortest text, so that the float 0.1 is 0.1 and not 0.10000000149011612.
        return f"CASE WHEN isfinite({column}) THEN CAST(CAST({column} AS VARCHAR) AS DOUBLE) END"
    if kind.name == "date":
        return _time(column, _DAY)
    if kind.name == "timestamp":
        # Not by a cast, which asks for the time zone of the session.
        return _time(f"make_timestamp(epoch_us({column}))", _MOMENT)
    if kind.name.startswith("decimal"):
        return f"CAST({column} AS VARCHAR)"
    return column


def _time(value: str, rest: str) -> str:
    year = f"year({value})"
    form = f"CASE WHEN {year} BETWEEN 0 AND 9999 THEN '%04d-' WHEN {year} < 0 THEN '-%06d-' ELSE '+%06d-' END"
    return f"printf({form}, abs({year})) || strftime({value}, '{rest}')"
