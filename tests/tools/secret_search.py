"""Looks for secrets in everything that a run of Turnout produced or shows: files, tables, HTTP answers, processes."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from turnout.testing import wait_until
from turnout_process import RunningTurnout

JWT = re.compile(rb"eyJ[A-Za-z0-9_-]{20,}\.eyJ")
"""What a signed token begins with."""

LOOKED_AT = (
    *("/api/status", "/metrics", "arguments of turnout", "arguments of java", "environment of java"),
    *(f"/api/tables/{name}/rows" for name in ("final_ui", "swaps", "control_raw", "orchestrator_logs")),
    *("turnout.yaml", "turnout.log", "data/store.duckdb", "data/checkpoints/", "spark's spark.log"),
)
"""What the places of every run begin with."""


def assert_no_secret(turnout: RunningTurnout, secrets: Iterable[str], own: Iterable[Path] = ()) -> None:
    """None of `secrets`, and no token, is in what the running `turnout` produced; `own` are files that hold them."""
    wanted = list(forms(secrets))
    # What has caught up is published, and begins its checkpoint a moment later.
    wait_until(lambda: list(files(turnout.data_dir / "checkpoints", set())), what="a checkpoint")
    places = [*http_answers(turnout), *processes(turnout), *files(turnout.folder, set(own))]
    places += [(f"spark's {where}", text) for where, text in files(turnout.spark_dir, set())]
    filled = [where for where, text in places if text]
    missing = [start for start in LOOKED_AT if not any(where.startswith(start) for where in filled)]
    assert not missing, f"nothing to look at in {missing}: is this a run?"
    found = [f"{secret!r} in {where}" for where, text in places for secret in wanted if secret in text]
    found += [f"a token in {where}" for where, text in places if JWT.search(text)]
    assert not found, found


def forms(secrets: Iterable[str]) -> Iterator[bytes]:
    """Each secret as it is, as JSON or JAAS quote it, and as HTTP carries it."""
    for secret in secrets:
        quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
        yield from {secret.encode(), quoted.encode(), base64.b64encode(secret.encode()).rstrip(b"=")}


def http_answers(turnout: RunningTurnout) -> Iterator[tuple[str, bytes]]:
    tables = [f"/api/tables/{table['name']}/rows?limit=100000" for table in turnout.get("/api/tables")["tables"]]
    for path in ("/", "/api/tables", "/api/status", "/api/swaps", "/api/topics", "/metrics", "/readyz", *tables):
        yield path, turnout.http.get(path).content


def processes(turnout: RunningTurnout) -> Iterator[tuple[str, bytes]]:
    """Arguments of all processes, and what those that Turnout started have in their environment."""
    own = psutil.Process(turnout.pid)
    yield "arguments of turnout", " ".join(own.cmdline()).encode()
    for process in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # Hadoop starts short ones; they may be gone, or zombies
            yield f"arguments of {process.name()}", " ".join(process.cmdline()).encode()
            yield f"environment of {process.name()}", "\n".join(process.environ().values()).encode()


def files(folder: Path, own: set[Path]) -> Iterator[tuple[str, bytes]]:
    """The files below a folder in which others write and remove: what goes meanwhile holds nothing."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path not in own:
                    yield str(path.relative_to(folder)), path.read_bytes()
