"""Take all pictures of the docs: `make pictures`, or `make pictures ARGS="tutorial"` for some.

Each module here takes some of them. The page and the notebook use a demo that is started here; the tutorial runs its
own steps; drawings need no server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import drawings
import moving
import notebook
import page
import tutorial

from turnout.local.broker import free_port
from turnout.testing import wait_until

OF_A_DEMO = {"moving": moving, "page": page, "notebook": notebook}
QUIET_LOAD = 0.5
"""The maximum load average before the first picture, because some pictures show the duration of swaps."""


@contextmanager
def demo() -> Iterator[str]:
    """Start a demo, and yield its address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "demo.log")
        with output.open("wb") as log:
            command = [sys.executable, "-m", "turnout", "demo", "--port", str(port)]
            running = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: "Turnout is running" in output.read_text() or running.poll() is not None, what="the demo"
            )
            yield f"http://127.0.0.1:{port}"
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()


def main(wanted: list[str]) -> None:
    known = ["drawings", *OF_A_DEMO, "tutorial"]
    if unknown := set(wanted) - set(known):
        sys.exit(f"no pictures of {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    chosen = wanted or known
    if "drawings" in chosen:
        drawings.main()
    if chosen == ["drawings"]:
        return
    if (load := os.getloadavg()[0]) > QUIET_LOAD:
        print(f"this machine is busy (load {load:.1f}): swaps will take longer than they do on a quiet one", flush=True)
    if of_a_demo := [name for name in chosen if name in OF_A_DEMO]:
        with demo() as url:
            for name in of_a_demo:
                OF_A_DEMO[name].main(url)
                print(f"{name}: done", flush=True)
    if "tutorial" in chosen:
        tutorial.main()
        print("tutorial: done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
