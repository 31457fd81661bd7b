"""The command line: help, files, faults, and what it shows of a real server; exit codes everywhere."""

from __future__ import annotations

import io
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner, Result

from access_site import site
from child_processes import ending_with_us
from fake_orchestrator import STATUS, ApplyingOrchestrator
from filled_store import GOLD_1, USER_1, USER_2, filled
from http_server import application, serving, small_store
from small_disk import fill, small_disk
from turnout import config
from turnout.cli import app
from turnout.cli.run import tell_until_ready
from turnout.config import sent
from turnout.errors import TurnoutError
from turnout.java.jars import resolve
from turnout.local import spinner
from turnout.local.demo import banner, settings
from turnout.preflight.findings import check_records
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app
from turnout.store.outgoing import SinkPosition
from turnout.testing import patience, wait_until
from turnout_client.cli.output import cell, printable, table_of
from turnout_client.cli.questions import bar
from turnout_client.cli.tables import interfaces

COMMANDS = [
    "demo",
    "run",
    "init",
    "check",
    "broker",
    "tables",
    "status",
    "history",
    "rows",
    "watch",
    "summary",
    "sql",
    "swap",
    "rollback",
    "cancel",
    "publish",
    "discard",
    "apply",
    "types",
    "mcp",
    "topic",
]
NOBODY = "http://127.0.0.1:1"


