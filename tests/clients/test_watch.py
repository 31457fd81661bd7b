"""`turnout watch`: what it shows, and how it ends; against a scripted server and a real one."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from child_processes import ending_with_us
from http_server import application, serving, small_store
from scripted_server import COLUMNS, Scripted, listening, refused
from turnout.cli import app
from turnout.errors import TurnoutError
from turnout.testing import patience, wait_until
from turnout_client import State, Window
from turnout_client.cli.watch import Shown, picture

ENVIRONMENT = {"TURNOUT_URL": None, "TURNOUT_TOKEN": None}


def turnout(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=ENVIRONMENT | {"COLUMNS": "200"})


def window(generation: int, **rows: tuple[str, int]) -> Window:
    found = tuple({"userId": user, "age": age} for user, age in rows.values())
    return Window("users_ui", generation, 1, len(rows), tuple(COLUMNS), found, tuple(rows), 0, False)


def painted(picture: Any) -> str:
    console = Console(width=120, force_terminal=True, color_system="standard", _environ={})
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


# -- the picture


def test_picture_marks_changed_cells_and_new_rows() -> None:
    shown = painted(picture(window(1, a=("u1", 37), b=("u2", 20)), window(1, a=("u1", 36))))
    assert "\x1b[1;30;43m 37" in shown
    assert "\x1b[32mu2" in shown


def test_picture_knows_rows_by_their_ids() -> None:
    moved = painted(picture(window(1, b=("u2", 2), a=("u1", 1)), window(1, a=("u1", 1), b=("u2", 2))))
    assert "43m" not in moved and "32mu" not in moved
    replaced = painted(picture(window(1, c=("u1", 1)), window(1, a=("u1", 1))))
    assert "\x1b[32mu1" in replaced


def test_picture_of_a_new_generation_marks_the_swap_only() -> None:
    shown = painted(picture(window(2, a=("u1", 37)), window(1, a=("u1", 36))))
    assert "generation 2 (was 1)" in shown
    assert "43m" not in shown


def test_picture_has_generation_version_rows_and_state() -> None:
    shown = painted(picture(window(3, a=("u1", 37)), None, "live"))
    assert "users_ui   generation 3   version 1   1 rows   " in shown
    assert "\x1b[1;32mlive" in shown


def test_picture_obeys_nothing_that_the_server_says() -> None:
    one = window(1, a=("[red]\x1b[31mx", 1))
    shown = painted(picture(one, None)) + painted(Shown("http://x", one, None, State.AWAY, "\x1b[2Jgone").picture())
    assert "[red]·[31mx" in shown and "\x1b[2J" not in shown


# -- the command


@contextmanager
def watching(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own."""
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "turnout", "watch", *arguments], stdout=file)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_watch_as_json_prints_a_line_for_each_window_and_ends_well_with_ctrl_c(tmp_path: Path) -> None:
    server, lines = Scripted(), tmp_path / "lines"
    with listening(server) as url, watching(lines, "users_ui", "--url", url, "--json", "--sort=-age") as process:
        asked: Any = server.asked()
        assert (asked.limit, asked.sort) == (100, "-age")
        server.rows(asked, {"r1": ["u1", 1]})
        wait_until(lambda: lines.read_text().count("\n") == 1, what="the first window")
        server.hang_up()
        server.current(server.asked())  # nothing changed meanwhile: no line
        server.hang_up()
        server.rows(server.asked(), {"r1": ["u1", 2]}, generation=2)
        wait_until(lambda: lines.read_text().count("\n") == 2, what="the window of the new generation")
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == 0
    printed = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(one["generation"], one["rows"]) for one in printed] == [
        (1, [{"userId": "u1", "age": 1}]),
        (2, [{"userId": "u1", "age": 2}]),
    ]
    assert list(printed[0]) == ["table", "generation", "version", "total", "columns", "rows"]


def test_watch_into_a_file_prints_each_window_below_the_last(tmp_path: Path) -> None:
    server, lines = Scripted(), tmp_path / "lines"
    with listening(server) as url, watching(lines, "users_ui", "--url", url, "--limit", "3") as process:
        asked: Any = server.asked()
        server.rows(asked, {"r1": ["u1", 36]})
        wait_until(lambda: "36" in lines.read_text(), what="the first window")
        server.rows(asked, {"r1": ["u1", 37]})
        wait_until(lambda: "37" in lines.read_text(), what="the second window")
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == 0
    printed = lines.read_text()
    assert printed.count("users_ui   generation 1") == 2 and "\x1b" not in printed


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_watch_ends_with_the_servers_error(option: list[str]) -> None:
    server = Scripted()
    error = TurnoutError(code="bad_where", message="where: column 'age': 'old' is not int64", hint="such as 42")

    def answer() -> None:
        server.error(server.asked(), error)

    with listening(server) as url:
        thread = threading.Thread(target=answer)
        thread.start()
        result = turnout("watch", "users_ui", "--where", "age = old", "--url", url, *option)
        thread.join()
    assert result.exit_code == 1
    if option:
        assert json.loads(result.stderr) == error.as_json()
    else:
        assert result.stderr == "error: where: column 'age': 'old' is not int64\nhint: such as 42\n"


