"""The HTTP calls that ask tables for more than their rows: summaries, differences, and SELECTs of one's own.

All are reads with a place in `reads.py`, and end when the client goes. What a SELECT may name is `store/query/sql.py`,
who may send one is `access.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from turnout.config.server import ServerSettings
from turnout.serve import bodies
from turnout.serve.formats import (
    Export,
    Format,
    TableFile,
    difference_body,
    difference_json,
    json_object,
    json_rows,
    result_json,
    sql_fields,
    table_file,
    to_form,
)
from turnout.serve.limits import Hold
from turnout.serve.parameters import OF_DIFFERENCES, OF_SUMMARIES, difference_of, summary_of
from turnout.serve.reads import Reading
from turnout.serve.responses import Answers
from turnout.serve.routes import FILE, READING, Call
from turnout.serve.schemas import Groups, SqlAnswer, SqlQuestion
from turnout.store.query.difference import DifferenceQuestion, open_difference, read_difference
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import read_summary
from turnout_client.messages import TableDifference

MAX_BODY_BYTES = 512 * 1024
_EXAMPLE = '{"sql": "select accountType, count(*) from final_ui group by all"}'
_SMALLER = "write a shorter SELECT"


@dataclass(frozen=True, slots=True)
class AskApi:
    """The calls, bound to the reads of the server. `check_sql` refuses who may not send SQL."""

    _answers: Answers
    _limits: Callable[[], ServerSettings]
    _check_sql: Callable[[Scope], None]

    @Call(
        "/api/tables/{name}/summary",
        Groups,
        errors=(
            *(*READING, *FILE, "bad_where", "bad_sort", "bad_by", "bad_values", "too_many_groups"),
            *("unknown_table", "not_found"),
        ),
        parameters=OF_SUMMARIES,
        file_headers=("generation", "version", "total"),
    )
    async def read_summary(self, request: Request) -> Response:
        """Groups of a table's rows, and counts, sums, averages and percentiles of each, of one moment."""
        export, summary = summary_of(request.path_params["name"], request.query_params)
        if export.kind is not Format.JSON:
            return await self._answers.file(request, lambda store, hold: _summary_file(store, summary, export, hold))
        return await self._answers.json(
            request, lambda store: result_json(read_summary(store, summary)), large=summary.costly
        )

    @Call(
        "/api/tables/{name}/difference",
        TableDifference,
        errors=(
            *(*READING, *FILE, "bad_where", "bad_sort", "no_candidate", "unknown_generation"),
            *("unknown_table", "not_found"),
        ),
        parameters=OF_DIFFERENCES,
        file_headers=("from-generation", "from-version", "to-generation", "to-version", "total"),
    )
    async def read_difference(self, request: Request) -> Response:
        """What differs in a table between two living generations, of one moment."""
        export, asked = difference_of(request.path_params["name"], request.query_params)
        if export.kind is not Format.JSON:
            return await self._answers.file(request, lambda store, hold: _difference_file(store, asked, export, hold))

        def read(store: Reading) -> bytes:
            found = read_difference(store, asked)
            return difference_json(found.table, found.positions, found.lags, difference_body(found))

        return await self._answers.json(request, read, large=True)

    @Call(
        "/api/sql",
        SqlAnswer,
        errors=(*READING, *FILE, "bad_body", "sql_refused"),
        body=SqlQuestion,
        method="POST",
        file_headers=("generation", "total", "complete"),
    )
    async def sql(self, request: Request) -> Response:
        """The rows of one SELECT of your own over published tables, of one moment."""
        self._check_sql(request.scope)
        body = await bodies.read_body(request, MAX_BODY_BYTES, _SMALLER)
        asked = bodies.checked(body, SqlQuestion, _EXAMPLE)
        memory = self._limits().sql_memory_limit

        def read(store: Reading) -> SqlResult:
            return read_sql(store, asked.sql, asked.limit, memory)

        if asked.format is Format.JSON:
            return await self._answers.json(request, lambda store: sql_json(read(store)), large=True, sliced=True)
        export = Export(asked.format, asked.guard and asked.format is Format.CSV)
        return await self._answers.file(request, lambda store, hold: _sql_file(store, read(store), export, hold))


def sql_json(result: SqlResult) -> bytes:
    fields = {**sql_fields(result), "tables": result.tables}
    return json_object(fields, rows=to_form("JSON", result.rows, json_rows))


def _summary_file(store: Reading, summary: Summary, export: Export, hold: Hold) -> TableFile:
    found = read_summary(store, summary)
    numbers = {"Generation": found.generation, "Version": found.version, "Total": found.total}
    return table_file(store, found.groups.to_reader(), f"{summary.table}-summary", numbers, export, hold)


def _difference_file(store: Reading, asked: DifferenceQuestion, export: Export, hold: Hold) -> TableFile:
    with open_difference(store, asked) as found:
        sides = (("From", found.before), ("To", found.after))
        numbers = {f"{side}-{name.title()}": number for side, at in sides for name, number in at.as_json().items()}
        rows, name = found.rows, f"{asked.window.table}-difference"
        assert isinstance(rows, pa.RecordBatchReader)
        return table_file(store, rows, name, {**numbers, "Total": found.total}, export, hold)


def _sql_file(store: Reading, found: SqlResult, export: Export, hold: Hold) -> TableFile:
    numbers = {"Generation": found.generation, "Total": found.rows.num_rows, "Complete": int(found.complete)}
    return to_form(
        export.kind.value,
        found.rows,
        lambda rows: table_file(store, rows.to_reader(), "sql", numbers, export, hold),
    )
