"""Markdown of the reference pages, and the docstrings that it is generated from."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel

_DEFAULT = re.compile(r" Default: (.*)\.$")
_LINK = re.compile(r"\bdocs/([\w/-]+)\.md(#[\w-]+)?")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [re.sub("  +", " ", f"| {' | '.join(map(_cell, row))} |") for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return linked(" ".join(text.split())).replace("|", "\\|")


def linked(text: str) -> str:
    """Replace paths of pages in the repository by links from docs/reference."""

    def link(found: re.Match[str]) -> str:
        page, place = PurePosixPath(found[1]), found[2] or ""
        path = page.name if page.parent.name == "reference" else f"../{page}"
        return f"[{page.name.replace('-', ' ')}]({path}.md{place})"

    return _LINK.sub(link, text)


def first_sentences(documented: object) -> str:
    """Return the docstring of a class or a function as one paragraph."""
    return " ".join((inspect.getdoc(documented) or "").split())


def attribute_texts(model: type) -> dict[str, str]:
    """Return the texts below the attributes of a class and its bases, which only the source contains."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("turnout"):
            [made] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(made, ast.ClassDef)
            found |= _below(made.body)
    return found


def _below(body: Sequence[ast.stmt]) -> dict[str, str]:
    return {
        first.target.id: " ".join(second.value.value.split())
        for first, second in itertools.pairwise(body)
        if isinstance(first, ast.AnnAssign)
        and isinstance(first.target, ast.Name)
        and isinstance(second, ast.Expr)
        and isinstance(second.value, ast.Constant)
        and isinstance(second.value.value, str)
    }


def split_default(text: str, otherwise: str) -> tuple[str, str]:
    """Split a text into its meaning and the default at its end, such as `Default: none.`."""
    found = _DEFAULT.search(text)
    return (text[: found.start()], found[1]) if found else (text, otherwise)


def shown(value: Any) -> str:
    """Format a default as in a configuration file."""
    match value:
        case None | "":
            return "none"
        case BaseModel():
            return ""
        case Enum():
            return f"`{value.value}`"
        case bool():
            return f"`{value}`".lower()
        case float():
            return f"`{value:g}`"
        case tuple():
            return f"`[{', '.join(map(str, value))}]`"
        case Path():
            return f"`./{value}`"
        case _:
            return f"`{value}`"
