"""A small file system. A test that uses it is marked `namespaces("mount")`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        # Lazy: a process with open files there, such as an ending JVM, must not delay the test.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    with file.open("ab", buffering=0) as out:
        try:
            while True:
                out.write(b"x" * 4096)
        except OSError:
            return
