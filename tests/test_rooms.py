"""Which room of `src/turnout` may import which: imports go one way, so that each room can be read by itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnout

ROOT = Path(turnout.__file__).parent

# A room may import itself, what is at the top of the package and needs no room, and the rooms named here.
ROOMS = {
    "plan": "",
    "java": "",
    "config": "plan",
    "kafka": "config plan java",
    "decode": "config plan",
    "example": "config plan kafka decode",
    "store": "config plan decode",
    "sink": "config plan kafka decode store",
    "spark": "config plan java kafka decode store",
    "swap": "config plan kafka decode example store sink spark",
    "serve": "config plan store swap",
    "client": "plan",
    "local": "config plan java kafka",
    "cli": "client config plan java kafka decode example sink spark local",
}
# At the top: what all may import, and what stands above all rooms.
SHARED = {"errors", "messages", "logs", "testing"}
ABOVE = {"__init__", "__main__", "service"}
# Modules that start others, and so stand above their own room.
STARTERS = {"local/demo.py": "service", "cli/run.py": "service"}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each of Turnout's own modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "turnout":
            inside = node.module.partition(".")[2]
            yield from ((node.lineno, inside or alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name.partition(".")[2]) for a in node.names if a.name.startswith("turnout."))


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_the_rooms_below_it(room: str) -> None:
    allowed = {room, *ROOMS[room].split(), *SHARED, "__version__"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, name in imported(path)
        if name.split(".")[0] not in allowed | {STARTERS.get(str(path.relative_to(ROOT)))}
    ]
    assert wrong == []


def test_every_room_is_in_the_list_and_the_top_is_small() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ROOMS)
    assert {path.stem for path in ROOT.glob("*.py")} == SHARED | ABOVE


def test_rooms_are_listed_from_below() -> None:
    """No circle: a room may import only rooms that stand before it."""
    listed = list(ROOMS)
    assert [room for room in listed if not set(ROOMS[room].split()) <= set(listed[: listed.index(room)])] == []


def test_no_module_holds_two_ideas() -> None:
    """More than 400 lines have been two ideas each time."""
    assert [path.name for path in ROOT.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []
