"""Runs code blocks of the documentation against a demo, as a reader would, in this process.

Commands that go on until Ctrl-C, or that start servers, are not among them: the tutorial is followed with those.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from typer.testing import CliRunner

from code_blocks import Block, blocks, commands, words
from turnout.cli import app
from turnout.testing import patience, wait_until
from turnout_client import Client

READING = {"tables", "status", "history", "summary", "sql"}
CHANGING = {"swap", "rollback"}
# Their commands change what is shown as a story; elsewhere they are examples, each for itself.
STORIES = ("README.md",)
ELSEWHERE = ("docs/tutorial.md", "docs/how-to/notebook.md")
ENOUGH = 3
_PLACE = re.compile(r"(localhost|127\.0\.0\.1):10000")
_BROKER = "localhost:9092"


class EnoughError(Exception):
    """A loop that follows a table has shown something: the reader presses Ctrl-C."""


@dataclass
class Reader:
    """Somebody who has a demo running and tries what the pages say."""

    url: str
    broker: str
    after: Callable[[str], None] = lambda command: None
    """Called with the name of each command of `turnout`, and with `python`, when it has been run."""
    done: list[str] = field(default_factory=list)
    """What was run, to say that all kinds were."""
    _names: dict[str, dict[str, Any]] = field(default_factory=dict)
    _printed: list[object] = field(default_factory=list)

    def run_all(self) -> None:
        for block in blocks("console", "sh", "python"):
            if block.run and block.page not in ELSEWHERE:
                run = self._run_python if block.language == "python" else self._run_commands
                try:
                    run(block)
                except Exception as error:
                    raise AssertionError(f"{block}: {error}") from error

    def _here(self, text: str) -> str:
        return _PLACE.sub(self.url.removeprefix("http://"), text).replace(_BROKER, self.broker)

    # -- commands

    def _run_commands(self, block: Block) -> None:
        for command, told in commands(block):
            for program in words(command):
                name, *arguments = program
                match name.rpartition("/")[2]:
                    case "turnout" if self._to_run(block, arguments):
                        self._turnout(arguments, told)
                    case "curl":
                        self._curl([self._here(word) for word in arguments])
                    case "python" if arguments[0] == "-c":
                        exec(self._here(arguments[1]), {})
                        self.after("python")

    def _to_run(self, block: Block, arguments: list[str]) -> bool:
        ends = not {"--live", "<", ">"} & set(arguments)
        return ends and (arguments[0] in READING or (arguments[0] in CHANGING and block.page in STORIES))

    def _turnout(self, arguments: list[str], told: str) -> None:
        shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TURNOUT_URL": self.url})
        assert (shown.exit_code != 0) == told.startswith("error:"), (arguments, shown.output)
        assert told in shown.output, (arguments, shown.output)
        self.done.append(arguments[0])
        self.after(arguments[0])

    def _curl(self, arguments: list[str]) -> None:
        shown = subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", str(patience()), *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert shown, arguments
        assert not shown.startswith("{") or "error" not in json.loads(shown), (arguments, shown)
        self.done.append("curl")

    # -- Python

    def _run_python(self, block: Block) -> None:
        """With the names of the blocks before it on the page, as in one notebook."""
        names = self._names.setdefault(block.page, {"print": self._print})
        self._printed.clear()
        code = compile(self._here(block.text), str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            if inspect.iscoroutine(made := eval(code, names)):
                asyncio.run(made)
        except EnoughError:
            pass
        if "print" in block.text:
            wait_until(lambda: bool(self._printed), what=f"something that {block} prints")
        self.done.append("python")

    def _print(self, *shown: object) -> None:
        """Loops never end: after some lines the reader has seen enough. Callbacks are called on other threads."""
        self._printed.append(shown)
        if threading.current_thread() is threading.main_thread() and len(self._printed) >= ENOUGH:
            raise EnoughError

    def close(self) -> None:
        """Close the clients that blocks have left open."""
        for names in self._names.values():
            for value in names.values():
                if isinstance(value, Client):
                    value.close()
