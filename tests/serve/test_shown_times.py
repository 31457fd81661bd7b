"""Dates, timestamps and Kafka times that `datetime` cannot hold, on every surface: shown, sorted and filtered."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from rich.console import Console
from starlette.testclient import TestClient

import turnout
from http_server import SECONDS, application, serving
from live_socket import Socket
from turnout.store.database import Database
from turnout_client.cli.watch import picture

ROWS = "/api/tables/days_ui/rows"
# Name, day, moment as they are shown; the last two are what DuckDB takes for infinities.
SHOWN = [
    ("caesar", "-000043-03-15", "-000043-03-15T00:00:00.000000Z"),
    ("first", "-5877641-06-25", "-290308-12-22T00:00:00.000000Z"),
    ("last", "+5881580-07-10", "+294247-01-10T04:00:54.775806Z"),
    ("micros", "+058844-07-17", "+058844-07-17T01:02:03.000004Z"),
    ("none", None, None),
    ("now", "2026-01-31", "2026-01-31T12:00:00.500000Z"),
    ("whenever", "+5881580-07-11", "+294247-01-10T04:00:54.775807Z"),
]
BY_DAY = ["first", "caesar", "now", "micros", "last", "whenever", "none"]


@contextmanager
def store(folder: Path) -> Iterator[Database]:
    opened = Database.open(folder)
    with opened.write() as cursor:
        cursor.execute("""
            CREATE SCHEMA g1;
            CREATE TABLE g1.versions AS SELECT 'days_ui' AS name, 5::BIGINT AS version;
            CREATE TABLE g1.days_ui (_id BIGINT, _ts BIGINT, name VARCHAR, day DATE, "at" TIMESTAMP WITH TIME ZONE);
            INSERT INTO g1.days_ui VALUES
                (1, -9223372036854775808, 'caesar', '0044-03-15 (BC)', '0044-03-15 (BC) 00:00:00+00'),
                (2, 0, 'first', '5877642-06-25 (BC)', '290309-12-22 (BC) 00:00:00+00'),
                (3, 9223372036854775807, 'last', '5881580-07-10', '294247-01-10 04:00:54.775806+00'),
                (4, 1794787200000000, 'micros', '58844-07-17', '58844-07-17 01:02:03.000004+00'),
                (5, -1, 'none', NULL, NULL),
                (6, 1767225600000, 'now', '2026-01-31', '2026-01-31 12:00:00.5+00'),
                (7, 1767225600000, 'whenever', 'infinity', 'infinity');
            CREATE VIEW main.days_ui AS FROM g1.days_ui;
            UPDATE turnout.published SET generation = 1;
        """)
    yield opened
    opened.close()


# For all tests that only read.


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with store(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(database: Database) -> TestClient:
    return client_of(database)


def client_of(database: Database) -> TestClient:
    return TestClient(application(database), raise_server_exceptions=False)


def answer(url: str, **request: str) -> Any:
    """The first message that a subscription gets."""
    with Socket(url) as socket:
        socket.send(id="1", table="days_ui", **request)
        return socket.receive()


def names(client: TestClient, **query: str) -> list[str]:
    answer = client.get(ROWS, params={"columns": "name", **query})
    assert answer.status_code == 200, answer.text
    return [row["name"] for row in answer.json()["rows"]]


def test_json_has_an_iso_text_for_every_date_and_timestamp(client: TestClient) -> None:
    rows = client.get(ROWS, params={"sort": "name"}).json()["rows"]
    assert [(row["name"], row["day"], row["at"]) for row in rows] == SHOWN


def test_csv_has_the_same_texts_with_a_blank(client: TestClient) -> None:
    lines = client.get(ROWS, params={"sort": "name", "format": "csv"}).text.splitlines()
    shown = [",".join((name, day or "", (at or "").replace("T", " "))) for name, day, at in SHOWN]
    assert [line.replace('"', "") for line in lines] == ["name,day,at", *shown]


def test_guarded_csv_has_no_cell_that_begins_with_a_sign(client: TestClient) -> None:
    text = client.get(ROWS, params={"format": "csv", "guard": "true"}).text
    assert '"\'+058844-07-17"' in text
    assert '"+' not in text


def test_arrow_and_parquet_have_the_numbers(client: TestClient) -> None:
    params = {"sort": "name", "format": "arrow"}
    read = pa.ipc.open_stream(client.get(ROWS, params=params).content).read_all()
    parquet = pa_parquet.read_table(io.BytesIO(client.get(ROWS, params=params | {"format": "parquet"}).content))
    for table in (read, parquet):
        assert table["day"].cast(pa.int32()).to_pylist()[:4] == [-735_160, -2_147_483_646, 2_147_483_646, 20_773_000]
        assert table["at"].cast(pa.int64()).to_pylist()[2] == 9_223_372_036_854_775_806


def test_every_order_and_filter_takes_them(client: TestClient) -> None:
    assert names(client, sort="day") == names(client, sort="at") == BY_DAY
    assert names(client, sort="-at") == [*BY_DAY[-2::-1], "none"]
    for _, day, at in SHOWN[:4]:
        assert names(client, where=f"day = {day}") == names(client, where=f"at = {at}")
    assert names(client, where="at >= 58844-01-01", sort="at") == ["micros", "last", "whenever"]
    assert names(client, where="day < 0000-01-01", sort="day") == ["first", "caesar"]
    assert names(client, where="day in (2026-01-31, +058844-07-17)", sort="day") == ["now", "micros"]
    assert names(client, where="at not in (2026-01-31T12:00:00.5Z, -000043-03-15)", sort="name")[0] == "first"


@pytest.mark.parametrize("text", ["+294248-01-01", "+9999999-01-01T00:00:00Z", "58844-02-30", "+058844-07-17T25:00"])
def test_a_filter_value_that_no_row_can_hold_is_refused(client: TestClient, text: str) -> None:
    answer = client.get(ROWS, params={"where": f"at = {text}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_where")


def test_status_tells_a_record_time_of_any_64_bits(tmp_path: Path) -> None:
    with store(tmp_path) as database:
        client = client_of(database)
        assert client.get("/api/status").json()["newestRecord"] == "+292278994-08-17T07:12:55.807Z"
        for least, text in (
            (9_223_372_036_854_775_807, "+058844-07-17T00:00:00Z"),
            (-1, "-292275055-05-16T16:47:04.192Z"),
        ):
            with database.write() as cursor:
                cursor.execute(f"DELETE FROM g1.days_ui WHERE _ts >= {least}")
            assert client.get("/api/status").json()["newestRecord"] == text
        assert client.get("/metrics").status_code == 200


def test_windows_and_changes_show_the_same_texts(database: Database) -> None:
    with serving(application(database)) as url:
        shown = [list(row) for row in SHOWN]
        assert answer(url, type="window", sort="name").rows == shown
        kept = answer(url, type="window", where="at > +058844-01-01", sort="-at")
        assert [row[0] for row in kept.rows] == ["whenever", "last", "micros"]
        assert sorted(answer(url, type="changes").rows) == shown


def test_python_client_has_numbers_in_arrow_and_says_what_frames_hold(database: Database) -> None:
    with serving(application(database)) as url, turnout.connect(url) as connected:
        table = connected.table("days_ui")
        assert [tuple(row.values()) for row in table.rows(sort="name").rows] == SHOWN
        arrow = table.to_arrow(sort="name")
        assert table.rows(sort="name").to_arrow().equals(arrow.replace_schema_metadata(None))
        frame = table.to_pandas(sort="name")
        assert str(frame["day"].dtype) == "datetime64[ms]"
        assert int(frame["day"].astype("int64")[3]) == 1_794_787_200_000 * 1000
        assert str(table.to_pandas(where="name = now")["day"][0]) == "2026-01-31"
        assert table.to_polars(sort="name")["day"].to_list() == [day for _, day, _ in SHOWN]
        assert str(table.to_polars(where="name = now")["day"][0]) == "2026-01-31"


def test_watch_shows_them(database: Database) -> None:
    with (
        serving(application(database)) as url,
        turnout.connect(url) as connected,
        connected.table("days_ui").window(sort="name") as windows,
    ):
        window = windows.get(SECONDS)
    screen = Console(width=120, file=io.StringIO(), record=True)
    screen.print(picture(window, None))
    text = screen.export_text()
    assert all(shown in text for row in SHOWN for shown in row if shown is not None)
