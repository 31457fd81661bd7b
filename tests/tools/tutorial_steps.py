"""A reader of the tutorial, who saves its files, runs its commands in order, and compares their output with the page.

A comment before a block changes how it is run: `file: NAME` saves it, `stays, until: TEXT` starts a program in the
background and waits for a text, `fails` expects an exit code other than 0. A line `...` stands for any lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from child_processes import ending_with_us
from turnout.cli import app
from turnout.local.broker import free_port
from turnout.testing import patience, wait_until

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
# Skipped commands: the test has its own folder and environment.
ELSEWHERE = (". .venv/bin/activate", "mkdir -p tutorial")
SECTION = re.compile(r"^## (?:[0-9]+\. )?", re.MULTILINE)
_PROGRESS = re.compile(r"^(?:swap|rollback|apply|generation \d+): .* s(?: so far| left)?\n", re.MULTILINE)
"""The progress lines of a command that takes longer than a second."""


@dataclass
class Reader:
    """A reader who follows the page in a folder."""

    folder: Path
    environment: dict[str, str]
    programs: ExitStack
    shell: bool

    def follow(self, note: str, text: str) -> None:
        kind, _, rest = note.partition(": ")
        if kind == "file":
            (self.folder / rest).write_text(text, encoding="utf-8")
        elif kind == "stays, until":
            self.programs.enter_context(self.staying(text.removeprefix("$ ").strip(" &\n"), rest))
        else:
            for command, told in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                if not command.startswith(ELSEWHERE):
                    self.run(command, told, fails=note == "fails")

    def run(self, command: str, told: str, *, fails: bool) -> None:
        by_shell = self.shell or not command.startswith("turnout ")
        code, shown = self._by_a_shell(command) if by_shell else self._in_this_process(command)
        assert (code != 0) == fails, f"{command}: {shown}"
        shown = _PROGRESS.sub("", shown)
        wanted = ".*".join(map(re.escape, told.split("...\n")))
        assert re.fullmatch(wanted, shown, re.DOTALL), f"{command}: {shown}"

    def _by_a_shell(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(),
        )
        return done.returncode, done.stdout

    def _in_this_process(self, command: str) -> tuple[int, str]:
        """Run a command in this process, because another process takes half a second beside broker and Spark."""
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, shlex.split(command)[1:], env=self.environment)
        return done.exit_code, done.output

    @contextmanager
    def staying(self, command: str, text: str) -> Iterator[None]:
        """Run a program on a terminal during a `with` block, because some programs print nothing elsewhere."""
        ours, theirs = os.openpty()
        program = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            **ending_with_us(),
        )
        os.close(theirs)
        shown = bytearray()
        reading = threading.Thread(target=_read_all, args=(ours, shown))
        reading.start()
        try:
            wait_until(lambda: text.encode() in shown or program.poll() is not None, what=f"{text!r} of {command}")
            assert program.poll() is None, shown.decode()
            yield
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(patience())
            reading.join(patience())
            os.close(ours)


def _read_all(terminal: int, into: bytearray) -> None:
    # Reading a terminal that has no writer any more is an error.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            into += part


def follow(folder: Path, after: Callable[[str, str], None] = lambda title, url: None, *, shell: bool = True) -> int:
    """Follow the whole page in a folder; `after` receives the title of each finished section and the server's address.

    Without `shell`, `turnout` commands that end are run in this process. Return the number of blocks.
    """
    broker, page = str(free_port()), str(free_port())
    text = PAGE.read_text(encoding="utf-8").replace("localhost:9092", f"localhost:{broker}")
    text = text.replace("localhost:10000", f"localhost:{page}").replace(
        "turnout broker", f"turnout broker --port {broker}"
    )
    url = f"http://127.0.0.1:{page}"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # The reader's default.
        "TURNOUT_KAFKA__BOOTSTRAP_SERVERS": f"localhost:{broker}",
        "TURNOUT_SERVER__PORT": page,
        "TURNOUT_URL": url,
        "COLUMNS": "120",
        # A limit for busy machines.
        "TURNOUT_SERVER__QUERY_TIMEOUT_SECONDS": f"{patience():g}",
    }
    followed = 0
    with ExitStack() as programs:
        reader = Reader(folder, environment, programs, shell)
        for section in SECTION.split(text):
            for block in BLOCK.finditer(section):
                reader.follow(block["note"] or "", block["text"])
                followed += 1
            after(section.partition("\n")[0], url)
    return followed
