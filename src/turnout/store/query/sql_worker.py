"""The program that runs somebody's SELECT, in a process of its own: what it takes, the system counts.

DuckDB's own limit of memory does not cover all that a query makes while it runs. So the process has one that the system
holds it to, and where it is reached only this process ends. It is started as a file, with nothing of Turnout loaded;
`sql_process.py` is the other side, and says what goes over stdin and stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

IDLE_SECONDS = 60
_BATCH_ROWS = 2_000
# What an answer, the rows on their way and the allocator take besides.
_SPARE_BYTES = 96 * 2**20
# What the libraries take at most for themselves in a first query.
_LIBRARY_BYTES = 256 * 2**20
_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    # One query takes one core at most: the others are for batches and viewers.
    "threads": "1",
}


class WithoutPandas(MetaPathFinder):
    """Finds no pandas: Arrow and DuckDB import it where they can, 0.25 s and 30 MB for nothing that Turnout uses."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def locked(memory: str) -> duckdb.DuckDBPyConnection:
    """A database in memory without files, network or settings that could be changed."""
    room = duckdb.connect(":memory:", config={**_SETTINGS, "memory_limit": memory})
    # Errors then have the position as a number.
    room.execute("SET errors_as_json = true")
    room.execute("SET TimeZone = 'UTC'; SET disabled_filesystems = 'LocalFileSystem'; SET lock_configuration = true")
    return room


def main() -> None:
    sys.meta_path.insert(0, WithoutPandas())
    warnings.filterwarnings("ignore", "Arrow output on a DB-API result")
    coming, going = sys.stdin.buffer, sys.stdout.buffer
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    # Without a limit an allocator would reserve a gigabyte, which is then not counted when a query takes it.
    _limit(_limit(None) + _LIBRARY_BYTES)
    _prepare()
    unlimited = _limit(None)
    with contextlib.suppress(OSError):
        os.nice(10)
    while select.select([coming], [], [], IDLE_SECONDS)[0] and (line := coming.readline()):
        asked = json.loads(line)
        _limit(unlimited + asked["bytes"] + _SPARE_BYTES)
        _answer(asked, coming, going)
        _limit(None)


def _prepare() -> None:
    """Run a first query: what the libraries take for themselves, 130 MB of data, is not the memory of somebody's.

    Without room for a thread of theirs, a query would wait for it for ever.
    """
    with contextlib.closing(locked("64MB")) as room:
        room.register("_first", pa.table({"i": pa.array([1], pa.int64())}).to_reader())
        room.execute("FROM _first").to_arrow_table()


def _answer(asked: dict[str, Any], coming: BinaryIO, going: BinaryIO) -> None:
    """Read the tables, run the query and send its rows; after a failure that leaves a doubt, end."""
    stream: pa.RecordBatchReader | None = None
    head: dict[str, Any] = {}
    rows: pa.Table | None = None
    lost = True
    try:
        with contextlib.closing(locked(asked["memory"])) as room:
            for name in asked["copied"]:
                room.register("_copied", pa.ipc.open_stream(coming))
                quoted = name.replace('"', '""')
                room.execute(f'CREATE TABLE "{quoted}" AS FROM _copied')
                room.unregister("_copied")
            lost = False
            if (streamed := asked["streamed"]) is not None:
                stream = pa.ipc.open_stream(coming)
                room.register(streamed, stream)
            rows, head = _rows(room, asked)
    except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError):
        head, lost = {"memory": True}, True
    except (duckdb.Error, pa.ArrowException) as error:
        text = str(error)
        # What the allocator of a library says when it gets none.
        out = "bad_alloc" in text or "malloc of size" in text or "realloc of size" in text
        head, lost = ({"memory": True}, True) if out else ({"error": text}, lost)
    going.write(b"\n")  # the rest of the rows is not needed
    going.flush()
    if lost:
        _send(going, {**head, "last": True})
        os._exit(1)
    if stream is not None:
        with contextlib.suppress(StopIteration):
            while True:
                stream.read_next_batch()
    _send(going, head, rows)


def _rows(room: duckdb.DuckDBPyConnection, asked: dict[str, Any]) -> tuple[pa.Table | None, dict[str, Any]]:
    # Not as a relation, which would copy less: its errors have no positions.
    reader = room.execute(asked["sql"]).to_arrow_reader(_BATCH_ROWS)
    assert reader is not None
    kinds = [str(described[1]) for described in room.description or ()]
    batches, taken, size = [], 0, 0
    for batch in reader:
        batches.append(batch.slice(0, asked["limit"] - taken))
        taken += batches[-1].num_rows
        size += batches[-1].nbytes
        if asked["max_bytes"] is not None and size > asked["max_bytes"]:
            return None, {"too_large": True}
        if taken >= asked["limit"]:
            break
    return pa.Table.from_batches(batches, reader.schema), {"kinds": kinds}


def _send(going: BinaryIO, head: dict[str, Any], rows: pa.Table | None = None) -> None:
    going.write(json.dumps(head).encode() + b"\n")
    if rows is not None:
        with pa.ipc.new_stream(going, rows.schema) as stream:
            stream.write_table(rows)
    going.flush()


def _limit(size: int | None) -> int:
    """Hold the process to so many bytes of data, or to none; what it has now. Only Linux counts all of it."""
    if sys.platform != "linux":
        return 0
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if size is None else size, most))
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))


def _end_with(parent: int) -> None:
    """A server that was killed must not leave a query behind that runs for ever."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
