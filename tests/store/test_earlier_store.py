"""A store that an older Turnout wrote, with DuckDB 1.5, and the format of stores that are written now.

`stores/` has the file of one with two users and an account, and its log with a batch more: its process was killed.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from filled_store import Filling
from turnout.store.database import FILE_NAME, Database
from turnout.store.query.windows import Window, read_window

_STORES = Path(__file__).parent / "earlier_stores"
_FORMAT_OF_DUCKDB_1 = 64


def earlier_store(folder: Path) -> Path:
    for kind in ("duckdb", "duckdb.wal"):
        content = gzip.decompress((_STORES / f"duckdb-1.5.{kind}.gz").read_bytes())
        (folder / FILE_NAME).with_suffix(f".{kind}").write_bytes(content)
    return folder / FILE_NAME


def storage_format(file: Path) -> int:
    """The number in the head of a DuckDB file: after a checksum and four letters."""
    head = file.read_bytes()[:20]
    assert head[8:12] == b"DUCK"
    return int.from_bytes(head[12:20], "little")


def balances(database: Database) -> dict[str, float | None]:
    rows = read_window(database, Window("final_ui")).rows.to_pylist()
    return {row["userId"]: row["balance"] for row in rows}


def test_store_of_duckdb_1_is_opened_with_what_its_log_has_and_goes_on(tmp_path: Path) -> None:
    earlier_store(tmp_path)
    database = Database.open(tmp_path)
    filling = Filling(database).after_first_batch(records=5)
    assert filling.tables is not None
    filling.tables.renew()
    assert filling.tables.progress().batch_id == 1
    assert balances(database) == {"u1": 10.5, "u2": 7.0, "u3": None}
    filling.tables.number_from_start()
    filling.batch(accounts=[{"userId": "u3", "accountType": "gold", "balance": 1.25}])
    assert balances(database) == {"u1": 10.5, "u2": 7.0, "u3": 1.25}
    database.close()


def test_stores_keep_the_format_of_duckdb_1_so_that_an_older_turnout_opens_them(tmp_path: Path) -> None:
    """DuckDB 1.5 was seen to read both, also after a kill."""
    earlier, new = tmp_path / "earlier", tmp_path / "new"
    earlier.mkdir()
    earlier_store(earlier)
    for folder in (earlier, new):
        database = Database.open(folder)
        with database.cursor() as cursor:
            cursor.execute("CREATE TABLE more AS SELECT range AS i, CAST(range AS VARCHAR) AS name FROM range(100_000)")
            cursor.execute("CHECKPOINT")
        database.close()
        assert storage_format(folder / FILE_NAME) == _FORMAT_OF_DUCKDB_1