def turnout(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TURNOUT_URL": None, "TURNOUT_TOKEN": None})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    with small_store(folder) as database, serving(application(database)) as address:
        yield address


class Control:
    """A server that takes control messages and answers what it is told to."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.answer: tuple[int, dict[str, Any]] = (200, {"outcome": "applied", "generation": 2})
        self.shown: dict[str, Any] = {"generation": 1, "state": "live", "progress": None}
        self.history: list[dict[str, Any]] = []
        self.building = threading.Event()
        """While it is cleared, a swap has no outcome; a cancel sets it."""
        self.building.set()

    async def take(self, request: Request) -> Response:
        self.messages.append((request.url.path, json.loads(await request.body()), dict(request.query_params)))
        if request.url.path == "/api/cancel" and not self.building.is_set():
            self.answer = (200, {"outcome": "cancelled", "generation": 1})
            self.building.set()
        while not self.building.is_set():
            await anyio.sleep(0.01)
        return JSONResponse(self.answer[1], self.answer[0])

    def app(self) -> Starlette:
        paths = (
            "/api/control",
            "/api/rollback",
            "/api/cancel",
            "/api/publish",
            "/api/discard",
            "/api/config",
            "/api/alerts/large/test",
        )
        routes = [Route(path, self.take, methods=["POST", "PUT"]) for path in paths]
        return Starlette(routes=[*routes, Route("/api/status", self.status), Route("/api/swaps", self.swaps)])

    async def status(self, _: Request) -> Response:
        return JSONResponse(self.shown)

    async def swaps(self, _: Request) -> Response:
        return JSONResponse({"rows": self.history})


@pytest.fixture
def control() -> Iterator[tuple[Control, str]]:
    server = Control()
    with serving(server.app()) as address:
        yield server, address


def test_help_names_every_command_in_order() -> None:
    shown = turnout("--help").output
    places = [shown.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help_has_an_example(name: str) -> None:
    result = turnout(name, "--help")
    assert result.exit_code == 0
    assert f"Example:  turnout {name}" in result.output


def test_help_loads_nothing_heavy() -> None:
    heavy = {"pyspark", "duckdb", "pyarrow", "confluent_kafka", "starlette", "httpx", "pydantic"}
    code = f"import sys; from turnout.cli import app; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_module_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "turnout", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("turnout 0.")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["watch"], ["swap"], ["swap", "--topic", "users"], ["swap", "--join", "v="], ["run", "--port", "x"]],
)
def test_wrong_usage_exits_with_2(arguments: Sequence[str]) -> None:
    assert turnout(*arguments).exit_code == 2


def test_init_writes_a_file_that_is_valid(tmp_path: Path) -> None:
    result = turnout("init", str(tmp_path))
    assert result.exit_code == 0
    assert "turnout run -c" in result.output
    assert config.load(tmp_path / "turnout.yaml", {}).server.port == 10000


def test_init_replaces_nothing_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    result = turnout("init", str(file))
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert "hint: " in result.stderr and "--force" in result.stderr
    assert file.read_text() == "precious"
    assert json.loads(turnout("init", str(file), "--force", "--json").stdout) == {"path": str(file)}
    assert file.read_text() == config.default_text()


def test_init_into_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    result = turnout("init", str(tmp_path / "no" / "turnout.yaml"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_check_lists_every_fault_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text("server: {port: -1}\nstrat: latest\n")
    result = turnout("check", "-c", str(file))
    assert result.exit_code == 1
    assert "server.port" in result.output and "strat" in result.output and "did you mean 'start'?" in result.output
    findings = json.loads(turnout("check", "-c", str(file), "--json").stdout)
    assert findings["ok"] is False
    assert [one["subject"] for one in findings["findings"] if one["level"] == "fault"] == ["configuration"] * 2


def test_run_tells_all_faults_of_its_file(tmp_path: Path) -> None:
    result = turnout("run", "-c", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ") and "turnout init" in result.stderr


def test_sample_that_fits_is_well() -> None:
    users = config.Settings().sources["users"]
    values = [b'{"userId": "u1", "name": "Ada", "email": "a@x", "age": 36}'] * 3
    assert check_records("source users", users, values).level == "ok"


@pytest.mark.parametrize(
    ("value", "level", "text"),
    [
        (b'{"userId": "u1", "name": "Ada", "email": "a", "age": "x"}', "warning", "age is not int64 (1x)"),
        (
            b'{"userId": "u1", "name": "Ada", "email": "a"}',
            "warning",
            "1 of the newest 1 records fit; column age is in none of them",
        ),
        (b'{"user_id": "u1"}', "fault", "no record has the key userId (has: user_id)"),
        (b"[1]", "fault", "not a JSON object (1x)"),
        (b"\xff\x00", "fault", "not JSON (1x)"),
        (None, "fault", "null value (1x)"),
    ],
)
def test_sample_that_does_not_fit_is_told(value: bytes | None, level: str, text: str) -> None:
    finding = check_records("source users", config.Settings().sources["users"], [value])
    assert (finding.level, text in finding.text) == (level, True), finding
    assert finding.hint


def test_tables_are_listed(url: str) -> None:
    result = turnout("tables", "--url", url)
    assert result.exit_code == 0
    assert "users_ui" in result.output and "age int64" in result.output
    listed = json.loads(turnout("tables", "--url", url, "--json").stdout)["tables"]
    assert {table["name"] for table in listed} >= {"users_ui", "swaps", "control_raw"}


def test_status_is_shown(url: str) -> None:
    shown = turnout("status", "--url", url).output
    assert "usersTopic" in shown and "live" in shown
    assert json.loads(turnout("status", "--url", url, "--json").stdout).items() >= STATUS.items()


def test_history_is_shown(url: str) -> None:
    assert "applied" in turnout("history", "--url", url).output
    assert len(json.loads(turnout("history", "--url", url, "--json", "--limit", "1").stdout)["swaps"]) == 1


def test_rows_are_printed_in_all_formats(url: str) -> None:
    given = ("--where", "age > 0", "--sort=-age", "--columns", "name,age", "--url", url)
    shown = turnout("rows", "users_ui", *given)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.index("[b]Cy") < shown.stdout.index("Ada") and "2 rows" in shown.stdout
    assert "Ada" not in turnout("rows", "users_ui", *given, "--limit", "1").stdout
    lines = turnout("rows", "users_ui", *given, "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"name": "[b]Cy", "age": 52}, {"name": "Ada", "age": 36}]
    assert turnout("rows", "users_ui", *given, "--format", "csv").stdout.splitlines() == [
        '"name","age"',
        '"[b]Cy",52',
        '"Ada",36',
    ]
    with pa.ipc.open_stream(turnout("rows", "users_ui", *given, "--format", "arrow").stdout_bytes) as stream:
        assert stream.read_all().to_pydict() == {"name": ["[b]Cy", "Ada"], "age": [52, 36]}
    file = turnout("rows", "users_ui", *given, "--format", "parquet").stdout_bytes
    assert pq.read_table(pa.BufferReader(file)).num_rows == 2
    empty = turnout("rows", "users_ui", "--where", "age > 99", "--url", url)
    assert "userId" in empty.stdout and "0 rows" in empty.stdout
    wrong = turnout("rows", "users_ui", "--where", "ages > 3", "--url", url, "--format", "csv")
    assert (wrong.exit_code, wrong.stdout, wrong.stderr.startswith("error: ")) == (1, "", True)


def test_rows_as_json_are_those_of_the_server(url: str) -> None:
    lines = turnout("rows", "swaps", "--url", url, "--json").stdout.splitlines()
    rows = httpx.get(f"{url}/api/tables/swaps/rows").json()["rows"]
    assert [json.loads(line) for line in lines] == rows


def test_many_rows_pass_through_in_little_memory() -> None:
    """Half a gigabyte of rows, by a server that makes them as they are read."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    rows = 500  # long ones: to write a row costs more than to write its bytes
    batch = pa.record_batch([list(range(rows)), ["x" * 10_000] * rows], schema)
    batches = 100

    async def send(_: Request) -> Response:
        def pieces() -> Iterator[bytes]:
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, schema) as writer:
                for _ in range(batches):
                    writer.write_batch(batch)
                    yield sink.getvalue()
                    sink.seek(0)
                    sink.truncate()
            yield sink.getvalue()

        return StreamingResponse(pieces())

    with serving(Starlette(routes=[Route("/api/tables/{name}/rows", send)])) as address:
        # Not ru_maxrss: it begins with the memory of the process that started this one.
        code = (
            "import re, sys; from turnout.cli import app; app(sys.argv[1:], standalone_mode=False); "
            r"print(re.search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
        )
        command = [sys.executable, "-c", code, "rows", "t", "--url", address, "--format", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **ending_with_us()) as done:
            assert done.stdout is not None and done.stderr is not None
            count = sum(1 for _ in done.stdout)
            megabytes = int(done.stderr.read()) / 1024
    assert count == batches * rows
    assert megabytes < 400


