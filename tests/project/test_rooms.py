"""Which room of `src/turnout` may import which: imports go one way, so that each room can be read by itself.

The Python client imports nothing of Turnout (`test_release.py`); the server takes from it what both share.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnout
import turnout_client

ROOT = Path(turnout.__file__).parent
CLIENT = Path(turnout_client.__file__).parent

# A room may import itself, what is at the top of the package and needs no room, and the rooms named here.
ROOMS = {
    "plan": "",
    "java": "",
    "config": "plan",
    "kafka": "config plan java",
    "decode": "plan",
    "schemas": "config plan decode",
    "example": "config plan kafka decode schemas",
    "store": "config plan decode",
    "sink": "config plan kafka schemas store",
    "alert": "config plan kafka store sink",
    "spark": "config plan java kafka decode schemas store",
    "swap": "config plan kafka schemas example store sink alert spark",
    "issuer": "config",
    "serve": "config plan store swap issuer",
    "local": "config plan java kafka",
    "preflight": "config plan java kafka issuer schemas sink alert spark",
    "cli": "config plan java kafka example spark local preflight",
}
# At the top: what all may import, and what stands above all rooms.
SHARED = {"errors", "logs"}
ABOVE = {"__init__", "__main__", "service", "testing"}
# What the server and its clients share; the rest of the client is for `connect` and the commands.
SHARED_WITH_CLIENTS = {"errors", "messages", "control_fields", "column_types", "arrow_columns", "iso_times", "retries"}
# Modules that start others, and so stand above their own room.
STARTERS = {"local/demo.py": "service", "cli/run.py": "service"}


# Within a room: the folders that a folder may import, besides itself. What is in no folder stands above them.
INSIDE = {"spark/jvm": "", "spark/read": "spark/jvm", "spark/views": "spark/jvm"}
# Spark's workers get these by value, so they import nothing else of Turnout (`spark.read.bulk.carry_code`).
SENT_TO_WORKERS = ("decode", "spark/read/task.py", "kafka/unpacking.py", "plan/offsets.py", "plan/times.py")
# And these of the client.
SENT_OF_CLIENT = {"arrow_columns", "column_types", "iso_times"}


def imported(path: Path, package: str = "turnout") -> Iterator[tuple[int, str]]:
    """Line and name of each of the package's own modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package:
            inside = node.module.partition(".")[2]
            yield from ((node.lineno, module_of(inside, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name.partition(".")[2]) for a in node.names if a.name.startswith(f"{package}."))


def module_of(inside: str, name: str) -> str:
    """The module that `from turnout.<inside> import <name>` names: `name` may be a module itself."""
    whole = f"{inside}.{name}".strip(".")
    return whole if (ROOT / f"{whole.replace('.', '/')}.py").is_file() else inside or name


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


def test_server_takes_from_the_client_only_what_both_share() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for line, name in imported(path, "turnout_client")
        if path.relative_to(ROOT).parts[0] not in ("cli", "__init__.py") and name not in SHARED_WITH_CLIENTS
    ]
    assert wrong == []


def test_client_needs_nothing_of_its_commands() -> None:
    wrong = [
        f"{path.name}:{line} imports {name}"
        for path in CLIENT.glob("[!_]*.py")
        for line, name in imported(path, "turnout_client")
        if name.split(".")[0] == "cli"
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", INSIDE)
def test_folder_of_a_room_imports_only_the_folders_below_it(folder: str) -> None:
    room = folder.split("/")[0]
    allowed = tuple(f"{one.replace('/', '.')}." for one in (folder, *INSIDE[folder].split()))
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in imported(path)
        if name.split(".")[0] == room and not f"{name}.".startswith(allowed)
    ]
    assert wrong == []


def test_code_of_workers_imports_only_code_of_workers() -> None:
    files = [
        file for one in SENT_TO_WORKERS for file in ([ROOT / one] if one[-3:] == ".py" else ROOT.glob(f"{one}/*.py"))
    ]
    sent = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files
        for line, name in imported(path)
        if name not in sent
    ]
    files += [CLIENT / f"{name}.py" for name in SENT_OF_CLIENT]
    wrong += [
        f"{path}:{line} imports {name}"
        for path in files
        for line, name in imported(path, "turnout_client")
        if name not in SENT_OF_CLIENT
    ]
    assert wrong == []


def test_modules_that_all_may_import_import_no_room() -> None:
    wrong = [
        f"{name}:{line} imports {other}"
        for name in sorted(SHARED)
        for line, other in imported(ROOT / f"{name}.py")
        if other.split(".")[0] not in SHARED
    ]
    assert wrong == []


def test_every_room_is_in_the_list_and_the_top_is_small() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ROOMS)
    assert {path.stem for path in ROOT.glob("*.py")} == SHARED | ABOVE


def test_page_of_the_architecture_has_the_same_list() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| .* \| ([a-z, ]+) \|$", page.partition("## Rooms")[2], re.MULTILINE)
    assert {room: "" if names == "nothing of ours" else names.replace(",", "") for room, names in rows} == ROOMS


def test_rooms_are_listed_from_below() -> None:
    """No circle: a room may import only rooms that stand before it."""
    listed = list(ROOMS)
    assert [room for room in listed if not set(ROOMS[room].split()) <= set(listed[: listed.index(room)])] == []


def test_no_module_holds_two_ideas() -> None:
    """More than 500 lines have been two ideas each time."""
    assert [
        path.name
        for path in (*ROOT.rglob("*.py"), *CLIENT.rglob("*.py"))
        if len(path.read_text(encoding="utf-8").splitlines()) > 500
    ] == []
