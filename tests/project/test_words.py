"""The words of the code: one class of a name, and docstrings that can be read alone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import turnout
import turnout_client

PACKAGES = (Path(turnout.__file__).parent, Path(turnout_client.__file__).parent)
FILES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))

READ_BELOW_A_NEIGHBOUR = re.compile(r"(The same|Those|That of|Of|Their)\b")

_EVENT = "the client's event, and the message of the WebSocket that it is made from"
_SIDES = "what the client's user holds, and what the server has for it"
TWICE = {
    "Changes": _EVENT,
    "Delta": "changes of a table: as the client folds them, and as the store tells them",
    "HistoryPoint": _EVENT,
    "Live": _SIDES,
    "Position": "a table's generation and version, and its form on the wire",
    "Snapshot": _EVENT,
    "Subscription": _SIDES,
    "Summary": _SIDES,
    "SwapMoment": _EVENT,
    "Term": "a term of `where`, and its form on the wire",
    "Window": _SIDES,
}
"""Class names that stand in two modules, each with the reason. The list may only get shorter."""


def test_class_name_stands_once_or_has_a_reason() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path.stem)
    assert {name for name, found in modules.items() if len(found) > 1} == set(TWICE)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Every text that documents something: of modules, classes and functions, and below attributes and constants."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.lineno, statement.value.value


def test_docstring_can_be_read_without_its_neighbour() -> None:
    wrong = [
        f"{path.name}:{line}: {text.splitlines()[0]}"
        for path in FILES
        for line, text in docstrings(path)
        if READ_BELOW_A_NEIGHBOUR.match(text)
    ]
    assert wrong == []
