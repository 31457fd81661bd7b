"""The demo, as a stranger starts and ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from ending import ending_with_us
from running import lives
from turnout.client import connect
from turnout.local.broker import free_port
from turnout.testing import patience, wait_until


@pytest.mark.parametrize("number", [signal.SIGINT], ids=["ctrl-c"])
def test_demo_shows_joined_rows_moves_them_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    port = free_port()
    output = tmp_path / "demo.log"
    with output.open("wb") as log:
        demo = subprocess.Popen(
            [sys.executable, "-m", "turnout", "demo", "--port", str(port)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            **ending_with_us(),
        )
    try:
        wait_until(lambda: "Turnout is running" in output.read_text(), what=f"the banner of {output}")
        assert "text/html" in httpx.get(f"http://127.0.0.1:{port}/", timeout=patience()).headers["content-type"]
        client = connect(f"http://127.0.0.1:{port}")
        joined = client.rows("final_ui", where="accountType is not null")
        assert joined.total > 100
        wait_until(lambda: client.rows("bad_records").total > 0, what="a bad record to be shown")
        emails = {row["email"].split("@")[1] for row in joined.rows}
        assert client.control({"usersTopic": "users2", "accountsTopic": "accounts2"})["outcome"] == "applied"
        moved = {row["email"].split("@")[1] for row in client.rows("final_ui").rows}
        assert moved
        assert not moved & emails
        assert client.rollback()["outcome"] == "rolled_back"
        client.close()
    finally:
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(number)
        code = demo.wait(patience())
    assert code == 0, output.read_text()
    assert "Traceback" not in output.read_text()
    wait_until(lambda: not any(map(lives, family)), what="the end of all processes")
