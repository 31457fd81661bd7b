"""Measure the time of a new user to the first joined rows: `make demo` in a new clone, with empty home and caches.

Run `python bench/first_minute.py` alone on a quiet machine. It prints each line of the demo with its time, and the time
at which `final_ui` had rows over HTTP.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CACHES = ("XDG_CACHE_HOME", "TURNOUT_CACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=10990)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which the demo is ended")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnout first minute ") as folder:
        home, clone = Path(folder) / "home", Path(folder) / "turnout"
        home.mkdir()
        for name in (".npmrc", ".config/pip/pip.conf"):  # the registries of packages are not part of the measure
            if (Path.home() / name).exists():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).symlink_to(Path.home() / name)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environ = {name: value for name, value in os.environ.items() if name not in _CACHES} | {"HOME": str(home)}
        began = time.monotonic()
        demo = subprocess.Popen(
            ["make", "demo", f"ARGS=--port {arguments.port}"],
            cwd=clone, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=_show, args=(demo, began), daemon=True).start()
        try:
            while not _has_rows(arguments.port):
                if demo.poll() is not None or time.monotonic() - began > arguments.limit:
                    raise SystemExit("error: there were no rows; see the lines above")
                time.sleep(0.1)
            print(f"{time.monotonic() - began:6.1f} s  joined rows over HTTP", flush=True)
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGINT)
            demo.wait()


def _show(demo: subprocess.Popen[str], began: float) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        print(f"{time.monotonic() - began:6.1f} s  {line}", end="", flush=True)


def _has_rows(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tables/final_ui/rows?limit=1", timeout=2) as answer:
            return bool(json.load(answer)["total"])
    except (OSError, urllib.error.URLError, ValueError, KeyError):
        return False


if __name__ == "__main__":
    main()