def test_types_are_interfaces_of_the_tables(url: str) -> None:
    shown = turnout("types", "--url", url)
    assert shown.exit_code == 0, shown.output
    assert "export interface UsersUi {\n  userId: string | null;\n" in shown.stdout
    assert "  age: number | null; // int64\n" in shown.stdout
    assert "  users_ui: UsersUi;\n" in shown.stdout
    assert turnout("types", "--url", NOBODY).exit_code == 1


@given(st.dictionaries(st.text(min_size=1), st.dictionaries(st.text(), st.sampled_from(["int64", "json"]))))
def test_types_of_odd_names_have_a_line_for_each_name(tables: dict[str, dict[str, str]]) -> None:
    listed = [
        {"name": name, "columns": [{"name": column, "type": kind} for column, kind in columns.items()]}
        for name, columns in tables.items()
    ]
    text = interfaces(listed)
    declared = re.findall(r"^export interface ([A-Za-z][A-Za-z0-9_]*) \{\n((?:  .*;.*\n)*)\}$", text, re.MULTILINE)
    assert len({name for name, _ in declared}) == len(tables) + 1 == text.count("\n}")
    lines = [re.findall(r"^  (.+): (.+?);(?: // int64)?$", body, re.MULTILINE) for _, body in declared]
    named = [[(json.loads(key) if key[0] == '"' else key, kind) for key, kind in of] for of in lines]
    kinds = {"int64": "number | null", "json": "unknown"}
    assert named[:-1] == [[(column, kinds[kind]) for column, kind in of.items()] for of in tables.values()]
    assert named[-1] == list(zip(tables, [name for name, _ in declared], strict=False))


