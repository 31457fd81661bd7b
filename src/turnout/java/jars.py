"""Jars that Turnout needs and Python packages do not bring: fetched once, verified, kept in a per-user cache.

``jars.lock`` names them by coordinates, size and SHA-256; ``scripts/lock_jars.py`` writes it. This module
does not resolve versions and starts no JVM.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.errors import TurnoutError, first_line

if TYPE_CHECKING:
    import httpx

MAVEN = "https://repo.maven.apache.org/maven2"
MIRROR_VARIABLE = "TURNOUT_MAVEN_MIRROR"
CACHE_VARIABLE = "TURNOUT_CACHE"
REMEDY = f"check the network and proxy settings, or set {MIRROR_VARIABLE} to a Maven repository you can reach"
PARALLEL = 6
ATTEMPTS = 3
UNUSED_SECONDS = 30 * 24 * 3600
"""A file of the cache that was made here and not used for so long is removed."""

LEFT_SECONDS = 3600
"""A part of a file that a killed process left is removed after so long."""

Advance = Callable[[int], None]

_verified: set[tuple[object, ...]] = set()
"""The files, with size and time, whose hash this process has checked."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A file of a Maven repository."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str
    ending: str = ".jar"
    """The end of the file's name, after the version."""

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}{self.ending}"

    @property
    def path(self) -> str:
        """The path below any Maven repository, and below the cache."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def resolve(set_name: str) -> list[Path]:
    """The local files of one set of the lock, in the lock's order; fetches what is missing."""
    return fetch(read_lock()[set_name], cache_folder())


def read_lock() -> dict[str, tuple[Jar, ...]]:
    """The jars of each set."""
    text = resources.files(__package__).joinpath("jars.lock").read_text(encoding="utf-8")
    return {name: tuple(map(_jar, entries)) for name, entries in json.loads(text)["sets"].items()}


def _jar(entry: dict[str, Any]) -> Jar:
    group, artifact, version = entry["coordinates"].split(":")
    return Jar(group, artifact, version, entry["size"], entry["sha256"])


def cache_folder() -> Path:
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser() / "jars"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "turnout" / "jars"


def cached_file(name: str, parts: Iterable[object]) -> Path:
    """The path of a file of the cache that is made from these parts: their hash stands for the `*` of its name."""
    key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    return cache_folder().parent / name.replace("*", key)


