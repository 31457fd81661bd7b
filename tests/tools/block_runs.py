"""Run code blocks of the documentation against a demo in this process, as a reader would.

Commands that run until Ctrl-C or start servers are excluded; `tutorial_steps.py` runs those of the tutorial.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from typer.testing import CliRunner

from code_blocks import Block, blocks, commands, words
from python_examples import Examples
from turnout.cli import app
from turnout.testing import patience

READING = {"tables", "status", "history", "summary", "sql"}
CHANGING = {"swap", "rollback"}
# Pages whose commands build on each other; on other pages each command is a separate example.
STORIES = ("README.md",)
ELSEWHERE = ("docs/tutorial.md", "docs/how-to/notebook.md")
_PLACE = re.compile(r"(localhost|127\.0\.0\.1):10000")
_BROKER = "localhost:9092"


@dataclass
class Reader:
    """A reader with a running demo, who runs the code blocks of the pages."""

    url: str
    broker: str
    after: Callable[[str], None] = lambda command: None
    """Called after each `turnout` command with its name, and after Python code with `python`."""
    done: list[str] = field(default_factory=list)
    """The commands run so far, so that a test can check that all kinds were run."""
    _pages: dict[str, Examples] = field(default_factory=dict)

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
        """Run a Python block with the names of the earlier blocks of its page, as in a notebook."""
        examples = self._pages.setdefault(block.page, Examples())
        examples.run(str(block), self._here(block.text), patience())
        self.done.append("python")

    def close(self) -> None:
        """Close the clients that code blocks left open."""
        for examples in self._pages.values():
            examples.close()
