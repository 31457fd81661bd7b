"""What a request brings: the parameters of its query string, and its body, within a size and a time."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.where import parse_columns, parse_sort, parse_terms
from turnout.serve.responses import AnswerFormat, Export
from turnout.store.query import summary
from turnout.store.query.difference import CHANGES, DifferenceQuestion
from turnout.store.query.row_records import WhyQuestion
from turnout.store.query.summary_read import MAX_GROUPS
from turnout.store.query.windows import Window

DEFAULT_ROWS = 100
MAX_JSON_ROWS = 100_000
MAX_INT64 = 2**63 - 1
DEFAULT_EXAMPLE_RECORDS, MAX_EXAMPLE_RECORDS = 500, 1000
BODY_SECONDS = 30
JSON_KINDS = ("application/json",)
YAML = "application/yaml"
YAML_KINDS = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", *JSON_KINDS)
"""What YAML is sent as; JSON is YAML, too."""
FLAGS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}

M = TypeVar("M", bound=BaseModel)


class Parameter(NamedTuple):
    """A parameter that a call takes, for its check and for the OpenAPI document."""

    name: str
    schema: dict[str, Any]
    meaning: str


_WHOLE = {"type": "integer", "minimum": 0, "maximum": MAX_INT64}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_FLAG = {"type": "string", "enum": list(FLAGS)}
_FORMAT = {"type": "string", "enum": list(AnswerFormat), "default": AnswerFormat.JSON}

_SORT = Parameter(
    "sort",
    _TEXTS,
    "Columns, with `-` in front for descending: `-age,name`. Nulls are last both ways; ties keep the table's own "
    "order. Default: the table's own order.",
)
_WHERE = Parameter("where", _TEXTS, "Terms `column operator value` that must all hold: `age>=30`; can be repeated.")
_FILE = (
    Parameter("format", _FORMAT, "`json`, `csv`, `arrow` (IPC stream) or `parquet`. Default: `json`."),
    Parameter(
        "guard",
        _FLAG,
        "With `csv`: `true` puts `'` before texts that a spreadsheet takes for a formula. Default: `false`.",
    ),
)
_LIMIT = "{what} to answer, for JSON at most {most}. Default: {default} for JSON, all for files."
OF_WINDOWS = (
    Parameter("offset", _WHOLE, "Rows to skip. Default: 0."),
    Parameter("limit", _WHOLE, _LIMIT.format(what="Rows", most=MAX_JSON_ROWS, default=DEFAULT_ROWS)),
    _SORT,
    Parameter("columns", _TEXTS, "Columns to answer, in this order: `name,age`. Default: all."),
    _WHERE,
    *_FILE,
)
OF_SUMMARIES = (
    Parameter(
        "by",
        _TEXTS,
        "Up to three columns. `age:10` makes bins of a number, `ts:1m` of a time (`s`, `m`, `h`, `d`; a `date` has "
        "whole days); a bin is named by its lower end. `_time` is the time of a row's Kafka record, in tables of "
        "sources. Default: one group of all rows.",
    ),
    Parameter(
        "values",
        _TEXTS,
        "`count`, and `sum`, `avg`, `min`, `max`, `count`, `count_distinct`, `p50`, `p95`, `p99` of a column: "
        "`sum(balance)`. At most 20. Default: `count`.",
    ),
    _WHERE,
    Parameter("sort", _TEXTS, "Columns of the answer: `-count`, `-sum(balance)`. Default: the order of the groups."),
    Parameter("limit", _WHOLE, _LIMIT.format(what="Groups", most=summary.MAX_LIMIT, default=summary.DEFAULT_LIMIT)),
    *_FILE,
)
OF_DIFFERENCES = (
    Parameter("from", _WHOLE, "The generation to compare. Default: the one that is published."),
    Parameter("to", _WHOLE, "The generation to compare it with. Default: the candidate."),
    Parameter("change", {"type": "string", "enum": list(CHANGES)}, "Only rows of this change. Default: all."),
    *(parameter for parameter in OF_WINDOWS if parameter.name != "columns"),
)
OF_EXAMPLES = (
    Parameter(
        "records",
        {"type": "integer", "minimum": 1, "maximum": MAX_EXAMPLE_RECORDS},
        f"How many of the newest records to read. Default: {DEFAULT_EXAMPLE_RECORDS}.",
    ),
)
OF_WHY = (
    Parameter("row", {"type": "string"}, "The id of the row, as `WS /api/live` has it (`ids`) and a sink (`id`)."),
    Parameter("key", {"type": "string"}, "A key: its rows, ten at most, or its records where it has none."),
    Parameter(
        "topic",
        {"type": "string"},
        "With `partition` and `offset`, instead of `row` and `key`: a row of `bad_records`.",
    ),
    Parameter("partition", _WHOLE, "See `topic`."),
    Parameter("offset", _WHOLE, "See `topic`."),
)
OF_MESSAGES = (Parameter("wait", _FLAG, "`false`: answer 202 as soon as the message is stored. Default: `true`."),)
OF_APPLIES = (
    Parameter("dryRun", _FLAG, "`true`: say what would change, and change nothing. Default: `false`."),
    *OF_MESSAGES,
    Parameter("requestId", {"type": "string"}, "A name for this request, which is shown with its outcome."),
    Parameter("expectedGeneration", _WHOLE, "Act only if this generation is published."),
    Parameter("force", _FLAG, "`true`: ignore `swap.guards`. Default: `false`."),
)


def check_parameters(query: QueryParams, taken: Iterable[Parameter] = ()) -> None:
    """Refuse an unknown parameter, and one that is given twice and is no list."""
    known = {parameter.name: parameter.schema["type"] for parameter in taken}
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            hint = f"parameters: {', '.join(known)}" if known else "this call takes no parameters"
            raise TurnoutError("unknown_parameter", f"unknown parameter {show(name)}", hint)
        if names.count(name) > 1 and known[name] != "array":
            raise TurnoutError("bad_parameter", f"{name}: given {names.count(name)} times", "give it once")


def window_of(table: str, query: QueryParams) -> tuple[Export, Window]:
    """The window and the format that a query string asks for."""
    export = _export(query)
    limit = _limit(query, export, DEFAULT_ROWS, MAX_JSON_ROWS, "rows")
    columns = parse_columns(query.getlist("columns")) if "columns" in query else ()
    return export, Window(
        table,
        columns=columns or None,
        where=parse_terms(query.getlist("where")),
        sort=parse_sort(query.getlist("sort")),
        offset=whole(query, "offset", 0) or 0,
        limit=limit,
    )


def difference_of(table: str, query: QueryParams) -> tuple[Export, DifferenceQuestion]:
    """The difference and the format that a query string asks for."""
    export, window = window_of(table, query)
    change = query.get("change")
    if change is not None and change not in CHANGES:
        raise TurnoutError("bad_parameter", f"change: unknown {show(change)}", f"changes: {', '.join(CHANGES)}")
    return export, DifferenceQuestion(window, whole(query, "from", None), whole(query, "to", None), change)


def summary_of(table: str, query: QueryParams) -> tuple[Export, summary.Summary]:
    """The summary and the format that a query string asks for."""
    export = _export(query)
    limit = _limit(query, export, summary.DEFAULT_LIMIT, summary.MAX_LIMIT, "groups")
    return export, summary.Summary(
        table,
        by=summary.parse_by(query.getlist("by")),
        values=summary.parse_values(query.getlist("values")),
        where=parse_terms(query.getlist("where")),
        sort=summary.parse_order(query.getlist("sort")),
        limit=MAX_GROUPS if limit is None else limit,
    )


def why_of(table: str, query: QueryParams) -> WhyQuestion:
    """The rows that a query string asks for."""
    given = sorted(name for name in query if name in {parameter.name for parameter in OF_WHY})
    if given not in (["row"], ["key"], ["offset", "partition", "topic"]):
        got = ", ".join(given) or "nothing"
        hint = "give row=ID, or key=VALUE, or topic, partition and offset of a bad record"
        raise TurnoutError("bad_parameter", f"row: which row is asked for is not clear from {got}", hint)
    place = (query.get("topic", ""), whole(query, "partition", 0) or 0, whole(query, "offset", 0) or 0)
    return WhyQuestion(table, query.get("row"), query.get("key"), place if "topic" in query else None)


def records_of(query: QueryParams) -> int:
    """How many records an example is made of."""
    records = whole(query, "records", DEFAULT_EXAMPLE_RECORDS) or 0
    if 1 <= records <= MAX_EXAMPLE_RECORDS:
        return records
    raise TurnoutError("bad_parameter", f"records: {records} is out of range", f"from 1 to {MAX_EXAMPLE_RECORDS}")


def _export(query: QueryParams) -> Export:
    text = query.get("format", AnswerFormat.JSON.value)
    if text not in list(AnswerFormat):
        raise TurnoutError("bad_parameter", f"format: unknown {show(text)}", f"formats: {', '.join(AnswerFormat)}")
    return Export(AnswerFormat(text), flag(query, "guard", default=False) and text == AnswerFormat.CSV)


def _limit(query: QueryParams, export: Export, default: int, most: int, what: str) -> int | None:
    """How many of `what` are answered; None for all, which only files have."""
    as_json = export.format is AnswerFormat.JSON
    limit = whole(query, "limit", default if as_json else None)
    if as_json and limit is not None and limit > most:
        raise TurnoutError(
            "bad_parameter",
            f"limit: {limit} {what} are too many for JSON",
            f"at most {most}; for more, use format=csv, arrow or parquet",
        )
    return limit


def flag(query: QueryParams, name: str, *, default: bool) -> bool:
    text = query.get(name, str(default))
    if text not in FLAGS:
        hint = f"such as {name}={not default}".lower()
        raise TurnoutError("bad_parameter", f"{name}: neither true nor false: {show(text)}", hint)
    return FLAGS[text]


def whole(query: QueryParams, name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise TurnoutError("bad_parameter", f"{name}: not a whole number from 0: {show(text)}", f"such as {name}=100")
    return int(text)


async def read_body(request: Request, most: int, smaller: str, kinds: Sequence[str] = JSON_KINDS) -> bytes:
    """The body of a request; `smaller` says how to send less where it has more than `most` bytes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", *kinds):
        raise TurnoutError(
            "unsupported_media_type",
            f"Content-Type: {show(kind)} is not accepted here",
            f"send {'JSON' if kinds is JSON_KINDS else 'YAML'}, with Content-Type: {kinds[0]}",
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most, smaller)
    body = bytearray()
    try:
        # A client that sends a body a byte at a time holds a connection, and no more than that.
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise _too_large(most, smaller)
    except ClientDisconnect as error:
        raise TurnoutError("bad_request", "the request ended before its body did") from error
    except TimeoutError as error:
        raise TurnoutError(
            "request_timeout", f"the body did not arrive within {BODY_SECONDS} s", "send it at once"
        ) from error
    return bytes(body)


def checked_body(body: bytes, shape: type[M], example: str) -> M:
    """The body as its model; TurnoutError `bad_body` names the first fault."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise TurnoutError("bad_body", first_fault(error, "body"), f"send JSON such as {example}") from error


def first_fault(error: ValidationError, whole: str) -> str:
    """The first fault of what was sent: its place, or the word for the whole, and what is wrong there."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    text = first["msg"].replace("valid tuple", "valid array")  # where values are checked, and not their JSON
    return f"{'.'.join(map(str, first['loc'])) or whole}: {text}"


def _too_large(most: int, smaller: str) -> TurnoutError:
    return TurnoutError("message_too_large", f"the message has more than the {most} bytes allowed", smaller)