def completed(url: str, shell: str, words: str) -> list[str]:
    """What a shell is given for a line that ends in an unfinished word."""
    variables = {"_TURNOUT_COMPLETE": f"complete_{shell}", "TURNOUT_URL": url}
    if shell == "bash":
        variables |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    else:
        variables |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "turnout"], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return re.findall(r"[A-Za-z_0-9=]+", done.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_tables(url: str, shell: str) -> None:
    assert "users_ui" in completed(url, shell, "turnout watch us")
    assert "swaps" not in completed(url, shell, "turnout watch us")


def test_shells_complete_topics_sources_and_joins(url: str) -> None:
    assert completed(url, "bash", "turnout swap --users u") == ["users"]
    assert completed(url, "bash", "turnout swap --topic users=u") == ["users=users"]
    assert completed(url, "bash", "turnout swap --join in") == ["inner"]


def test_completion_without_a_server_is_silent() -> None:
    assert completed(NOBODY, "bash", "turnout watch us") == []


def test_bash_completes_tables_at_tab(url: str, tmp_path: Path) -> None:
    """A real bash with the script that `turnout --show-completion` prints."""
    script = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m turnout --show-completion bash"],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    folder = str(Path(sys.executable).parent)
    lines = f"{script}\nCOMP_WORDS=(turnout watch us)\nCOMP_CWORD=2\n_turnout_completion turnout us watch\n"
    lines += "echo ${COMPREPLY[@]}"
    environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "TURNOUT_URL": url}
    done = subprocess.run(["bash", "-c", lines], env=environ, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("users_ui", "")


def test_live_summary_into_a_file_is_printed_before_the_command_ends(url: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    command = [sys.executable, "-m", "turnout", "summary", "users_ui", "--live", "--url", url]
    with lines.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, **ending_with_us())
    try:
        wait_until(lambda: "users_ui   generation 1" in lines.read_text(), what="the first summary")
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == 0
    finally:
        process.kill()
        process.wait()
    assert "\x1b" not in lines.read_text()


def test_summary_is_shown_with_bars(url: str) -> None:
    shown = turnout("summary", "users_ui", "--by", "name", "--values", "max(age)", "--url", url).output
    assert "Ada" in shown and "█" in shown
    found = json.loads(turnout("summary", "users_ui", "--where", "age > 40", "--url", url, "--json").stdout)
    assert (found["groups"], found["total"]) == ([{"count": 1}], 1)
    wrong = turnout("summary", "users_ui", "--values", "sum(name)", "--url", url)
    assert (wrong.exit_code, "needs a number" in wrong.stderr) == (1, True)


def test_difference_shows_what_a_candidate_would_change(tmp_path: Path) -> None:
    with filled(tmp_path) as filling, serving(application(filling.database)) as url:
        none = turnout("difference", "final_ui", "--url", url)
        assert (none.exit_code, "there is no candidate" in none.stderr) == (1, True)
        filling.generation()
        filling.batch(users=[{**USER_1, "age": 37}, {**USER_2, "userId": "u3", "name": "\x1b[1mCy"}], accounts=[GOLD_1])
        filling.database.sinks.put("final_out", SinkPosition("final_ui", 100))
        shown = turnout("difference", "final_ui", "--to", "2", "--limit", "2", "--url", url).output.splitlines()
        arguments = ["difference", "final_ui", "--to", "2", "--url", url]
        whole = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).stdout
        asked = ("--from", "2", "--to", "1", "--where", "userId = u3", "--url", url, "--json")
        found = json.loads(turnout("difference", "final_ui", *asked).stdout)
        removed = turnout(*arguments, "--change", "removed").output.splitlines()
    assert [line[0] for line in removed[4:] if line[0] in "+-~"] == ["-"] and "more" not in removed[-1]
    assert shown[:4] == [
        "final_ui   generation 1 -> 2",
        "1 added, 1 removed, 1 changed, 0 same",
        "changed columns: age (1)",
        "records that sinks would write: final_out 4",
    ]
    assert shown[4].startswith("~ userId=u1  name=Ada") and "age=36 -> 37" in " ".join(shown)
    assert shown[-1] == "... 1 more"
    assert max(map(len, whole.splitlines())) <= 80
    assert "\n- userId=u2" in whole and "\n+ userId=u3" in whole and "\x1b[1mCy" not in whole
    assert (found["counts"]["removed"], found["rows"][0]["from"]["userId"]) == (1, "u3")


@pytest.mark.parametrize(("size", "shown"), [(0, ""), (-5, ""), (100, "█" * 40), (50, "█" * 20), (1, "▍")])
def test_bar_is_as_long_as_its_part_of_the_largest(size: float, shown: str) -> None:
    assert bar(size, 100) == shown


def test_sql_is_printed_in_all_formats(url: str) -> None:
    text = "select name, age from users_ui order by name limit 2"
    assert "Ben" in turnout("sql", text, "--url", url).output
    assert json.loads(turnout("sql", text, "--url", url, "--json").stdout)["rows"][0] == {"name": "Ada", "age": 36}
    assert turnout("sql", text, "--url", url, "--format", "csv").stdout.splitlines()[0] == '"name","age"'
    refused = turnout("sql", "drop table x", "--url", url)
    assert (refused.exit_code, refused.stderr.startswith("error: sql: ")) == (1, True)


