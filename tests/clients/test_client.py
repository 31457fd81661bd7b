"""The client against real servers: what it returns, and what it says when the way there or the answer is wrong."""

from __future__ import annotations

import datetime
import decimal
import re
import socket
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import turnout
import turnout_client
from fake_orchestrator import STATUS
from http_server import SECONDS, application, serving, small_store
from turnout.errors import TurnoutError
from turnout_client import Client, Rows, State, WindowOptions, connect, frames, wire


async def echo(request: Request) -> Response:
    """Answers with what it was sent."""
    sent = await request.json()
    if sent.get("expectedGeneration") == 99:
        error = TurnoutError(code="generation_conflict", message="generation 1 is published", hint="ask again")
        return JSONResponse(error.as_json(), 409)
    query = dict(request.query_params)
    return JSONResponse(
        {
            "sent": sent,
            "query": query,
            "authorization": request.headers.get("authorization"),
            "client": request.headers.get("x-turnout-client"),
        }
    )


async def no_turnout(_: Request) -> Response:
    return PlainTextResponse("hello")


KINDS = """
CREATE TABLE g1.kinds (_id BIGINT, s VARCHAR, b BOOLEAN, i INTEGER, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(20,2),
                       day DATE, t TIMESTAMP WITH TIME ZONE);
INSERT INTO g1.kinds VALUES
  (1, '<b>&"x', true, -7, 9007199254740993, 0.1, 1e300, 123456789012345678.90, '2026-01-31', '2026-01-31 12:00:00.5Z'),
  (2, '', false, 0, 0, 0, 0, 0, '1900-01-01', '1900-01-01 00:00:00+00'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO g1.versions VALUES ('kinds', 1);
CREATE VIEW main.kinds AS FROM g1.kinds;
CREATE TABLE g1.many AS SELECT i AS _id, i AS n, 'row ' || i AS name FROM range(120000) r(i);
INSERT INTO g1.versions VALUES ('many', 1);
CREATE VIEW main.many AS FROM g1.many;
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with small_store(tmp_path_factory.mktemp("store")) as database:
        with database.write() as cursor:
            cursor.execute(KINDS)
        with serving(application(database)) as url, connect(url) as client:
            yield client


@pytest.fixture(scope="module")
def echoing() -> Iterator[str]:
    routes = [
        Route("/api/control", echo, methods=["POST"]),
        Route("/api/rollback", echo, methods=["POST"]),
        *(Route(f"/api/{action}", echo, methods=["POST"]) for action in ("cancel", "publish", "discard")),
        Route("/api/status", no_turnout),
    ]
    with serving(Starlette(routes=routes)) as url:
        yield url


@pytest.mark.parametrize(
    ("url", "proxy", "read"),
    [
        ("http://127.0.0.1:1", None, False),
        ("https://127.0.0.1:1", None, True),
        ("http://127.0.0.1:1", "https://127.0.0.1:2", True),
    ],
)
def test_certificates_are_read_only_where_tls_is_spoken(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None, read: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    if proxy:
        monkeypatch.setenv("http_proxy", proxy)
    asked: list[object] = []
    make = ssl.create_default_context

    def counted(*given: Any, **more: Any) -> ssl.SSLContext:
        asked.append(more)
        return make(*given, **more)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    connect(url).close()
    assert bool(asked) is read


def test_tables_have_columns_and_counts(client: Client) -> None:
    users = next(table for table in client.tables() if table["name"] == "users_ui")
    assert (users["rows"], users["generation"], users["version"]) == (3, 1, 5)
    assert users["columns"][2] == {"name": "age", "type": "int64"}


def test_rows_are_those_of_the_window(client: Client) -> None:
    window = client.rows("users_ui", columns=["name", "age"], where=["age > 30"], sort=["-age"], limit=1)
    assert window.rows == ({"name": "[b]Cy", "age": 52},)
    assert (window.table, window.generation, window.version, window.total) == ("users_ui", 1, 5, 2)
    assert client.rows("users_ui", offset=2).rows[0]["userId"] == "u3"


def test_unknown_option_is_an_error_of_the_call(client: Client) -> None:
    for call in (client.rows, client.arrow):
        with pytest.raises(TypeError, match="wher"):
            call("users_ui", wher="age > 30")  # type: ignore[call-arg]


def test_rows_as_json_have_the_shape_of_the_api(client: Client) -> None:
    assert list(client.rows("users_ui").as_json()) == ["table", "generation", "version", "total", "columns", "rows"]


def test_status_and_swaps_are_told(client: Client) -> None:
    assert client.status().items() >= STATUS.items()
    assert [(swap["generation"], swap["outcome"]) for swap in client.swaps()] == [(1, "applied")]


def test_error_of_the_server_is_the_same_error_here(client: Client) -> None:
    with pytest.raises(TurnoutError) as raised:
        client.rows("user_ui")
    assert (raised.value.code, raised.value.status) == ("unknown_table", 404)
    assert "users_ui" in raised.value.hint


@pytest.mark.parametrize("name", ["a/b", "a b?c#d", "../status", "é"])
def test_table_name_is_never_a_path(client: Client, name: str) -> None:
    with pytest.raises(TurnoutError) as raised:
        client.rows(name)
    assert raised.value.status == 404


def test_control_sends_the_message_and_the_token(echoing: str) -> None:
    with connect(f"{echoing}/", "s3cret") as client:
        answer = client.control({"usersTopic": "users2"})
        assert answer == {
            "sent": {"usersTopic": "users2"},
            "query": {},
            "authorization": "Bearer s3cret",
            "client": "python",
        }
        assert client.control({}, wait=False)["query"] == {"wait": "false"}
        assert client.rollback({"requestId": "r"})["sent"] == {"requestId": "r"}
        for action in (client.cancel, client.publish, client.discard):
            assert action({"requestId": "c"})["sent"] == {"requestId": "c"}


def test_conflict_is_an_error_with_its_status(echoing: str) -> None:
    with connect(echoing) as client, pytest.raises(TurnoutError) as raised:
        client.control({"expectedGeneration": 99})
    assert (raised.value.code, raised.value.status, raised.value.hint) == ("generation_conflict", 409, "ask again")


def test_answer_of_another_server_is_named_as_such(echoing: str) -> None:
    with connect(echoing) as client, pytest.raises(TurnoutError, match="200 OK, not as Turnout does") as raised:
        client.status()
    assert raised.value.code == "bad_answer"


def test_unreachable_server_is_told_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with connect(f"http://127.0.0.1:{taken.getsockname()[1]}") as client, pytest.raises(TurnoutError) as raised:
            client.status()
    assert (raised.value.code, raised.value.status) == ("server_unreachable", 503)
    assert "nothing listens there" in raised.value.message
    assert "turnout run" in raised.value.hint


@pytest.mark.parametrize("url", ["", "localhost:10000", "ftp://x", "http://", "http://me:secret@host", "http://x:y"])
def test_unusable_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(TurnoutError) as raised:
        connect(url)
    assert raised.value.code == "bad_url"
    assert "secret" not in str(raised.value)


def test_token_that_no_header_carries_is_refused_and_not_shown() -> None:
    with pytest.raises(TurnoutError) as raised:
        connect("http://127.0.0.1:1", "to\nken")
    assert raised.value.code == "bad_token"
    assert "ken" not in raised.value.message.replace("token", "")


def test_token_file_with_a_line_break_at_its_end_works(echoing: str, tmp_path: Path) -> None:
    with connect(echoing, "s3cret\n") as client:
        assert client.control({})["authorization"] == "Bearer s3cret"


# -- tables


def test_table_has_names_and_types_of_its_columns(client: Client) -> None:
    table = client.table("users_ui")
    assert table.schema == {"userId": "string", "name": "string", "age": "int64"}
    assert table.columns == ("userId", "name", "age")
    assert repr(table) == "<Table users_ui>"


def test_table_rows_are_those_of_the_window(client: Client) -> None:
    window = client.table("users_ui").rows(columns="name", where="age > 30", sort="-age", offset=1, limit=5)
    assert (window.rows, window.total) == (({"name": "Ada"},), 2)


def test_where_takes_terms_as_mappings(client: Client) -> None:
    terms: list[Any] = [{"column": "name", "op": "in", "value": ["Ada", "[b]Cy"]}, "age < 50"]
    assert [row["name"] for row in client.table("users_ui").rows(where=terms).rows] == ["Ada"]
    assert client.table("users_ui").to_arrow(where=terms).num_rows == 1
    with client.table("users_ui").window(where=terms) as windows:
        assert [row["name"] for row in windows.get(SECONDS).rows] == ["Ada"]


def test_table_as_arrow_has_types_and_its_position(client: Client) -> None:
    table = client.table("kinds").to_arrow(sort="-i", limit=2)
    first = table.to_pylist()[1]
    assert first["l"] == 9007199254740993
    assert first["n"] == decimal.Decimal("123456789012345678.90")
    assert first["t"] == datetime.datetime(2026, 1, 31, 12, 0, 0, 500_000, datetime.UTC)
    assert table.schema.metadata == {b"turnout.generation": b"1", b"turnout.version": b"1", b"turnout.total": b"3"}


def test_table_as_arrow_has_all_rows_of_a_large_table(client: Client) -> None:
    table = client.table("many").to_arrow()
    assert table.column("n").to_pylist() == list(range(120_000))


def test_rows_and_mirror_have_the_types_that_the_download_has(client: Client) -> None:
    table = client.table("kinds")
    downloaded = table.to_arrow()
    assert table.rows().to_arrow().equals(downloaded)
    with table.changes() as changes:
        assert changes.wait(SECONDS).mirror.to_arrow().equals(downloaded)
    with table.window() as windows:
        assert windows.get(SECONDS).to_arrow().equals(downloaded)


def test_mirror_of_a_table_that_comes_in_parts_has_all_of_it(client: Client) -> None:
    with client.table("many").changes() as changes:
        assert changes.wait(SECONDS).mirror.to_arrow().column("n").to_pylist() == list(range(120_000))


def test_table_as_data_frames(client: Client) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = client.table("users_ui")
    assert list(table.to_pandas(sort="-age", columns="name").name) == ["[b]Cy", "Ada", "Ben"]
    assert table.to_polars(limit=2).rows() == [("u1", "Ada", 36), ("u2", "Ben", None)]
    rows = table.rows(limit=1)
    assert isinstance(rows.to_pandas(), pandas.DataFrame) and isinstance(rows.to_polars(), polars.DataFrame)


def test_missing_package_is_told_with_its_remedy() -> None:
    with pytest.raises(TurnoutError) as raised:
        frames.need("pandas_that_nobody_has")
    remedy = re.match(
        r"pandas_that_nobody_has is not installed; pip install 'turnout-client\[(\w+)\]'", str(raised.value)
    )
    file = Path(__file__).parents[2] / "clients/python/pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))
    assert remedy is not None
    extra = " ".join(project["project"]["optional-dependencies"][remedy[1]])
    assert "pandas" in extra and "polars" in extra and "anywidget" in extra and "pyarrow" in extra


def test_error_of_an_arrow_download_is_the_servers(client: Client) -> None:
    with pytest.raises(TurnoutError) as raised:
        client.table("users_ui").to_arrow(where="age = old")
    assert raised.value.code == "bad_where"


async def broken_arrow(request: Request) -> Response:
    """An answer that is no Arrow stream, or one that ends too soon."""
    if request.path_params["name"] == "text":
        return PlainTextResponse("hello")
    whole = pa.BufferOutputStream()
    table = pa.table({"n": list(range(50_000))})
    with pa.ipc.new_stream(whole, table.schema) as writer:
        writer.write_table(table)
    return Response(whole.getvalue().to_pybytes()[: 4 if request.path_params["name"] == "short" else 100_000])


@pytest.mark.parametrize("name", ["text", "short", "cut"])
def test_download_that_is_no_arrow_stream_is_named_as_such(name: str) -> None:
    routes = [Route("/api/tables/{name}/rows", broken_arrow)]
    with (
        serving(Starlette(routes=routes)) as url,
        connect(url) as client,
        pytest.raises(TurnoutError, match="answered no Arrow stream") as raised,
    ):
        client.table(name).to_arrow()
    assert raised.value.code == "bad_answer"


def test_download_that_takes_too_long_says_how_long_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To connect has another limit than to wait for a file, which the server writes whole before it sends it."""
    monkeypatch.setattr("turnout_client.http._READ_TIMEOUT", httpx.Timeout(30, read=0.25))
    ended = threading.Event()

    async def silent(_: Request) -> Response:
        await anyio.to_thread.run_sync(ended.wait)
        return Response()

    routes = [Route("/api/tables/{name}/rows", silent), Route("/api/sql", silent, methods=["POST"])]
    with serving(Starlette(routes=routes)) as url, connect(url) as client:
        try:
            for download in (client.table("users_ui").to_arrow, lambda: client.sql("select 1")):
                with pytest.raises(TurnoutError, match=r"it took longer than 0\.25 s"):
                    download()
        finally:
            ended.set()


