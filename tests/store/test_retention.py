"""What of the store's own tables is kept: by number and age, with counters and places that outlive the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from filled_store import Filling
from http_server import application, serving
from live_socket import Follower, Socket
from metric_samples import samples
from turnout.config.settings import Settings, StoreSettings
from turnout.store.database import Database
from turnout.store.ledger import Ledger, MessageRecord, SwapRecord
from turnout.store.retention import Retention

DAY_OLD = "now() - INTERVAL 25 HOURS"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database, ["users", "accounts"])


def retention(database: Database, *, acknowledges: bool = False, **keep: Any) -> Retention:
    return Retention(database, StoreSettings(**keep), acknowledges=acknowledges)


def column(database: Database, sql: str) -> list[Any]:
    with database.read() as cursor:
        return [value for (value,) in cursor.execute(sql).fetchall()]


def made_swap(offset: int) -> SwapRecord:
    return SwapRecord(
        generation=offset,
        before="a",
        after="b",
        requester="topic",
        request_id=None,
        control_offset=offset,
        build_seconds=1.0,
        catch_up_seconds=2.0,
        publish_seconds=3.0,
        outcome="applied",
    )


def fill(database: Database, ledger: Ledger, messages: int) -> None:
    """So many messages of the topic, each applied by a swap."""
    for offset in range(messages):
        [kept] = ledger.add_messages([MessageRecord("{}", "topic", 0, offset, offset)])
        assert kept is not None
        with database.write() as cursor:
            ledger.settle(cursor, kept.number, None, "applied", "")
            ledger.add_swap(cursor, made_swap(offset))


def test_the_newest_rows_are_kept(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 5)
    for number in range(5):
        ledger.log("INFO", f"line {number}")
    keep = retention(database, control_rows=2, swap_rows=3, log_rows=4)
    assert keep.trim() == {"orchestrator_logs": 1, "control_raw": 3, "swaps": 2}
    assert keep.trim() == {}
    assert column(database, 'SELECT "offset" FROM control_raw ORDER BY 1') == [3, 4]
    assert column(database, "SELECT generation FROM swaps ORDER BY 1") == [2, 3, 4]


def test_rows_go_by_age_but_never_the_newest(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 3)
    with database.write() as cursor:
        cursor.execute(f"UPDATE turnout.control_raw SET _arrived = {DAY_OLD}")
        cursor.execute(f"UPDATE turnout.swaps SET ts = {DAY_OLD} WHERE generation < 2")
    assert retention(database).trim() == {}
    assert retention(database, keep_days=1).trim() == {"control_raw": 2, "swaps": 2}
    [kept] = ledger.add_messages([MessageRecord("{}", "http")])
    assert kept is not None
    assert kept.number == 4


def test_messages_without_an_outcome_or_an_acknowledgement_stay(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 3)
    ledger.add_messages([MessageRecord("{}", "http"), MessageRecord("{}", "http")])
    ledger.acknowledged([2])
    assert retention(database, acknowledges=True, control_rows=1).trim() == {"control_raw": 1}
    assert column(database, "SELECT _id FROM turnout.control_raw ORDER BY 1") == [1, 3, 4, 5]


def test_a_removed_message_is_not_taken_again_and_reading_goes_on_behind_it(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 3)
    retention(database, control_rows=1).trim()
    with database.write() as cursor:
        cursor.execute("DELETE FROM turnout.control_raw")
    assert ledger.add_messages([MessageRecord("{}", "topic", 0, 1, 1)]) == [None]
    assert ledger.control_positions() == {0: 2}
    assert ledger.add_messages([MessageRecord("{}", "topic", 0, 1, 99)]) != [None], "the topic was made anew"


def test_counters_do_not_go_down(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 4)
    client = TestClient(application(database))
    names = [("turnout_swaps_total", "applied"), ("turnout_control_messages_total", "applied")]
    names += [("turnout_swap_seconds_sum", "catch_up"), ("turnout_swap_seconds_count", "build")]
    before = samples(client)
    retention(database, control_rows=1, swap_rows=1).trim()
    retention(database, control_rows=1, swap_rows=1).trim()
    after = samples(client)
    assert [after[name] for name in names] == [before[name] for name in names] == [4, 4, 8, 4]


def test_followers_see_removed_rows_as_deletes(database: Database, ledger: Ledger) -> None:
    fill(database, ledger, 4)
    with serving(application(database)) as url, Socket(url) as socket:
        follower = Follower("control_raw")
        follower.subscribe(socket)
        follower.apply(socket.receive())
        assert len(follower.rows) == 4
        retention(database, control_rows=1).trim()
        while len(follower.rows) != 1:
            follower.apply(socket.receive())


def test_bad_records_keep_the_newest_of_a_generation(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    filling = Filling(database, Settings.model_validate({"store": {"bad_rows": 5}}))
    filling.generation()
    filling.publish()
    with serving(application(database)) as url, Socket(url) as socket:
        follower = Follower("bad_records")
        follower.subscribe(socket)
        follower.apply(socket.receive())
        written = 0
        for count in (3, 4, 12, 1):
            filling.batch(users=[None] * count)
            written += count
            newest = list(range(max(0, written - 5), written))
            assert sorted(column(database, 'SELECT "offset" FROM bad_records')) == newest
            while sorted(row[3] for row in follower.rows.values()) != newest:
                follower.apply(socket.receive())
    database.close()
