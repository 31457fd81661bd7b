"""Rows as HTML, for notebooks. Everything that comes from data is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

SHOWN_ROWS = 10
_MAX_CHARACTERS = 200


def caption(table: str, *facts: str) -> str:
    return f"<div><b>{escape(table)}</b> &nbsp; {' &nbsp; '.join(map(escape, facts))}</div>"


def table(columns: Sequence[Mapping[str, str]], rows: Iterable[Mapping[str, Any]]) -> str:
    heads = "".join(f'<th title="{escape(one["type"])}">{escape(one["name"])}</th>' for one in columns)
    body = "".join(f"<tr>{''.join(_cell(row[one['name']]) for one in columns)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td><i>null</i></td>"
    return f"<td>{escape(text(value))}</td>"


def text(value: object) -> str:
    """A value as people read it, cut where it is long."""
    whole = str(value).lower() if isinstance(value, bool) else str(value)
    return whole if len(whole) <= _MAX_CHARACTERS else whole[: _MAX_CHARACTERS - 3] + "..."
