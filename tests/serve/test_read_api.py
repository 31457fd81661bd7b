"""The HTTP calls against a real server: answers, files, errors, headers, and its start and stop."""

import asyncio
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator
from http_server import SECONDS
from turnout.errors import TurnoutError
from turnout.serve.app import Server, Services, create_app
from turnout.store.database import Database
from turnout.swap.control_queue import QueuedMessage
from turnout.swap.health import Readiness

ROWS = "/api/tables/users_ui/rows"


class NoQueue:
    """The queue of calls that only read."""

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        raise AssertionError("no reading call needs the queue")


class ReadOrchestrator(FakeOrchestrator):
    """An orchestrator to which no message may be sent, and whose readiness a test changes."""

    def __init__(self) -> None:
        super().__init__(NoQueue())
        self.ready = Readiness(True, "generation 1 is published")

    def readiness(self) -> Readiness:
        return self.ready


class Running:
    """A server on a free port, in a thread of its own."""

    def __init__(self, services: Services) -> None:
        self.server = Server(create_app(services), "127.0.0.1", 0)
        self.ports: list[int] = []
        ready = threading.Event()

        def on_ready(port: int) -> None:
            self.ports.append(port)
            ready.set()

        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.run_until_stop(on_ready)))
        self.thread.start()
        assert ready.wait(SECONDS)

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def publish(database: Database, number: int) -> None:
    with database.write() as cursor:
        cursor.execute(f"""
            UPDATE turnout.published SET generation = {number};
            CREATE OR REPLACE VIEW main.users_ui AS SELECT * FROM g{number}.users_ui;
        """)


@contextmanager
def store(folder: Path) -> Iterator[Database]:
    opened = Database.open(folder)
    with opened.write() as cursor:
        for number in (1, 2):
            cursor.execute(f"""
                CREATE SCHEMA g{number};
                CREATE TABLE g{number}.versions AS SELECT 'users_ui' AS name, {number * 10}::BIGINT AS version;
                CREATE TABLE g{number}.users_ui (_id BIGINT, "userId" VARCHAR, age BIGINT, balance DOUBLE,
                    ratio FLOAT, price DECIMAL(10,2), born DATE, seen TIMESTAMP WITH TIME ZONE, active BOOLEAN);
                INSERT INTO g{number}.users_ui VALUES
                    (1, 'g{number}', 30, 'NaN', 0.1, 1.50, '2026-01-31', '2026-01-31 12:00:00.5Z', true),
                    (2, 'é, "x"\n<b>', NULL, 'Infinity', NULL, NULL, NULL, NULL, NULL),
                    (3, '', 9007199254740993, -1.5, -2, -0.01, '1969-01-01', '1969-12-31 23:59:59Z', false);
            """)
    publish(opened, 1)
    yield opened
    opened.close()


# One store and one application for all tests that only read.


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with store(tmp_path_factory.mktemp("store")) as database:
        yield Services(database, ReadOrchestrator())


@pytest.fixture(scope="module")
def client(services: Services) -> TestClient:
    return TestClient(create_app(services), raise_server_exceptions=False)


@pytest.fixture
def own_services(tmp_path: Path) -> Iterator[Services]:
    with store(tmp_path) as database:
        yield Services(database, ReadOrchestrator())


@pytest.fixture
def own_client(own_services: Services) -> TestClient:
    return TestClient(create_app(own_services), raise_server_exceptions=False)