def test_watch_without_a_server_says_so_when_it_is_piped() -> None:
    command = [sys.executable, "-m", "turnout", "watch", "users_ui", "--url", "http://127.0.0.1:1"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **ending_with_us()}
    with subprocess.Popen(command, **piped) as watch:
        assert watch.stderr is not None
        line = watch.stderr.readline()
        watch.terminate()
    assert line.startswith("waiting for the server at http://127.0.0.1:1 ... ")


def test_watch_without_a_token_that_is_wanted_ends_with_an_error() -> None:
    server = Scripted()
    server.refusal = refused(401, "unauthorized", "this server requires a token")
    with listening(server) as url:
        result = turnout("watch", "users_ui", "--url", url)
    assert (result.exit_code, result.stderr) == (
        1,
        "error: this server requires a token\nhint: give the token with TURNOUT_TOKEN or --token\n",
    )


class Terminal:
    """A terminal of a given height, and what was written to it."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, height: int) -> None:
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, 100, 0, 0))

    def watch(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The command in this terminal."""
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        command = [sys.executable, "-m", "turnout", "watch", *arguments]
        environment["TERM"] = "xterm"
        return subprocess.Popen(command, env=environment, stdin=self.theirs, stdout=self.theirs)

    def _read(self) -> None:
        try:
            while data := os.read(self.ours, 4096):
                self.text += data.decode(errors="replace")
        except OSError:
            pass

    def close(self) -> None:
        os.close(self.theirs)
        self._reader.join(patience())
        os.close(self.ours)


def test_watch_in_a_terminal_follows_its_size_and_the_connection() -> None:
    server, terminal = Scripted(), Terminal()
    terminal.resize(20)
    with listening(server) as url:
        process = terminal.watch("users_ui", "--url", url)
        try:
            first: Any = server.asked()
            server.rows(first, {"r1": ["u1", 36]})
            wait_until(lambda: "generation 1" in terminal.text and "live" in terminal.text)
            terminal.resize(30)
            moved: Any = server.asked()
            assert moved.limit == first.limit + 10
            server.rows(moved, {"r1": ["u1", 37]}, version=2)
            wait_until(lambda: "\x1b[1;30;43m 37" in terminal.text, what="the changed cell")
            server.refusal = refused(503, "stopping", "the server starts")
            server.hang_up()
            wait_until(lambda: "away" in terminal.text and "the server starts" in terminal.text)
            server.refusal = None
            server.rows(server.asked(), {"r9": ["u9", 1]}, generation=2)
            wait_until(lambda: "generation 2 (was 1)" in terminal.text)
            process.send_signal(signal.SIGINT)
            assert process.wait(patience()) == 0
        finally:
            process.kill()
            process.wait()
            terminal.close()


def test_watch_ends_well_with_ctrl_c_while_the_server_is_away() -> None:
    terminal = Terminal()
    terminal.resize(20)
    process = terminal.watch("users_ui", "--url", "http://127.0.0.1:9")
    try:
        wait_until(lambda: "waiting for the server at http://127.0.0.1:9 ... no answer" in terminal.text)
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == 0
    finally:
        process.kill()
        process.wait()
        terminal.close()


# -- against a real server


def test_watch_of_a_real_server(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    with small_store(tmp_path / "store") as database, serving(application(database)) as url:
        unknown = turnout("watch", "nothing", "--url", url)
        assert (unknown.exit_code, "users_ui" in unknown.stderr) == (1, True)
        wrong = turnout("watch", "users_ui", "--where", "age = old", "--url", url)
        assert (wrong.exit_code, "'old' is not int64" in wrong.stderr) == (1, True)
        with watching(lines, "users_ui", "--url", url, "--json", "--where", "age > 40", "--columns", "name") as process:
            wait_until(lambda: lines.read_text().endswith("\n"), what="the first window")
            process.send_signal(signal.SIGINT)
            assert process.wait(patience()) == 0
    assert [json.loads(line)["rows"] for line in lines.read_text().splitlines()] == [[{"name": "[b]Cy"}]]