@pytest.mark.parametrize(
    "command",
    [
        *(["tables"], ["status"], ["history"], ["swap", "--users", "u"], ["rollback"], ["cancel"]),
        *(["summary", "users_ui"], ["sql", "select 1"]),
    ],
)
def test_server_that_is_away_is_one_error_and_one_hint(command: list[str]) -> None:
    result = turnout(*command, "--url", NOBODY)
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]
    as_json = turnout(*command, "--url", NOBODY, "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stderr)["error"]["code"] == "server_unreachable"
    assert as_json.stdout == ""


def test_swap_sends_what_was_given(control: tuple[Control, str]) -> None:
    server, address = control
    given = "--users users2 --topic extra=e2 --join inner --join v=full --start 2026-01-01 --expected-generation 3"
    result = turnout("swap", *given.split(), "--request-id", "r", "--dry-run", "--no-wait", "--url", address)
    assert result.exit_code == 0, result.output
    message = {
        "usersTopic": "users2",
        "extraTopic": "e2",
        "joinType": "inner",
        "vJoinType": "full",
        "start": {"timestamp": "2026-01-01"},
        "dryRun": True,
        "requestId": "r",
        "expectedGeneration": 3,
    }
    assert server.messages == [("/api/control", message, {"wait": "false"})]


BUILD = {
    "generation": 2,
    "state": "catching_up",
    "plan": "users=users2",
    "records": 400_000,
    "lag": 5,
    "percent": 50.0,
    "secondsLeft": 12.4,
}


def program(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A real `turnout`, which Ctrl-C reaches as a signal."""
    return subprocess.Popen([sys.executable, "-m", "turnout", *arguments], text=True, **ending_with_us(), **options)


def test_swap_tells_its_progress_on_standard_error(control: tuple[Control, str]) -> None:
    server, address = control
    server.shown["progress"] = BUILD
    server.building.clear()
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with program("swap", "--users", "users2", "--url", address, **piped) as swap:
        assert swap.stderr is not None and swap.stdout is not None
        line = swap.stderr.readline()
        assert line == "generation 2: catching up, 400,000 records, 50 %, 12 s left\n"
        server.building.set()
        assert swap.stdout.read().startswith("applied")
    assert swap.returncode == 0


def test_interrupted_swap_without_a_terminal_says_that_it_goes_on(control: tuple[Control, str]) -> None:
    server, address = control
    server.shown["progress"] = BUILD
    server.building.clear()
    piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with program("swap", "--users", "users2", "--url", address, **piped) as swap:
        assert swap.stderr is not None
        swap.stderr.readline()
        swap.send_signal(signal.SIGINT)
        assert swap.stderr.read().endswith("the swap continues; turnout status shows it\n")
    assert swap.returncode == 130
    server.building.set()
    assert [path for path, *_ in server.messages] == ["/api/control"]


class Terminal:
    """A `turnout` on a real terminal of its own, for which Ctrl-C is a key."""

    # A fork of a process with threads may hang, so a program of its own takes the terminal.
    _TAKES_ITS_TERMINAL = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, '-m', 'turnout', *sys.argv[1:]])"
    )

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self._terminal, its = os.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._TAKES_ITS_TERMINAL, *arguments],
            stdin=its,
            stdout=its,
            stderr=its,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
            start_new_session=True,
        )
        os.close(its)

    def until(self, text: str) -> None:
        def found() -> bool:
            if text not in self.seen and select.select([self._terminal], [], [], 0.1)[0]:
                self.seen += self._read()
            return text in self.seen

        wait_until(found, what=lambda: f"{text!r} in {self.seen!r}")

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def end(self) -> int:
        """All that it prints until its end, and its exit code."""
        while text := self._read():
            self.seen += text
        os.close(self._terminal)
        return self._process.wait(patience())

    def _read(self) -> str:
        try:
            return os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:  # Linux says the end of a terminal so
            return ""


@pytest.mark.parametrize(
    ("keys", "code", "said", "paths"),
    [
        ("y\n", 1, "cancelled", ["/api/control", "/api/cancel"]),
        ("n\n", 130, "the swap continues; turnout status shows it", ["/api/control"]),
        ("\x03", 130, "the swap continues; turnout status shows it", ["/api/control"]),
    ],
    ids=["yes", "no", "Ctrl-C again"],
)
def test_interrupted_swap_asks_once_whether_to_cancel(
    control: tuple[Control, str], keys: str, code: int, said: str, paths: list[str]
) -> None:
    server, address = control
    server.shown["progress"] = BUILD
    server.building.clear()
    terminal = Terminal("swap", "--users", "users2", "--url", address)
    terminal.until("12 s left")
    terminal.type("\x03")
    terminal.until("Cancel the swap? [y/N]")
    terminal.type(keys)
    terminal.until(said)
    assert terminal.end() == code
    server.building.set()
    assert [path for path, *_ in server.messages] == paths


def test_dry_run_is_a_report_for_people(control: tuple[Control, str]) -> None:
    server, address = control
    report = {
        "plan": {
            "topics": {"users": "users2", "accounts": "accounts"},
            "joins": {"final_ui": "inner"},
            "start": "latest",
        },
        "changes": True,
        "records": {"users": 12_045, "accounts": 0},
        "sources": {"users": {"read": 12_045}, "accounts": {"kept": 5_213, "read": 0}},
        "columns": {},
        "sampleUnmatched": {"final_ui": ["u1", "u2"]},
        "sampleBad": [{"topic": "users2", "field": "age", "reason": "not int64"}],
    }
    server.answer = (200, {"outcome": "unchanged", "detail": "dryRun", "report": report})
    shown = turnout("swap", "--topic", "users=users2", "--dry-run", "--url", address).stdout
    assert shown.splitlines() == [
        "Dry run: this would work. Nothing was changed. A generation would be built:",
        "  users     users2      12,045 records to read",
        "  accounts  accounts    5,213 rows kept       ",
        "  final_ui  inner join                        ",
        "  start     latest                            ",
        "Keys of newest records without a match in final_ui: u1, u2",
        "Bad record: users2: age: not int64",
    ]
    asked = turnout("swap", "--topic", "users=users2", "--dry-run", "--url", address, "--json").stdout
    assert json.loads(asked)["report"] == report


def test_history_fits_80_columns_and_says_what_changed(
    control: tuple[Control, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = control
    one = {"ts": "2026-01-01T00:00:00.123Z", "requester": "cli", "buildSeconds": 0.25, "outcome": "applied"}
    swap = {"generation": 2, "from": "users=users join=left", "to": "users=users2 join=left", "detail": ""}
    apply = {"generation": 2, "from": swap["to"], "to": swap["to"], "detail": "server.max_viewers: 500 -> 7"}
    server.history = [one | {"generation": 1, "from": None, "to": swap["from"], "detail": ""}, one | swap, one | apply]
    shown = CliRunner().invoke(app, ["history", "--url", address], env={"COLUMNS": "80"}).stdout
    assert [line.rstrip() for line in shown.splitlines()] == [
        "   1  applied      2026-01-01 00:00:00Z  by cli, build 0.2 s",
        "      users=users, join=left",
        "   2  applied      2026-01-01 00:00:00Z  by cli, build 0.2 s",
        "      users: users -> users2",
        "   2  applied      2026-01-01 00:00:00Z  by cli, build 0.2 s",
        "      server.max_viewers: 500 -> 7",
    ]


def test_status_shows_sinks_as_words_in_80_columns(control: tuple[Control, str]) -> None:
    server, address = control
    sink = {
        "name": "out",
        "table": "final_ui",
        "topic": "final-joined",
        "state": "writing",
        "waitingRows": 1_200,
        "error": None,
    }
    server.shown |= {"sources": ["users", "accounts"], "sinks": [sink], "leftOut": []}
    shown = CliRunner().invoke(app, ["status", "--url", address], env={"COLUMNS": "80"}).stdout
    assert "final_ui -> topic final-joined, writing, 1,200 rows wait" in shown
    assert "users, accounts" in shown and "{" not in shown and "[" not in shown
    assert max(map(len, shown.splitlines())) <= 80


LARGE = {
    "name": "large",
    "table": "final_ui",
    "where": "age > 40",
    "to": "topic alerts",
    "state": "failing",
    "error": "topic 'alerts' does not exist",
    "rows": 1,
    "waiting": 2,
}


def test_alerts_are_listed_with_their_states(control: tuple[Control, str]) -> None:
    server, address = control
    server.shown |= {"alerts": []}
    assert "No alerts" in turnout("alerts", "--url", address).stdout
    server.shown |= {"alerts": [LARGE]}
    shown = " ".join(turnout("alerts", "--url", address).stdout.split())
    assert "large │ final_ui │ age > 40 │ topic alerts │ 1 │ 2 │ failing: topic 'alerts' does not exist" in shown
    assert json.loads(turnout("alerts", "--json", "--url", address).stdout) == {"alerts": [LARGE]}
    server.shown |= {"sources": [], "sinks": [], "leftOut": []}
    shown = turnout("status", "--url", address).stdout
    assert "final_ui where age > 40 -> topic alerts, failing, 2 events wait: topic 'alerts' does not exist" in shown


def test_alerts_test_sends_a_sample(control: tuple[Control, str]) -> None:
    server, address = control
    assert turnout("alerts", "test", "large", "--url", address).exit_code == 0
    assert [path for path, _, _ in server.messages] == ["/api/alerts/large/test"]


def test_tables_fit_80_columns(url: str) -> None:
    shown = CliRunner().invoke(app, ["tables", "--url", url], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "orchestrator_logs" in shown


@pytest.mark.parametrize("command", ["rollback", "cancel", "publish", "discard"])
def test_action_sends_what_was_given(control: tuple[Control, str], command: str) -> None:
    server, address = control
    given = ("--request-id", "undo", "--expected-generation", "7")
    assert turnout(command, *given, "--url", address).exit_code == 0
    assert server.messages == [(f"/api/{command}", {"requestId": "undo", "expectedGeneration": 7}, {})]


def test_cancel_with_nothing_to_cancel_is_no_success(control: tuple[Control, str]) -> None:
    server, address = control
    error = {"code": "nothing_to_cancel", "message": "no build is under way", "hint": "roll back"}
    server.answer = (409, {"error": error})
    result = turnout("cancel", "--url", address)
    assert (result.exit_code, "no build is under way" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        *(("applied", 0), ("unchanged", 0), ("rolled_back", 0)),
        *(("rejected", 1), ("failed", 1), ("superseded", 1), ("cancelled", 1)),
    ],
)
def test_swap_exit_code_follows_the_outcome(control: tuple[Control, str], outcome: str, code: int) -> None:
    server, address = control
    server.answer = (200, {"outcome": outcome, "detail": "because"})
    result = turnout("swap", "--join", "left", "--url", address)
    assert result.exit_code == code
    assert outcome in result.output and "because" in result.output
    assert json.loads(turnout("swap", "--join", "left", "--url", address, "--json").stdout)["outcome"] == outcome


def test_swap_whose_outcome_does_not_come_is_no_success(control: tuple[Control, str]) -> None:
    server, address = control
    server.answer = (202, {"message": 3, "outcome": None})
    result = turnout("swap", "--join", "left", "--url", address)
    assert (result.exit_code, "turnout status" in result.stderr) == (1, True)
    assert turnout("swap", "--join", "left", "--no-wait", "--url", address).exit_code == 0


def test_swap_that_is_refused_tells_why(control: tuple[Control, str]) -> None:
    server, address = control
    refusal = TurnoutError(code="bad_control", message="joinType: unknown 'sideways'", hint="known: left, inner")
    server.answer = (422, refusal.as_json())
    result = turnout("swap", "--join", "sideways", "--url", address)
    assert result.exit_code == 1
    assert result.stderr == "error: joinType: unknown 'sideways'\nhint: known: left, inner\n"


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[str]:
    orchestrator = ApplyingOrchestrator()
    with small_store(tmp_path / "store") as database:
        services = Services(database, orchestrator)
        access = Access()
        (tmp_path / "turnout-data").mkdir()
        access.know_owner(sent.make_local_token(tmp_path / "turnout-data"))
        with serving(create_app(services, access)) as address:
            yield address


def test_apply_shows_what_changes_and_what_that_needs(configured: str, tmp_path: Path) -> None:
    file, given = tmp_path / "turnout.yaml", ("--url", configured)
    file.write_text("server: {max_viewers: 7}\n")
    dry = turnout("apply", "-c", str(file), "--dry-run", *given)
    assert dry.exit_code == 0, dry.output
    assert all(word in dry.stdout for word in ("server.max_viewers", "500", "7", "at once", "Nothing was changed"))
    done = turnout("apply", "-c", str(file), "--json", *given)
    change = {"path": "server.max_viewers", "from": 500, "to": 7, "needs": "nothing"}
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["outcome"], answer["changes"]) == (0, "applied", [change])
    assert "unchanged" in turnout("apply", "-c", str(file), *given).stdout
    assert "nothing would change" in turnout("apply", "-c", str(file), "--dry-run", *given).stdout


def test_apply_without_the_token_of_the_server_is_refused(configured: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    file = tmp_path / "other" / "turnout.yaml"
    file.write_text("server: {max_viewers: 7}\n")
    result = turnout("apply", "-c", str(file), "--url", configured)
    assert result.exit_code == 1 and "only the user that runs the server" in result.stderr
    file.write_text("server: {max_viewers: 7}\ndata_dir: ../turnout-data\n")
    assert "only the user" not in turnout("apply", "-c", str(file), "--url", configured).output


def test_apply_that_is_rejected_shows_why_and_exits_with_1(configured: str, tmp_path: Path) -> None:
    file, given = tmp_path / "turnout.yaml", ("--url", configured)
    file.write_text("server: {port: 1, max_viewers: 7}\n")
    result = turnout("apply", "-c", str(file), *given)
    assert result.exit_code == 1 and "server.port" in result.stdout and "restart" in result.stdout
    assert result.stderr.startswith("error: server.port: a change of this needs a restart")
    file.write_text("server: {prot: 1}\nstrat: latest\n")
    result = turnout("apply", "-c", str(file), *given)
    assert result.exit_code == 1
    assert [line.split(": unknown")[0] for line in result.stderr.splitlines()] == [
        "error: line 1: server.prot",
        "error: line 2: strat",
    ]
    assert json.loads(turnout("apply", "-c", str(file), "--json", *given).stdout)["error"]["code"] == "config_invalid"
    result = turnout("apply", "-c", str(tmp_path / "none.yaml"), *given)
    assert result.exit_code == 1 and "none.yaml: cannot be read" in result.stderr


def test_apply_whose_outcome_does_not_come_is_no_success(control: tuple[Control, str], tmp_path: Path) -> None:
    server, address = control
    server.answer = (202, {"message": 3, "requestId": None, "outcome": None})
    (tmp_path / "t.yaml").write_text("{}\n")
    result = turnout("apply", "-c", str(tmp_path / "t.yaml"), "--url", address)
    assert (result.exit_code, "turnout status" in result.stderr) == (1, True)


def test_cell_obeys_nothing_that_data_says() -> None:
    assert cell("[red]x[/]").plain == "[red]x[/]"
    assert "\x1b" not in cell("\x1b[31mx").plain
    assert printable("a\x07b\nc") == "a·b\nc"
    assert [cell(value).plain for value in (None, True, 1.5, 0.0001, 7, [1])] == [
        "null", "true", "1.50", "0.0001", "7", "[1]"
    ]  # fmt: skip


def test_long_text_leaves_short_columns_their_width() -> None:
    columns = [{"name": name, "type": "string"} for name in ("ts", "level", "msg")]
    line = {"ts": "2026-01-31T12:00:00Z", "level": "WARNING", "msg": "a long message " * 20}
    screen = Console(width=60, _environ={})
    with screen.capture() as capture:
        screen.print(table_of(columns, rows=[line]))
    shown = capture.get().splitlines()
    assert "2026-01-31T12:00:00Z" in shown[3] and "WARNING" in shown[3] and "a long" in shown[3]
    assert "level" in shown[1] and len(shown) == 5, "each row takes one line"


def test_demo_settings_read_from_the_start(tmp_path: Path) -> None:
    made = settings(tmp_path, "127.0.0.1:9", 8080)
    assert (made.start.kind, made.server.port, made.kafka.bootstrap_servers) == ("earliest", 8080, "127.0.0.1:9")
    assert made.data_dir.is_relative_to(tmp_path)


def test_demo_banner_has_what_to_try() -> None:
    shown = banner("http://127.0.0.1:8080", "127.0.0.1:9", None)
    assert "turnout watch final_ui --url http://127.0.0.1:8080" in shown
    assert "kcat -P -b 127.0.0.1:9 -t control" in shown
    assert "confluent_kafka" in shown
    assert "--url" not in banner("http://127.0.0.1:10000", "127.0.0.1:9", None)


def test_demo_banner_names_programs_that_can_be_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`make demo` leaves the PATH alone, and another Python there would not do."""
    programs = Path(sys.executable).parent

    def named() -> list[str]:
        shown = banner("http://127.0.0.1:10000", "127.0.0.1:9", None)
        commands = (re.findall(pattern, shown)[0] for pattern in (r"Watch +(.+) watch", r" +(.+) -c "))
        return [" ".join(shlex.split(command)) for command in commands]

    monkeypatch.setenv("PATH", f"{programs}:/usr/bin")
    assert named() == ["turnout", "python"]
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(programs.parent)
    assert named() == ["bin/turnout", "bin/python"]
    monkeypatch.chdir(tmp_path)
    assert named() == [f"{programs}/turnout", f"{programs}/python"]


def test_run_refuses_an_unknown_log_format() -> None:
    result = turnout("run", "--log-format", "xml")
    assert result.exit_code == 2
    assert "'text', 'json'" in result.output


@pytest.mark.namespaces("mount")
def test_disk_without_room_is_told_in_one_line(tmp_path: Path) -> None:
    resolve("broker")  # On a new machine the command would tell that it fetches them.
    with small_disk(tmp_path / "disk", 1) as disk:
        fill(disk / "filler")
        done = turnout("broker", "--port", "0", "--data", str(disk / "kafka"))
    assert done.exit_code == 1
    said = "Starting Kafka ...\nerror: cannot write: No space left on device\nhint: free disk space"
    assert done.stderr.startswith(said)


def test_start_on_all_addresses_is_told_until_the_tables_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spinner, "LINE_SECONDS", 0.5)
    with site(tmp_path) as running:
        url = running.url.replace("127.0.0.1", "0.0.0.0")
        telling = threading.Thread(target=tell_until_ready, args=(url,), daemon=True)
        telling.start()
        telling.join(patience(10))
        assert not telling.is_alive()
    assert caplog.messages == []
