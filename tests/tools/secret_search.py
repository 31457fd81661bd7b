"""A search for secrets in all output of a Turnout: files, tables, HTTP answers and processes."""

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
"""The start of a signed token."""

LOOKED_AT = (
    *("/api/status", "/metrics", "arguments of turnout", "arguments of java", "environment of java"),
    *(f"/api/tables/{name}/rows" for name in ("final_ui", "swaps", "control_raw", "orchestrator_logs")),
    *("turnout.yaml", "turnout.log", "data/store.duckdb", "data/checkpoints/", "spark's spark.log"),
)
"""The prefixes of places that every run has."""


def assert_no_secret(turnout: RunningTurnout, secrets: Iterable[str], own: Iterable[Path] = ()) -> None:
    """Assert that no output of `turnout` contains a token or one of `secrets`; `own` files may contain them."""
    wanted = list(forms(secrets))
    # A published generation starts its checkpoint a moment later.
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
    """Yield each secret as plain text, quoted as in JSON or JAAS, and in base64 as in HTTP."""
    for secret in secrets:
        quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
        yield from {secret.encode(), quoted.encode(), base64.b64encode(secret.encode()).rstrip(b"=")}


def http_answers(turnout: RunningTurnout) -> Iterator[tuple[str, bytes]]:
    tables = [f"/api/tables/{table['name']}/rows?limit=100000" for table in turnout.get("/api/tables")["tables"]]
    for path in ("/", "/api/tables", "/api/status", "/api/swaps", "/api/topics", "/metrics", "/readyz", *tables):
        yield path, turnout.http.get(path).content


def processes(turnout: RunningTurnout) -> Iterator[tuple[str, bytes]]:
    """Yield the arguments of all processes, and the environments of the processes that Turnout started."""
    own = psutil.Process(turnout.pid)
    yield "arguments of turnout", " ".join(own.cmdline()).encode()
    for process in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # Hadoop's short processes may have ended, or be zombies
            yield f"arguments of {process.name()}", " ".join(process.cmdline()).encode()
            yield f"environment of {process.name()}", "\n".join(process.environ().values()).encode()


def files(folder: Path, own: set[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder; files that are removed meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path not in own:
                    yield str(path.relative_to(folder)), path.read_bytes()
