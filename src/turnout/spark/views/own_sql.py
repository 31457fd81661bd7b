"""Views that are somebody's own SQL: whether Spark understands it, and whether the rows of a key need no other key.

What the SQL may hold is checked first, by its parsed text, and only what passes is run (`allowed_sql`).

A view is kept up to date by running its SQL over the rows of a few keys. That gives the same table as running it over
everything only if rows of different keys never meet, which is tried out here on a handful of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.errors import TurnoutError, first_line
from turnout.plan.sql_text import backquoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.spark.jvm.session import view_session
from turnout.spark.views.allowed_sql import ALLOWED, AllowedSql, RefusedSqlError
from turnout_client.column_types import ColumnType

_KEYS = (0, 1)
_ROWS_OF_A_KEY = 2


def check_own_views(session: SparkSession, views: Iterable[ViewTable]) -> None:
    """TurnoutError says what is wrong with the first one that cannot be kept up to date."""
    for view in views:
        if view.own_sql:
            _check(view_session(session, own=True), view)


def _check(session: SparkSession, view: ViewTable) -> None:
    rules = AllowedSql(session, view.relations)
    named = ", ".join(f"{source.source} ({', '.join(source.columns)})" for source in view.sources)
    try:
        rules.check_text(view.sql)
        _put_samples(session, view, _KEYS)
        plan = session.sql(view.sql)._jdf.queryExecution().analyzed()
        rules.check_analysed(plan)
        if not plan.deterministic():
            raise _bad(view, "its result depends on chance", "use nothing like rand() or uuid()")
        whole, *parts = [_rows(session, view, keys) for keys in (_KEYS, *((key,) for key in _KEYS))]
    except RefusedSqlError as error:
        raise _bad(view, f"{error}, which is not allowed", f"it may read {named}; {ALLOWED}") from None
    except PySparkException as error:
        hint = f"it is Spark SQL over {named}, and selects {', '.join(view.columns)}"
        raise _bad(view, first_line(error), hint) from None
    # A limit that is larger than this handful of rows would not be found out by them.
    if whole != sum(parts, Counter()) or "GlobalLimit" in plan.toString():
        raise _bad(
            view,
            f"rows of one {view.key} depend on rows of others",
            f"have {view.key} in every JOIN, GROUP BY and PARTITION BY, and use no LIMIT",
        )


def _bad(view: ViewTable, what: str, hint: str) -> TurnoutError:
    return TurnoutError(code="bad_view", message=f"views.{view.table}.sql: {what}", hint=hint)


def _rows(session: SparkSession, view: ViewTable, keys: Iterable[int]) -> Counter[tuple[object, ...]]:
    _put_samples(session, view, keys)
    return Counter(tuple(row.values()) for row in session.sql(view.sql).toArrow().to_pylist())


def _put_samples(session: SparkSession, view: ViewTable, keys: Iterable[int]) -> None:
    for source in view.sources:
        session.sql(_sample(source, keys)).createOrReplaceTempView(f"`{source.source}`")


def _sample(source: SourceTable, keys: Iterable[int]) -> str:
    """Some rows of each key that are alike in all but the key: what joins them by another column is found out."""
    rows = []
    for key in keys:
        for number in range(_ROWS_OF_A_KEY):
            values = {
                column: _value(kind, key if column == source.key else 0) for column, kind in source.columns.items()
            }
            values |= {"_id": f"{key * _ROWS_OF_A_KEY + number}L", "_ts": "0L"}
            rows.append(f"({', '.join(values.values())})")
            names = ", ".join(map(backquoted, values))
    return f"SELECT * FROM VALUES {', '.join(rows)} AS sample({names})"


def _value(kind: ColumnType, number: int) -> str:
    """One of two values of a type."""
    return f"CAST('{kind.samples[number]}' AS {kind.spark})"
