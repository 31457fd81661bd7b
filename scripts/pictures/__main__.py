"""Every picture of the docs, each by a module here, over a demo that is started for them: `make pictures`."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import notebook
import page

from turnout.local.broker import free_port
from turnout.testing import wait_until


def main() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "demo.log")
        with output.open("wb") as log:
            command = [sys.executable, "-m", "turnout", "demo", "--port", str(port)]
            demo = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: "Turnout is running" in output.read_text() or demo.poll() is not None, what="the demo")
            for picture in (page, notebook):
                picture.main(f"http://127.0.0.1:{port}")
                print(picture.PICTURE, flush=True)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait()


if __name__ == "__main__":
    main()