# -- notebooks


def test_notebook_shows_the_first_rows_and_escapes_them(client: Client) -> None:
    shown = client.table("kinds")._repr_html_()
    assert "<b>kinds</b>" in shown and "generation 1" in shown and "3 rows" in shown
    assert "&lt;b&gt;&amp;&quot;x" in shown and '<b>&"x' not in shown
    assert "<i>null</i>" in shown and "<td>true</td>" in shown


def test_notebook_shows_hostile_names_and_long_texts_as_text() -> None:
    columns = ({"name": "<script>", "type": '"><i>'},)
    shown = Rows("<img>", 1, 1, 1, columns, ({"<script>": "x" * 1_000},))._repr_html_()
    assert "<script>" not in shown and "<img>" not in shown and '"><i>' not in shown
    assert "x" * 201 not in shown


def test_notebook_shows_an_error_in_place_of_rows() -> None:
    with connect("http://127.0.0.1:9") as client:
        assert "nothing listens there" in client.table("<x>")._repr_html_()
        assert "<x>" not in client.table("<x>")._repr_html_()


# -- what people see of it


def test_answers_print_as_short_tables(client: Client) -> None:
    assert repr(client.rows("users_ui", sort="userId", columns="userId,name,age")) == (
        "users_ui: 3 of 3 rows, generation 1, version 5\n"
        "userId  name   age\n"
        "u1      Ada    36\n"
        "u2      Ben    null\n"
        "u3      [b]Cy  52"
    )
    many = repr(client.rows("many", limit=1_000)).splitlines()
    assert (len(many), many[0], many[-1]) == (8, "many: 1,000 of 120,000 rows, generation 1, version 1", "... 995 more")
    with client.table("users_ui").window(sort="userId") as windows:
        assert repr(windows.get(SECONDS)).startswith("users_ui: 3 of 3 rows")
    assert repr(client.table("users_ui").summary(by="age")).startswith("users_ui: 3 of 3 groups")
    assert repr(client.table("users_ui").summary()).endswith("\ncount\n3")


