"""The query string of a request: which parameters are taken, and what they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import QueryParams

from turnout.errors import TurnoutError
from turnout.serve.formats import Export, Format
from turnout.store.query import summary
from turnout.store.query.summary_read import MAX_GROUPS
from turnout.store.query.values import show
from turnout.store.query.where import parse_columns, parse_sort, parse_terms
from turnout.store.query.windows import Window

DEFAULT_ROWS = 100
MAX_JSON_ROWS = 100_000
MAX_INT64 = 2**63 - 1
FLAGS = {"true": True, "1": True, "false": False, "0": False}


def check_parameters(query: QueryParams, described: Iterable[Mapping[str, Any]] = ()) -> None:
    """Refuse a parameter that is not described, or that was given twice and is no list."""
    known = {parameter["name"]: parameter["schema"]["type"] for parameter in described}
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            hint = f"parameters: {', '.join(known)}" if known else "this call takes no parameters"
            raise TurnoutError(code="unknown_parameter", message=f"unknown parameter {show(name)}", hint=hint)
        if names.count(name) > 1 and known[name] != "array":
            raise TurnoutError(
                code="bad_parameter", message=f"{name}: given {names.count(name)} times", hint="give it once"
            )


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
        offset=_whole(query, "offset", 0) or 0,
        limit=limit,
    )


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


def _export(query: QueryParams) -> Export:
    kind = _format(query.get("format", Format.JSON.value))
    return Export(kind, flag(query, "guard", default=False) and kind is Format.CSV)


def _limit(query: QueryParams, export: Export, default: int, most: int, what: str) -> int | None:
    """How many of `what` are answered; None for all, which only files have."""
    as_json = export.kind is Format.JSON
    limit = _whole(query, "limit", default if as_json else None)
    if as_json and limit is not None and limit > most:
        raise TurnoutError(
            code="bad_parameter",
            message=f"limit: {limit} {what} are too many for JSON",
            hint=f"at most {most}; take more by format=csv, arrow or parquet",
        )
    return limit


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError as error:
        hint = f"formats: {', '.join(Format)}"
        raise TurnoutError(code="bad_parameter", message=f"format: unknown {show(text)}", hint=hint) from error


def flag(query: QueryParams, name: str, *, default: bool) -> bool:
    text = query.get(name, str(default)).lower()
    if text not in FLAGS:
        hint = f"such as {name}={not default}".lower()
        raise TurnoutError(code="bad_parameter", message=f"{name}: neither true nor false: {show(text)}", hint=hint)
    return FLAGS[text]


def _whole(query: QueryParams, name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise TurnoutError(
            code="bad_parameter",
            message=f"{name}: not a whole number from 0: {show(text)}",
            hint=f"such as {name}=100",
        )
    return int(text)
