"""The HTTP calls that ask tables for more than their rows: summaries, and SELECTs of one's own.

Both are reads with a place in `reads.py`, and end when the client goes. What a SELECT may name is `store/query/sql.py`,
who may send one is `access.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from turnout.errors import TurnoutError
from turnout.serve import bodies, routes
from turnout.serve.answers import Answers
from turnout.serve.formats import Export, Format, TableFile, json_object, json_rows, table_file
from turnout.serve.limits import Hold
from turnout.serve.parameters import summary_of
from turnout.serve.reads import Reading
from turnout.serve.routes import CallRoute
from turnout.serve.schemas import SqlQuestion
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import SummaryResult, read_summary

MAX_BODY_BYTES = 512 * 1024
_EXAMPLE = '{"sql": "select accountType, count(*) from final_ui group by all"}'
_SMALLER = "write a shorter SELECT"


class AskApi:
    """The calls, bound to the reads of the server. `check_sql` refuses who may not send SQL."""

    def __init__(self, answers: Answers, sql_memory: str, check_sql: Callable[[Scope], None]) -> None:
        self._answers = answers
        self._sql_memory = sql_memory
        self._check_sql = check_sql

    def routes(self) -> list[CallRoute]:
        return [CallRoute(routes.SUMMARY, self.summary), CallRoute(routes.SQL, self.sql)]

    async def summary(self, request: Request) -> Response:
        export, summary = summary_of(request.path_params["name"], request.query_params)
        if export.kind is not Format.JSON:
            return await self._answers.file(request, lambda store, hold: _summary_file(store, summary, export, hold))
        return await self._answers.json(
            request, lambda store: summary_json(read_summary(store, summary)), large=summary.costly
        )

    async def sql(self, request: Request) -> Response:
        self._check_sql(request.scope)
        body = await bodies.read_body(request, MAX_BODY_BYTES, _SMALLER)
        asked = bodies.checked(body, SqlQuestion, _EXAMPLE)
        memory = self._sql_memory

        def read(store: Reading) -> SqlResult:
            return read_sql(store, asked.sql, asked.limit, memory)

        if asked.format is Format.JSON:
            return await self._answers.json(request, lambda store: sql_json(read(store)), large=True)
        export = Export(asked.format, asked.guard and asked.format is Format.CSV)
        return await self._answers.file(request, lambda store, hold: _sql_file(store, read(store), export, hold))


def summary_json(result: SummaryResult) -> bytes:
    fields = {
        "table": result.table,
        "generation": result.generation,
        "version": result.version,
        "by": result.by,
        "columns": result.columns,
        "total": result.total,
    }
    return json_object(fields, groups=json_rows(result.groups))


def sql_json(result: SqlResult) -> bytes:
    fields = {
        "table": "sql",
        "tables": result.tables,
        "generation": result.generation,
        "version": 0,
        "total": result.rows.num_rows,
        "complete": result.complete,
        "columns": result.columns,
    }
    return json_object(fields, rows=encoded(lambda: json_rows(result.rows)))


def encoded(encode: Callable[[], bytes]) -> bytes:
    """A result as JSON; a type that has no JSON, such as an interval, is an error of who asked for it."""
    try:
        return encode()
    except (TypeError, ValueError, OverflowError) as error:
        raise _without_form("JSON") from error


def _summary_file(store: Reading, summary: Summary, export: Export, hold: Hold) -> TableFile:
    found = read_summary(store, summary)
    numbers = {"Generation": found.generation, "Version": found.version, "Total": found.total}
    return table_file(store, found.groups.to_reader(), f"{summary.table}-summary", numbers, export, hold)


def _sql_file(store: Reading, found: SqlResult, export: Export, hold: Hold) -> TableFile:
    numbers = {"Generation": found.generation, "Total": found.rows.num_rows, "Complete": int(found.complete)}
    try:
        return table_file(store, found.rows.to_reader(), "sql", numbers, export, hold)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise _without_form(export.kind.value) from error


def _without_form(form: str) -> TurnoutError:
    return TurnoutError(
        code="sql_refused",
        message=f"sql: a column has a type that {form} has no form for",
        hint="cast it: select column::varchar",
        status=422,
    )