@contextlib.contextmanager
def writing(file: Path, name: str) -> Iterator[Path]:
    """Give a path to write, which becomes `file` when the block ends without an error; else nothing of it is left.

    It may be a folder. Others of the same `name` that nobody has used for a month are removed: other versions may be in
    use beside this.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield part
        part.rename(file)
    finally:
        _remove(part)
    for pattern, seconds in ((name, UNUSED_SECONDS), (f"{name}.*.part", LEFT_SECONDS)):
        for other in file.parent.glob(pattern):
            if other != file and time.time() - other.stat().st_atime > seconds:
                _remove(other)


def _remove(left: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def repository() -> str:
    return (os.environ.get(MIRROR_VARIABLE) or MAVEN).rstrip("/")


def fetch(jars: Sequence[Jar], folder: Path, *, progress: bool | None = None) -> list[Path]:
    """The files of ``jars`` below ``folder``; safe when several threads or processes call it at once.

    ``progress``: a bar on standard error; by default only on a terminal.
    """
    if not all(_is_cached(jar, folder) for jar in jars):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # One lock for the whole cache: the second process waits, then finds everything there. The kernel
            # gives the lock back when its holder dies, so there is nothing stale to clean up.
            with (folder / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                missing = [jar for jar in jars if not _is_cached(jar, folder)]
                if missing:
                    _download_all(missing, folder, sys.stderr.isatty() if progress is None else progress)
        except OSError as error:
            raise TurnoutError(
                code="jar_cache",
                message=f"the jar cache {folder} cannot be written: {error.strerror}",
                hint=f"set {CACHE_VARIABLE} to a folder with space that you can write",
                status=500,
            ) from error
    return [folder / jar.path for jar in jars]


def _is_cached(jar: Jar, folder: Path) -> bool:
    """Whether the cached file is the locked one: others may be able to write there, and disks forget.

    A file is hashed once for each process, and again if it changes: the 45 MB of a broker take 50 ms.
    """
    file = folder / jar.path
    with contextlib.suppress(OSError):
        found = file.stat()
        state = (file, jar.sha256, found.st_ino, found.st_size, found.st_mtime_ns)
        if state not in _verified and found.st_size == jar.size and _sha256(file) == jar.sha256:
            _verified.add(state)
        return state in _verified
    return False


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download_all(jars: Sequence[Jar], folder: Path, progress: bool) -> None:
    import httpx

    base = repository()
    stop = threading.Event()
    limits = httpx.Limits(max_connections=PARALLEL)
    try:
        client = httpx.Client(follow_redirects=True, timeout=30, limits=limits)
    except (ValueError, OSError, ImportError) as error:  # from a malformed proxy variable or CA file
        raise _unavailable("jars_unreachable", f"cannot set up downloads: {error}") from error
    workers = ThreadPoolExecutor(min(PARALLEL, len(jars)), thread_name_prefix="turnout-jars")
    with client, _progress(jars, base, progress) as advance, workers as pool:
        # Big ones first: otherwise the largest tends to be left for last, alone.
        largest_first = sorted(jars, key=lambda jar: -jar.size)
        tasks = [pool.submit(_download, client, base, jar, folder / jar.path, advance, stop) for jar in largest_first]
        try:
            for task in as_completed(tasks):
                task.result()
        finally:
            stop.set()  # where one failed, the others give up


def _download(client: httpx.Client, base: str, jar: Jar, file: Path, advance: Advance, stop: threading.Event) -> None:
    """Fetch a jar; a connection that breaks and an error of the server are tried again."""
    import httpx

    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    for attempt in range(ATTEMPTS):
        if stop.wait(0.2 * attempt):
            return
        last = attempt == ATTEMPTS - 1
        try:
            whole = _transfer(client, f"{base}/{jar.path}", jar, part, advance, stop)
        except httpx.InvalidURL as error:
            raise _unavailable("jars_unreachable", f"{_without_user(base)} is not a usable address: {error}") from error
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500 or last:
                answer = f"{error.response.status_code} {error.response.reason_phrase}".strip()
                text = f"{_without_user(base)} answered {answer} for {jar.path}"
                raise _unavailable("jar_refused", text) from error
        except httpx.HTTPError as error:
            if last:
                text = f"cannot fetch {jar.file_name} from {_without_user(base)}: {first_line(error)}"
                raise _unavailable("jars_unreachable", text) from error
        else:
            if whole:
                part.replace(file)
            elif not stop.is_set():
                text = f"{jar.file_name} from {_without_user(base)} is not the locked file (SHA-256 or size differs)"
                raise _unavailable("jar_mismatch", text)
            return
        finally:
            part.unlink(missing_ok=True)


def _transfer(client: httpx.Client, url: str, jar: Jar, part: Path, advance: Advance, stop: threading.Event) -> bool:
    """Write ``part``, and return whether it is the locked file; it is not where ``stop`` was set on the way."""
    digest, size = hashlib.sha256(), 0
    with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response, part.open("wb") as file:
        response.raise_for_status()
        for chunk in response.iter_raw():
            size += len(chunk)
            if stop.is_set() or size > jar.size:
                return False
            file.write(chunk)
            digest.update(chunk)
            advance(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest() == jar.sha256


def _unavailable(code: str, message: str) -> TurnoutError:
    return TurnoutError(code=code, message=message, hint=REMEDY, status=503)


def _without_user(base: str) -> str:
    """The address without a user name and password that may be in it."""
    scheme, mark, rest = base.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


@contextlib.contextmanager
def _progress(jars: Sequence[Jar], base: str, bar: bool) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    total = sum(jar.size for jar in jars)
    title = f"Fetching {len(jars)} jar{'s' if len(jars) > 1 else ''}"
    if not bar:
        print(f"{title} ({total / 1e6:.1f} MB) from {_without_user(base)}", file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not bar) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
