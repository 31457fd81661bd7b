"""The Python client alone, in a clean environment: what it brings along, its commands, and every example of its page.

`make test-long` has it: packages are downloaded. The demo that is asked runs in the environment of the tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uv import find_uv_bin

import python_examples
from child_processes import ending_with_us
from code_blocks import Block, blocks
from turnout.local.broker import free_port
from turnout.testing import patience, wait_until
from turnout_client import connect

ROOT = Path(__file__).parents[2]
PAGE = "docs/reference/python.md"
HEAVY = {"pyspark", "duckdb", "py4j", "pyarrow", "pandas", "polars", "confluent-kafka", "starlette"}


class Environment:
    """A clean environment, with what is installed into it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self._folder, self.python = folder, str(folder / "bin" / "python")

    def install(self, requirement: str) -> float:
        """The seconds that it took."""
        began = time.monotonic()
        self._uv("install", "--quiet", "--compile-bytecode", requirement)  # as pip does
        return time.monotonic() - began

    def packages(self) -> set[str]:
        return {one["name"] for one in json.loads(self._uv("list", "--format", "json"))}

    def megabytes(self) -> float:
        [packages] = self._folder.glob("lib/python*/site-packages")
        return sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) / 1e6

    def run(self, examples: list[Block], url: str) -> dict[str, Any]:
        """What became of each: its seconds, or the code of its error."""
        given = [[str(one), placed(one.text, url)] for one in examples]
        command = [self.python, "-I", python_examples.__file__]
        done = subprocess.run(
            command, input=json.dumps(given), capture_output=True, text=True, cwd=self._folder, **ending_with_us()
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = str(Path(self.python).with_name("turnout-client"))
        return subprocess.run([program, *arguments], capture_output=True, text=True, cwd=self._folder)

    def _uv(self, command: str, *arguments: str) -> str:
        uv = [find_uv_bin(), "pip", command, "--python", self.python, *arguments]
        return subprocess.run(uv, check=True, capture_output=True, text=True).stdout


def placed(text: str, url: str) -> str:
    """An example for this server, by the names of the client's own package."""
    text = re.sub("^import turnout$", "import turnout_client as turnout", text, flags=re.MULTILINE)
    return text.replace("http://127.0.0.1:10000", url)


def wheel(folder: Path) -> str:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT / "clients" / "python", check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return str(made)


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """A demo with a candidate, at this address."""
    url, output = f"http://127.0.0.1:{free_port()}", folder / "demo.log"
    command = [str(Path(sys.executable).with_name("turnout")), "demo", "--port", url.rpartition(":")[2]]
    with output.open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **ending_with_us())
    try:
        wait_until(lambda: "Turnout is running" in output.read_text() or process.poll() is not None, what="the banner")
        with connect(url) as client:
            wait_until(lambda: client.rows("final_ui", limit=0).total > 0, interval=0.5, what="rows")
            assert client.control({"joinType": "inner", "publish": False})["outcome"] == "candidate"
        yield url
    finally:
        process.terminate()
        process.wait(patience())


def told_megabytes() -> list[float]:
    """The sizes that the page tells: alone, with commands, with Arrow, and with all that notebooks like."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    return [float(size) for size in re.findall(r"^\| `pip install .*` \| (\d+) MB \|", text, re.MULTILINE)]


def try_commands(environment: Environment, url: str) -> None:
    for name in ("tables", "status", "history"):
        done = environment.command(name, "--json", "--url", url)
        assert done.returncode == 0 and json.loads(done.stdout), done.stderr
    asked = ("swap", "--topic", "users=users2", "--dry-run", "--url", url)
    assert "Dry run: this would work" in environment.command(*asked).stdout
    refused = environment.command("swap", "--topic", "users=user", "--url", url)
    # On a slow machine lines about progress come before.
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "hint: did you mean 'users'?")


def test_client_alone_is_small_and_runs_every_example_of_its_page(tmp_path: Path) -> None:
    examples = [block for block in blocks("python") if block.page == PAGE]
    frames = [str(block) for block in examples if "to_pandas()\n" in block.text]
    assert len(examples) > len(frames) > 0
    alone, with_commands, _, whole = told_megabytes()
    made, environment = wheel(tmp_path), Environment(tmp_path / "env")
    seconds = environment.install(made)
    assert {"turnout-client", "httpx", "orjson", "pydantic", "websockets"} <= environment.packages()
    assert not environment.packages() & HEAVY
    print(f"alone: {environment.megabytes():.1f} MB in {seconds:.1f} s: {', '.join(sorted(environment.packages()))}")
    assert abs(environment.megabytes() - alone) < 0.3 * alone
    assert "pip install 'turnout-client[cli]'" in environment.command("--help").stderr
    with demo(tmp_path) as url:
        for extra in ("", "[cli]", "[notebook]"):
            seconds = environment.install(f"turnout-client{extra} @ file://{made}") if extra else 0.0
            found = environment.run(examples, url)
            print(f"{extra or 'alone'}: {environment.megabytes():.1f} MB, installed in {seconds:.1f} s, {found}")
            if extra == "[cli]":
                assert not environment.packages() & HEAVY
                assert abs(environment.megabytes() - with_commands) < 0.3 * with_commands
                try_commands(environment, url)
            missing = [] if extra == "[notebook]" else frames
            assert [name for name, result in found.items() if result == "missing_package"] == missing
            assert all(isinstance(result, float) for name, result in found.items() if name not in missing), found
    assert abs(environment.megabytes() - whole) < 0.3 * whole
