"""docs/contributing.md against the tree: the files that its lists name are there, and none that they need is missing.

What must be named is found in the code itself: the modules in which the name of a type, a join or a format of sinks
stands as text, those in which commands are put in, those in which routes are declared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import turnout
from turnout.plan.joins import Join
from turnout_client.column_types import COLUMN_TYPES

PACKAGE = Path(turnout.__file__).parent
ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python" / "src" / "turnout_client"
COMMANDS = sorted([*(PACKAGE / "cli").glob("*.py"), *(CLIENT / "cli").glob("*.py")])
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")

# Names that mean nothing else in the code: `date` and `string` are words, `float` is a type of Avro and of Python.
TYPES = {kind.family for kind in COLUMN_TYPES} - {"string", "float", "boolean", "date", "timestamp"}
JOINS = {str(join) for join in Join} - {"left", "right"}


def row(what: str) -> str:
    """What the page says of something to add."""
    [found] = [line for line in PAGE.splitlines() if line.startswith(f"| {what} |")]
    return found


def named(what: str) -> set[str]:
    """The files that the row of something names."""
    return set(re.findall(r"`((?:[a-z_-]+/)*[a-z_-]+\.(?:py|ts|yaml|md))`", row(what)))


@cache
def texts(path: Path) -> frozenset[str]:
    """Every text of a module's code, without docstrings and the texts below attributes."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return frozenset(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    )


def modules_with(names: set[str]) -> set[str]:
    """The modules in which one of these names is a text by itself, or begins one as `decimal(`."""
    return {
        path.relative_to(package).as_posix()
        for package in (PACKAGE, CLIENT)
        for path in package.rglob("*.py")
        if any(text in names or text.partition("(")[0] in names for text in texts(path))
    }


@pytest.mark.parametrize("what", ["a column type", "a join", "a command", "an HTTP call", "a sink format"])
def test_files_that_a_list_names_are_there(what: str) -> None:
    places = (
        PACKAGE,
        CLIENT,
        ROOT,
        ROOT / "docs",
        ROOT / "web" / "page" / "src",
        ROOT / "clients" / "typescript" / "src",
    )
    assert named(what)
    assert [name for name in sorted(named(what)) if not any((place / name).is_file() for place in places)] == []


def test_every_module_in_which_a_type_is_named_is_in_the_list() -> None:
    # The columns of the default file, and the types of Avro itself.
    others = {"config/settings.py", "decode/avro.py"}
    assert modules_with(TYPES) - named("a column type") - others == set()


def test_every_module_in_which_a_join_is_named_is_in_the_list() -> None:
    assert modules_with(JOINS) - named("a join") == set()
    lists = [text for path in PACKAGE.rglob("*.py") for text in texts(path) if len(JOINS & set(text.split(", "))) > 1]
    assert lists == []


def test_no_page_or_template_lists_types_or_joins_by_hand() -> None:
    """Lists of them are written from the code."""
    files = [PACKAGE / "config" / "template.yaml", *(ROOT / "web" / "page" / "src").glob("*.ts")]
    # The one is written from the code; the other has the words of SQL itself.
    files = [path for path in files if path.name not in ("column-types.ts", "sql-words.ts")]
    listed = re.compile(r"int32\W+int64|semi\W+anti")
    assert [path.name for path in files if listed.search(path.read_text(encoding="utf-8"))] == []


def test_every_command_is_put_in_where_the_list_says() -> None:
    put_in = {name for package in (PACKAGE, CLIENT) for _, name in imports(package / "cli" / "__init__.py")}
    added = {
        path.stem: re.findall(r"^@(?:\w*app\.command|asking)\(", path.read_text(), re.MULTILINE) for path in COMMANDS
    }
    assert sum(map(len, added.values())) > 10
    assert {name for name, commands in added.items() if commands} - put_in == set()
    assert {"cli/__init__.py"} <= named("a command")


def imports(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_calls_are_declared_in_the_modules_that_the_list_means() -> None:
    declaring = {path for path in (PACKAGE / "serve").rglob("*.py") if "    @Call(" in path.read_text()}
    assert len(declaring) > 3
    assert {f"serve/{path.name}" for path in declaring if not path.stem.endswith("_api")} <= named("an HTTP call")
    put_in = {module for module, _ in imports(PACKAGE / "serve" / "app.py")}
    apart = {path.stem for path in declaring} - {"app"}
    assert [name for name in apart if f"turnout.serve.{name}" not in put_in] == []


def test_modules_that_choose_by_the_format_of_a_sink_are_in_the_list() -> None:
    choosing = {
        path.relative_to(PACKAGE).as_posix()
        for room in ("sink", "config")
        for path in (PACKAGE / room).rglob("*.py")
        if re.search(r"sink\.format is", path.read_text(encoding="utf-8"))
    }
    assert choosing
    assert choosing - named("a sink format") == set()