def test_printed_values_are_cut_and_have_no_commands_of_a_terminal() -> None:
    columns = tuple({"name": f"c{number}", "type": "string"} for number in range(20))
    row = {column["name"]: "\x1b[2J\n" + "x" * 1_000 for column in columns}
    head, *lines = repr(Rows("t", 1, 1, 1, columns, (row,))).splitlines()
    assert len(lines) == 2 and all(line.isprintable() and len(line) < 240 for line in lines)
    assert head == "t: 1 of 1 row, generation 1, version 1"


def test_changes_print_as_counts(client: Client) -> None:
    with client.table("users_ui").changes() as changes:
        told = repr(changes.get(SECONDS))
    assert told == "<Changes of users_ui: 3 inserted, 0 updated, 0 deleted, generation 1, version 5>"


def test_table_that_does_not_exist_is_told_at_its_first_use_with_those_that_do(client: Client) -> None:
    table = client.table("nope")
    for use in (table.rows, table.summary, table.to_arrow, lambda: table.schema):
        with pytest.raises(TurnoutError, match=r"no table 'nope'; tables: .*users_ui"):
            use()


def test_hints_are_for_python() -> None:
    with connect("http://127.0.0.1:9") as client, pytest.raises(TurnoutError) as raised:
        client.status()
    assert raised.value.hint.endswith("or give its address: connect(url)")
    with pytest.raises(TurnoutError, match=r"check the token: connect\(url, token\)"):
        connect(token="a\nb")
    refused = wire.problem({"error": {"code": "unauthorized", "message": "no token", "hint": "send a header"}}, 401)
    assert str(refused) == "no token; give a token of the server: connect(url, token)"


