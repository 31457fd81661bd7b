"""Print in one line why packages could not be installed, and what to do: `explain.py python`, `explain.py node`.

It runs after a failed installation, so it needs no packages: it checks the free disk space and the registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

NEEDED_BYTES = 300_000_000
"""The free space below which the disk is reported as full. An installation takes 2 GB, and 2 GB in the cache of uv."""
ANSWER_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Registry:
    """A package registry: its environment variable, its configured address and its default address."""

    variable: str
    configured: Callable[[], str]
    default: str

    def url(self) -> str:
        return os.environ.get(self.variable) or self.configured() or self.default


def _of_pip() -> str:
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _of_npm() -> str:
    file = Path.home() / ".npmrc"
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("registry=")), "")


REGISTRIES = {
    "python": Registry("PIP_INDEX_URL", _of_pip, "https://pypi.org/simple/"),
    "node": Registry("npm_config_registry", _of_npm, "https://registry.npmjs.org/"),
}


def why(kind: str, needed_bytes: int = NEEDED_BYTES) -> str:
    """Return the line for `python` or `node`."""
    for place in (Path.cwd(), Path.home()):
        free = shutil.disk_usage(place).free
        if free < needed_bytes:
            return f"error: the disk is full: {free / 1e6:.0f} MB are free at {place}; 5 GB are enough for everything"
    registry = REGISTRIES[kind]
    trouble = unreachable(registry.url())
    if trouble is None:
        return f"error: the packages could not be installed, although {shown(registry.url())} answers: see above"
    remedy = f"check the network and the proxy, or set {registry.variable} to a registry that this machine reaches"
    return f"error: {shown(registry.url())} cannot be reached ({trouble}); {remedy}"


def unreachable(url: str) -> str | None:
    """Return the reason why a server does not answer; None if it gives any answer."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return None


def shown(url: str) -> str:
    """Return the address without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


if __name__ == "__main__":
    sys.exit(why(sys.argv[1]))
