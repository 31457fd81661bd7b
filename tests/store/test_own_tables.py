"""One list of Turnout's own tables, and the store has no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator
from filled_store import USER_1, Filling
from metric_samples import samples
from turnout.plan import tables as plan_tables
from turnout.serve.app import create_app
from turnout.serve.read_api import Services
from turnout.store.database import Database
from turnout.store.ledger import Ledger
from turnout.swap.metrics import Metrics


class Published(FakeOrchestrator):
    """An orchestrator that has published generation 1."""

    def metrics(self) -> Metrics:
        return Metrics(self.readiness(), published=1)


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    filling = Filling(database)
    Ledger(database, list(filling.settings.sources))
    filling.swap(users=[USER_1])
    yield filling
    database.close()


def tables(filling: Filling, schema: str) -> set[str]:
    with filling.database.read() as cursor:
        sql = "SELECT table_name FROM duckdb_tables() WHERE schema_name = ?"
        return {name for (name,) in cursor.execute(sql, [schema]).fetchall()}


def test_the_list_has_every_table_of_the_store(filling: Filling) -> None:
    assert tables(filling, "turnout") == {*plan_tables.SHOWN_OF_STORE, *plan_tables.BOOKS_OF_STORE}


def test_the_list_has_every_table_of_a_generation(filling: Filling) -> None:
    assert filling.tables is not None
    configured = {s.table for s in filling.tables.layout.sources} | {v.table for v in filling.tables.layout.views}
    own = {*plan_tables.SHOWN_OF_GENERATION, *plan_tables.BOOKS_OF_GENERATION}
    assert tables(filling, filling.tables.schema) == configured | own


def test_metrics_tell_of_no_table_that_nobody_can_read(filling: Filling) -> None:
    client = TestClient(create_app(Services(filling.database, Published())))
    shown = {table["name"] for table in client.get("/api/tables").json()["tables"]}
    assert {labels for name, labels in samples(client) if name == "turnout_table_rows"} == shown - {
        "orchestrator_status"
    }