def error_of(answer: httpx.Response | httpx2.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error: dict[str, str] = answer.json()["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == code
    return error


def test_rows_answer_has_exactly_the_agreed_shape(client: TestClient) -> None:
    answer = client.get(ROWS, params={"limit": 1})
    assert answer.json() == {
        "table": "users_ui",
        "generation": 1,
        "version": 10,
        "total": 3,
        "columns": [
            {"name": "userId", "type": "string"},
            {"name": "age", "type": "int64"},
            {"name": "balance", "type": "double"},
            {"name": "ratio", "type": "float"},
            {"name": "price", "type": "decimal(10,2)"},
            {"name": "born", "type": "date"},
            {"name": "seen", "type": "timestamp"},
            {"name": "active", "type": "boolean"},
        ],
        "rows": [
            {
                "userId": "g1",
                "age": 30,
                "balance": None,
                "ratio": 0.1,
                "price": "1.50",
                "born": "2026-01-31",
                "seen": "2026-01-31T12:00:00.500000Z",
                "active": True,
            }
        ],
    }


def test_rows_as_json_keep_nulls_signs_and_large_numbers(client: TestClient) -> None:
    rows = client.get(ROWS, params={"offset": 1}).json()["rows"]
    assert rows[0] == dict.fromkeys(rows[0]) | {"userId": 'é, "x"\n<b>'}
    assert rows[1]["age"] == 9007199254740993
    assert (rows[1]["ratio"], rows[1]["price"]) == (-2.0, "-0.01")
    assert (rows[1]["born"], rows[1]["seen"]) == ("1969-01-01", "1969-12-31T23:59:59.000000Z")


def test_rows_take_where_sort_columns_and_repeats(client: TestClient) -> None:
    query = [("where", "age is not null"), ("where", "active in (true, false)"), ("sort", "-age")]
    answer = client.get(ROWS, params=[*query, ("columns", "age,userId")]).json()
    assert answer["total"] == 2
    assert answer["rows"] == [{"age": 9007199254740993, "userId": ""}, {"age": 30, "userId": "g1"}]
    assert list(answer["rows"][0]) == ["age", "userId"]


def test_rows_of_a_generation_are_read_by_its_number(client: TestClient) -> None:
    answer = client.get("/api/tables/users_ui@2/rows").json()
    assert (answer["table"], answer["generation"], answer["version"]) == ("users_ui@2", 2, 20)
    assert answer["rows"][0]["userId"] == "g2"


def test_arrow_file_reads_back(client: TestClient) -> None:
    answer = client.get(ROWS, params={"format": "arrow"})
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.headers["x-turnout-generation"] == "1"
    assert answer.headers["x-turnout-version"] == "10"
    assert answer.headers["x-turnout-total"] == "3"
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("age").to_pylist() == [30, None, 9007199254740993]
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    assert table.column_names[0] == "userId"


def test_parquet_file_reads_back(client: TestClient) -> None:
    answer = client.get(ROWS, params={"format": "parquet", "where": "age=30"})
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = pa_parquet.read_table(io.BytesIO(answer.content))
    assert table.column("userId").to_pylist() == ["g1"]
    assert str(table.schema.field("seen").type) == "timestamp[us, tz=UTC]"


def test_csv_file_reads_back_with_text_and_nulls_apart(client: TestClient) -> None:
    answer = client.get(ROWS, params={"format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="users_ui.csv"')
    options = pa_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    table = pa_csv.read_csv(io.BytesIO(answer.content), parse_options=parse, convert_options=options)
    assert table.column("userId").to_pylist() == ["g1", 'é, "x"\n<b>', ""]
    assert table.column("age").to_pylist() == [30, None, 9007199254740993]


def test_files_have_all_rows_and_an_empty_one_still_its_columns(own_client: TestClient, own_services: Services) -> None:
    client, database = own_client, own_services.database
    with database.write() as cursor:
        cursor.execute("""INSERT INTO g1.users_ui (_id, "userId") SELECT i + 10, 'u' || i FROM range(150000) t(i)""")
    for kind in ("arrow", "parquet", "csv"):
        params = {"format": kind, "columns": "userId,age", "where": "userId starts with u"}
        assert read_file(kind, client.get(ROWS, params=params).content).num_rows == 150_000
        empty = read_file(kind, client.get(ROWS, params=params | {"limit": "0"}).content)
        assert (empty.num_rows, empty.column_names) == (0, ["userId", "age"])


def read_file(kind: str, body: bytes) -> pa.Table:
    if kind == "arrow":
        return pa.ipc.open_stream(body).read_all()
    return pa_parquet.read_table(io.BytesIO(body)) if kind == "parquet" else pa_csv.read_csv(io.BytesIO(body))


def test_tables_lists_every_table(client: TestClient) -> None:
    tables = {table["name"]: table for table in client.get("/api/tables").json()["tables"]}
    users = tables["users_ui"]
    assert (users["rows"], users["generation"], users["version"]) == (3, 1, 10)
    assert users["columns"][0] == {"name": "userId", "type": "string"}
    assert "swaps" in tables


def test_status_and_swaps_answer(client: TestClient) -> None:
    assert client.get("/api/status").json()["usersTopic"] == "users"
    swaps = client.get("/api/swaps").json()
    assert (swaps["table"], swaps["rows"]) == ("swaps", [])


def test_health_and_readiness_answer(own_client: TestClient, own_services: Services) -> None:
    client, services = own_client, own_services
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    assert isinstance(services.orchestrator, ReadOrchestrator)
    services.orchestrator.ready = Readiness(False, "generation 1 has 40% of its records", "building", "wait")
    error = error_of(client.get("/readyz"), 503, "building")
    assert (error["message"], error["hint"]) == ("generation 1 has 40% of its records", "wait")


@pytest.mark.parametrize(
    ("query", "code", "part"),
    [
        ("limit=x", "bad_parameter", "limit: not a whole number"),
        ("limit=-1", "bad_parameter", "'-1'"),
        ("limit=", "bad_parameter", "limit"),
        ("offset=99999999999999999999", "bad_parameter", "offset"),
        ("limit=100001", "bad_parameter", "too many for JSON"),
        ("limit=1&limit=2", "bad_parameter", "2 times"),
        ("format=xml", "bad_parameter", "unknown 'xml'"),
        ("lmit=1", "unknown_parameter", "'lmit'"),
        ("where=age", "bad_where", "no operator"),
        ("where=age%3Dold", "bad_where", "'old' is not int64"),
        ("where=_id%3D1", "bad_where", "no column '_id'"),
        ("where=1%3D1%3Bdrop", "bad_where", "no column '1'"),
        ("sort=nope", "bad_sort", "no column 'nope'"),
        ("columns=_id", "bad_columns", "no column '_id'"),
        ("format=csv&sort=nope", "bad_sort", "no column"),
    ],
)
def test_bad_parameters_are_refused_with_the_reason(client: TestClient, query: str, code: str, part: str) -> None:
    error = error_of(client.get(f"{ROWS}?{query}"), 400, code)
    assert part in error["message"]
    assert error["hint"]


@pytest.mark.parametrize(
    "name", ["nope", "users_ui@7", "turnout.published", "g1.users_ui", "users_ui%22%3B--", "%00", "..", "users_ui%20"]
)
def test_unknown_tables_are_refused_as_json(client: TestClient, name: str) -> None:
    answer = client.get(f"/api/tables/{name}/rows")
    error_of(answer, 404, "not_found" if name == ".." else "unknown_table")


@pytest.mark.parametrize(
    "path",
    [
        *("/api", "/api/nope", "/api/tables/", "/api/tables/a%2Fb/rows", "/api/tables/..%2f..%2fetc%2fpasswd/rows"),
        *("/static/..%2fapi.py", "/static/%2e%2e/app.py", "/static/nope.js", "/nope", "/static/"),
    ],
)
def test_unknown_paths_are_refused_as_json(client: TestClient, path: str) -> None:
    error_of(client.get(path), 404, "not_found")


def test_wrong_method_is_refused_as_json(client: TestClient) -> None:
    answer = client.post("/api/tables")
    error_of(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["allow"]


def test_fault_of_ours_hides_its_internals(services: Services) -> None:
    class Broken(ReadOrchestrator):
        def status(self) -> dict[str, Any]:
            raise RuntimeError("secret detail")

    client = TestClient(create_app(Services(services.database, Broken())), raise_server_exceptions=False)
    answer = client.get("/api/status")
    error_of(answer, 500, "internal_error")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_closed_store_is_unavailable(own_client: TestClient, own_services: Services) -> None:
    own_services.database.close()
    for path in ("/api/tables", ROWS, f"{ROWS}?format=parquet"):
        error_of(own_client.get(path), 503, "store_unavailable")


@pytest.mark.parametrize("path", ["/", "/api/tables", ROWS, f"{ROWS}?format=csv", "/nope", "/static/page.js"])
def test_every_answer_has_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"


def test_page_is_served_with_its_parts_and_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    parts = re.findall(r'(?:src|href)="([^"#][^"]*)"', page.text)
    assert any(part.endswith(".js") for part in parts)
    for part in parts:
        assert part.startswith("/static/"), part
        assert client.get(part).status_code == 200, part


def test_server_reports_its_real_port_and_stops_though_a_client_stays(services: Services) -> None:
    running = Running(services)
    assert running.ports == [running.server.port]
    assert running.server.port > 0
    with httpx.Client(base_url=running.server.url, timeout=SECONDS) as client:
        assert client.get("/healthz").status_code == 200
        # The client's idle connection stays open, and must not hold the server back.
        running.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(running.server.url)


def test_server_on_a_port_in_use_says_so(services: Services) -> None:
    running = Running(services)
    try:
        with pytest.raises(TurnoutError, match=f"cannot listen on 127.0.0.1:{running.server.port}"):
            Server(create_app(services), "127.0.0.1", running.server.port)
    finally:
        running.stop()


def test_readers_see_one_moment_while_generations_are_published(own_services: Services) -> None:
    services = own_services
    running = Running(services)
    done = threading.Event()

    def republish() -> None:
        number = 1
        while not done.is_set():
            publish(services.database, number)
            number = 3 - number
            done.wait(0.001)  # or it takes a core for itself

    writer = threading.Thread(target=republish)
    writer.start()
    seen: set[int] = set()
    try:
        with httpx.Client(base_url=running.server.url, timeout=SECONDS) as client:
            reads = 0
            while reads < 25 or seen != {1, 2}:
                reads += 1
                assert writer.is_alive()
                answer = client.get(ROWS).json()
                generation = answer["generation"]
                assert answer["rows"][0]["userId"] == f"g{generation}"
                assert answer["version"] == generation * 10
                file = client.get(ROWS, params={"format": "arrow"})
                first = pa.ipc.open_stream(file.content).read_all().column("userId")[0].as_py()
                assert first == f"g{file.headers['x-turnout-generation']}"
                seen.add(generation)
    finally:
        done.set()
        writer.join()
        running.stop()