def test_completion_offers_the_public_names_alone() -> None:
    assert dir(turnout) == ["TurnoutError", "__version__", "connect"]
    assert dir(turnout_client) == sorted(turnout_client.__all__)


def test_every_public_name_is_described() -> None:
    kinds = [getattr(turnout_client, name) for name in turnout_client.__all__ if name != "DEFAULT_URL"]
    missing = [kind.__name__ for kind in kinds if not kind.__doc__]
    for kind in kinds:
        members = vars(kind).items() if isinstance(kind, type) else ()
        described = {name: member for name, member in members if callable(member) or isinstance(member, property)}
        missing += [f"{kind.__name__}.{name}" for name, one in described.items() if name[0] != "_" and not one.__doc__]
    assert missing == []


# -- the package


def test_package_has_connect_and_loads_the_client_only_then() -> None:
    code = "import sys, turnout; print('httpx' in sys.modules, callable(turnout.connect), 'httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
    assert turnout.connect is connect
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = turnout.conect


def test_client_loads_nothing_that_its_calls_do_not_need() -> None:
    heavy = {"anywidget", "pyarrow", "websockets", "pandas", "polars", "pydantic", "duckdb", "starlette"}
    code = f"import sys; import turnout_client.client; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_pinned() -> None:
    assert turnout_client.__all__ == [
        "DEFAULT_URL", "Changes", "ChangesSubscription", "Client", "Difference", "DifferenceSubscription",
        "HistoryPoint", "LiveSummaryOptions", "Mirror", "Rows", "Snapshot", "SqlRows", "SqlSubscription", "State",
        "Subscription", "Summary", "SummaryOptions", "SummarySubscription", "SwapMoment", "Table", "TurnoutError",
        "Window", "WindowOptions", "WindowSubscription", "connect",
    ]  # fmt: skip
    assert turnout.__all__ == ["TurnoutError", "__version__", "connect"]


def test_reference_has_every_public_name() -> None:
    page = Path(__file__).parents[2].joinpath("docs/reference/python.md").read_text(encoding="utf-8")
    kinds = [getattr(turnout_client, name) for name in turnout_client.__all__]
    options = (WindowOptions, turnout_client.SummaryOptions, turnout_client.LiveSummaryOptions)
    classes = [kind for kind in kinds if isinstance(kind, type) and kind not in (State, TurnoutError, *options)]
    assert len(classes) == 18
    names = {f"{kind.__name__}.{name}" for kind in classes for name in dir(kind) if not name.startswith("_")}
    names |= {f"State.{state}" for state in State}
    missing = {name for name in names if not re.search(rf"\b{name.rpartition('.')[2]}\b", page)}
    assert not missing
