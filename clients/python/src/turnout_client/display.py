"""Display of rows: HTML in notebooks, with all data escaped, and a few lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout_client.events import Rows, Summary

SHOWN_ROWS = 10
_MAX_CHARACTERS = 200
_TEXT_ROWS = 5
_TEXT_COLUMNS = 8
_TEXT_CHARACTERS = 24


def lines(answer: Rows | Summary, one: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Format an answer of the server as a text of at most eight lines; `one` is the word for a row."""
    heads = [column["name"] for column in answer.columns[:_TEXT_COLUMNS]]
    body = [[_short(row[name]) for name in heads] for row in rows[:_TEXT_ROWS]]
    cells = [[_short(name) for name in heads], *body]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    more = "  ..." if len(answer.columns) > _TEXT_COLUMNS else ""
    table = ["  ".join(map(str.ljust, row, widths)).rstrip() + more for row in cells]
    rest = [f"... {len(rows) - _TEXT_ROWS:,} more"] if len(rows) > _TEXT_ROWS else []
    head = f"{answer.table}: {len(rows):,} of {_total(answer, one)}, generation {answer.generation}"
    return "\n".join([f"{head}, version {answer.version}", *table, *rest])


def page(answer: Rows | Summary, one: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Format an answer of the server as HTML, below its name and version; `one` is the word for a row."""
    facts = (f"generation {answer.generation}", f"version {answer.version}", _total(answer, one))
    heads = "".join(f'<th title="{escape(c["type"])}">{escape(c["name"])}</th>' for c in answer.columns)
    body = "".join(f"<tr>{''.join(_cell(row[c['name']]) for c in answer.columns)}</tr>" for row in rows)
    return f"{caption(answer.table, *facts)}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _total(answer: Rows | Summary, one: str) -> str:
    return f"{answer.total:,} {one if answer.total == 1 else f'{one}s'}"


def caption(table: str, *facts: str) -> str:
    return f"<div><b>{escape(table)}</b> &nbsp; {' &nbsp; '.join(map(escape, facts))}</div>"


def _cell(value: object) -> str:
    if value is None:
        return "<td><i>null</i></td>"
    return f"<td>{escape(text(value))}</td>"


def _short(value: object) -> str:
    """Format a value in one line, without characters that a terminal would interpret."""
    whole = "null" if value is None else text(value)
    plain = "".join(letter if letter.isprintable() else " " for letter in whole)
    return plain if len(plain) <= _TEXT_CHARACTERS else plain[: _TEXT_CHARACTERS - 3] + "..."


def text(value: object) -> str:
    """Format a value as a text, cut after 200 characters."""
    whole = str(value).lower() if isinstance(value, bool) else str(value)
    return whole if len(whole) <= _MAX_CHARACTERS else whole[: _MAX_CHARACTERS - 3] + "..."
