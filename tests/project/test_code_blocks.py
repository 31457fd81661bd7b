"""The code blocks of the documentation: each is run by a test, or marked with the reason why none can run it.

Here is what needs no server. `live/test_demo.py` runs commands, calls and Python against a demo,
`live/test_tutorial.py` follows the tutorial, and `browser/test_web.py` compiles TypeScript and templates.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel, ValidationError

import code_blocks
from code_blocks import NOT_RUN, ROOT, SECRET, Block, blocks, commands, configured, words
from turnout.cli import app
from turnout.plan.control_parsing import parse_message
from turnout.serve import schemas
from turnout.serve.kafka_api import Example
from turnout.store.query.row_records import Explanation
from turnout_client import messages

RUN = {"yaml", "json", "python", "console", "sh", "ts", "tsx", "html"}
"""The languages whose blocks tests run."""

SHELL = {"cd", "cp", "echo", "export", "mkdir", ".", "python"}
NODE = {"npm ci", "npm start", "npm install"}
SOURCES = ("users", "accounts", "cards")
VIEWS = ("final_ui", "everything_ui")


def control_message(text: str) -> None:
    assert not parse_message(text, SOURCES, VIEWS).warnings


def line_of_the_log(text: str) -> None:
    line = json.loads(text)
    assert list(line)[:4] == ["ts", "level", "msg", "logger"]
    assert set(line) <= {"ts", "level", "msg", "logger", "generation", "requestId", "error"}


def body_of_a_webhook(text: str) -> None:
    body = json.loads(text)
    assert list(body) == ["id", "alert", "table", "where", "events"]
    for event in body["events"]:
        assert sorted(event) == ["alert", "event", "id", "key", "row", "rowId", "ts"]


def model(kind: type[BaseModel]) -> Callable[[str], object]:
    return lambda text: kind.model_validate_json(text)


SHAPES: Mapping[str, Callable[[str], object]] = {
    "message of a client": messages.client_message.validate_json,
    "message of the server": messages.server_message.validate_json,
    "error": model(schemas.Error),
    "rows": model(schemas.RowsAnswer),
    "groups": model(schemas.Groups),
    "difference": model(messages.TableDifference),
    "rows of SQL": model(schemas.SqlAnswer),
    "outcome": model(schemas.Decided),
    "outcome of a file": model(schemas.Applied),
    "example of a topic": model(Example),
    "reasons of rows": model(Explanation),
    "control message": control_message,
    "line of the log": line_of_the_log,
    "body of a webhook": body_of_a_webhook,
}


def run(*languages: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for block in blocks(*languages) if block.run]


def test_every_block_is_run_or_marked_with_a_reason() -> None:
    assert len(blocks()) > 100
    assert [str(block) for block in blocks() if block.run and block.language not in RUN] == []
    assert [str(block) for block in blocks() if not block.run and len(block.mark) < len(NOT_RUN) + 5] == []


def test_every_fence_is_a_block() -> None:
    """One that is not closed, or stands where it is not looked for, would be run by nobody."""
    for page in code_blocks._pages():
        text = page.read_text(encoding="utf-8")
        found = sum(block.page == str(page.relative_to(ROOT)) for block in blocks())
        assert len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * found, page


@pytest.mark.parametrize("block", run("yaml"))
def test_yaml_is_a_configuration(block: Block, tmp_path: Path) -> None:
    """What a file leaves out has its default, so a part of one is a file, too."""
    assert SECRET not in repr(configured(block, tmp_path))


@pytest.mark.parametrize("block", run("json"))
def test_json_is_a_message_or_an_answer_of_ours(block: Block) -> None:
    """Several objects stand below each other."""
    for text in re.split(r"\n(?=\{)", block.text.strip()):
        fitting = []
        for name, check in SHAPES.items():
            try:
                check(text)
            except (ValidationError, AssertionError, ValueError, KeyError):
                continue
            except Exception as error:  # a message that is rejected
                assert type(error).__name__ == "ControlRejected", text
                continue
            fitting.append(name)
        assert fitting, text


@pytest.mark.parametrize("block", run("python"))
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", run("console", "sh"))
def test_commands_are_there_and_take_their_options(block: Block) -> None:
    for command, _ in commands(block):
        for program in words(command):
            known(program)


def known(program: list[str]) -> None:
    name, *arguments = program
    name = name.rpartition("/")[2]
    if name == "turnout":
        chosen, *rest = arguments[: next((place for place, word in enumerate(arguments) if word in "<>"), None)]
        commands_of_ours: Any = typer.main.get_command(app)
        commands_of_ours.commands[chosen].make_context(chosen, rest).close()
    elif name == "make":
        [target] = [word for word in arguments if "=" not in word]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
    elif name == "curl":
        assert arguments[-1].startswith("http://127.0.0.1:10000/api/"), program
    elif name == "npm":
        assert f"npm {arguments[0]}" in NODE, program
    else:
        assert name in SHELL, program
