"""Rows as HTML, for notebooks. Everything that comes from data is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.client.events import Rows, Summary

SHOWN_ROWS = 10
_MAX_CHARACTERS = 200


def page(answer: Rows | Summary, one: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """An answer of the server below its name, generation, version and total; `one` is the word for a row."""
    total = f"{answer.total:,} {one if answer.total == 1 else f'{one}s'}"
    facts = (f"generation {answer.generation}", f"version {answer.version}", total)
    heads = "".join(f'<th title="{escape(c["type"])}">{escape(c["name"])}</th>' for c in answer.columns)
    body = "".join(f"<tr>{''.join(_cell(row[c['name']]) for c in answer.columns)}</tr>" for row in rows)
    return f"{caption(answer.table, *facts)}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def caption(table: str, *facts: str) -> str:
    return f"<div><b>{escape(table)}</b> &nbsp; {' &nbsp; '.join(map(escape, facts))}</div>"


def _cell(value: object) -> str:
    if value is None:
        return "<td><i>null</i></td>"
    return f"<td>{escape(text(value))}</td>"


def text(value: object) -> str:
    """A value as people read it, cut where it is long."""
    whole = str(value).lower() if isinstance(value, bool) else str(value)
    return whole if len(whole) <= _MAX_CHARACTERS else whole[: _MAX_CHARACTERS - 3] + "..."
