"""The demo, as a stranger starts and ends it: from the wheels, in an environment of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
import venv
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from uv import find_uv_bin

from block_runs import CHANGING, READING, Reader
from child_processes import ending_with_us
from jupyter_kernel import code_cells, running_kernel
from lengths import LONG
from turnout.local.broker import free_port
from turnout.testing import patience, wait_until
from turnout_client import Client, connect
from turnout_process import ASKED_SECONDS, lives

ROOT = Path(__file__).parents[2]


def installed(folder: Path) -> Path:
    """A program `turnout` of the wheels; what it needs is installed in the long form, and borrowed otherwise."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    for project in (ROOT, ROOT / "clients" / "python"):
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    wheels = sorted(map(str, folder.glob("*.whl")))
    assert len(wheels) == 2
    environment = folder / "env"
    venv.create(environment, with_pip=LONG)
    python = environment / "bin/python"
    if LONG:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wheels], check=True)
    else:
        borrowed = next(environment.glob("lib/python*/site-packages")) / "borrowed.pth"
        borrowed.write_text(sysconfig.get_path("purelib"))
        uv = [find_uv_bin(), "pip", "install", "--python", str(python), "--quiet", "--no-deps", *wheels]
        subprocess.run(uv, check=True)
    return environment / "bin/turnout"


def run_notebook(notebook: Path, url: str, folder: Path) -> None:
    """Run its cells as a reader does, who looks at what each shows; swaps come to the widgets by themselves."""
    with running_kernel(folder) as kernel:

        def generations() -> list[int]:
            return [state["_shown"].get("generation", 0) for state in kernel.widgets.values() if "_shown" in state]

        for cell in code_cells(notebook):
            before = generations()
            shown = kernel.run(cell.replace("http://127.0.0.1:10000", url))
            if widget := shown.get("application/vnd.jupyter.widget-view+json"):
                state = kernel.widgets[widget["model_id"]]
                kernel.wait_for(lambda shown: len(shown["_shown"].get("rows", ())) > 1, state)
            elif cell.startswith(("client.control(", "client.rollback(")):
                assert ("'applied'" if "control" in cell else "'rolled_back'") in shown["text/plain"]
                assert len(before) == 2
                kernel.wait_for(lambda old: not set(old) & set(generations()), before)
        assert before == [], "closed widgets are gone"


def run_blocks(client: Client, url: str, banner: str) -> None:
    """The code blocks of the documentation that want a running demo; those of the README move it away and back."""

    def people() -> set[str]:
        return {row["email"].split("@")[1] for row in client.rows("final_ui", columns="email").rows}

    first, moved = people(), dict[str, set[str]]()

    def look(command: str) -> None:
        if command == "python":  # it writes a control message, and does not wait
            wait_until(lambda: not people() & first, interval=ASKED_SECONDS, what="other people")
        moved.setdefault(command, people())

    [broker] = re.findall(r"of Kafka at (\S+):$", banner, re.MULTILINE)
    with closing(Reader(url, broker, look)) as reader:
        reader.run_all()
    assert set(reader.done) == {*READING, *CHANGING, "curl", "python"}
    assert moved["python"] and moved["python"] == moved["rollback"]
    assert moved["swap"] == first


@pytest.mark.parametrize("number", [signal.SIGINT], ids=["ctrl-c"])
def test_demo_shows_joined_rows_moves_them_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    port = free_port()
    output = tmp_path / "demo.log"
    with output.open("wb") as log:
        demo = subprocess.Popen(
            # As many records as a stranger has in the long form; each batch takes its time.
            [installed(tmp_path), "demo", "--port", str(port), *([] if LONG else ["--rate", "2"])],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **ending_with_us(),
        )
    try:
        wait_until(lambda: "Turnout is running" in output.read_text() or demo.poll() is not None, what="the banner")
        assert demo.poll() is None, output.read_text()
        assert "text/html" in httpx.get(f"http://127.0.0.1:{port}/", timeout=patience()).headers["content-type"]
        assert "Turnout" in httpx.get(f"http://127.0.0.1:{port}/docs/", timeout=patience()).text
        client = connect(f"http://127.0.0.1:{port}")
        assert client.rows("final_ui", where="accountType is not null").total > 100
        run_blocks(client, f"http://127.0.0.1:{port}", output.read_text())
        run_notebook(ROOT / "examples" / "notebook" / "live-tables.ipynb", f"http://127.0.0.1:{port}", tmp_path)
        wait_until(lambda: client.rows("bad_records").total > 0, interval=ASKED_SECONDS, what="a bad record")
        client.close()
    finally:
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(number)
        code = demo.wait(patience())
    assert code == 0, output.read_text()
    assert "Traceback" not in output.read_text() and "leaked" not in output.read_text()
    assert "WARNING:turnout:" not in output.read_text(), "all lines of the log have the format of turnout run"
    wait_until(lambda: not any(map(lives, family)), what="the end of all processes")
