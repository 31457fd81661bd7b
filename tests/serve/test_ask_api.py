"""Summaries and SQL over HTTP: shapes, formats, limits, and who may ask."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling, filled
from http_server import HTTP, SECONDS, application, patient, serving
from live_socket import Socket
from turnout.config import SqlAccess, load
from turnout.config.server import Role
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import create_app
from turnout.store.database import Database
from turnout.store.outgoing import SinkPosition
from turnout.store.query.sql_process import SqlProcess
from turnout.testing import patience, wait_until
from turnout_client.messages import Problem, TableDifference

OPS, WALL = "operator-token-0123456789", "viewer-token-0123456789"
FOREVER = "select sum(i % 7) from range(1000000000000) t(i)"


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    with filled(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture(scope="module")
def url(filling: Filling) -> Iterator[str]:
    with serving(application(filling.database)) as address:
        yield address


def limited(filling: Filling, **limits: Any) -> Any:
    """The application with other limits."""
    return create_app(patient(filling.database, **limits))


def summary(url: str, table: str = "final_ui", **query: Any) -> httpx.Response:
    return HTTP.get(f"{url}/api/tables/{table}/summary", params=query)


def sql(url: str, text: str, token: str = "", headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
    return HTTP.post(f"{url}/api/sql", json={"sql": text, **more}, headers=sent)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def tables_of(answers: dict[str, httpx.Response]) -> list[dict[str, list[Any]]]:
    """What the files hold."""
    read = {
        "csv": lambda content: pa_csv.read_csv(io.BytesIO(content)),
        "arrow": lambda content: pa.ipc.open_stream(content).read_all(),
        "parquet": lambda content: pa_parquet.read_table(io.BytesIO(content)),
    }
    return [read[kind](answer.content).to_pydict() for kind, answer in answers.items()]


def test_summary_answers_groups_of_one_moment(url: str) -> None:
    answer = summary(url, by="accountType", values="count,sum(balance)", sort="-count,accountType")
    assert answer.status_code == 200
    assert answer.json() == {
        "table": "final_ui",
        "generation": 1,
        "version": 1,
        "by": ["accountType"],
        "columns": [
            {"name": "accountType", "type": "string"},
            {"name": "count", "type": "int64"},
            {"name": "sum(balance)", "type": "double"},
        ],
        "groups": [
            {"accountType": "gold", "count": 1, "sum(balance)": 10.5},
            {"accountType": None, "count": 1, "sum(balance)": None},
        ],
        "total": 2,
    }


def test_summary_without_by_is_one_group_and_takes_bins_where_and_limit(url: str) -> None:
    assert summary(url).json()["groups"] == [{"count": 2}]
    assert summary(url, by="age:20").json()["groups"] == [{"age:20": 20, "count": 1}, {"age:20": 40, "count": 1}]
    assert summary(url, where="age>40", values="max(age)").json()["groups"] == [{"max(age)": 52}]
    found = summary(url, by="name", limit=1).json()
    assert (len(found["groups"]), found["total"]) == (1, 2)


def test_summary_has_all_formats_that_rows_have(url: str) -> None:
    answers = {kind: summary(url, by="name", format=kind) for kind in ("csv", "arrow", "parquet")}
    assert tables_of(answers) == [{"name": ["Ada", "Ben"], "count": [1, 1]}] * 3
    for answer in answers.values():
        assert (answer.headers["X-Turnout-Generation"], answer.headers["X-Turnout-Total"]) == ("1", "2")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"by": "nothing"}, "bad_by"),
        ({"by": "name:10"}, "bad_by"),
        ({"by": "name,age,email,userId"}, "bad_by"),
        ({"values": "sum(name)"}, "bad_values"),
        ({"values": "median(age)"}, "bad_values"),
        ({"values": "sum(nothing)"}, "bad_values"),
        ({"where": "nothing=1"}, "bad_where"),
        ({"by": "name", "sort": "age"}, "bad_sort"),
        ({"limit": "10001"}, "bad_parameter"),
        ({"limit": "-1"}, "bad_parameter"),
        ({"format": "xml"}, "bad_parameter"),
        ({"offset": "1"}, "unknown_parameter"),
    ],
)
def test_summary_that_is_wrong_says_what(url: str, query: dict[str, str], wanted: str) -> None:
    answer = summary(url, **query)
    assert code(answer) == (400, wanted)
    assert answer.json()["error"]["hint"]


def test_summary_of_no_table_is_not_found(url: str) -> None:
    assert code(summary(url, "nothing")) == (404, "unknown_table")


def test_summary_of_too_many_groups_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.store.query.summary_read.MAX_GROUPS", 1)
    assert code(summary(url, by="name")) == (400, "too_many_groups")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A store with a candidate: Ada is older, Ben is gone, and Cy came."""
    with filled(tmp_path_factory.mktemp("compared")) as filling:
        filling.generation()
        filling.batch(users=[{**USER_1, "age": 37}, {**USER_2, "userId": "u3", "name": "Cy"}], accounts=[GOLD_1])
        with filling.database.write() as cursor:
            cursor.execute("UPDATE turnout.published SET candidate = 2")
        filling.database.sinks.put("final_out", SinkPosition("final_ui", 100))
        yield filling.database


@pytest.fixture(scope="module")
def compared_url(compared: Database) -> Iterator[str]:
    with serving(application(compared)) as address:
        yield address


def difference(url: str, table: str = "final_ui", query: Any = None, token: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return HTTP.get(f"{url}/api/tables/{table}/difference", params=query or {}, headers=headers)


def test_difference_answers_counts_columns_sinks_and_rows(compared_url: str) -> None:
    answer = difference(compared_url).json()
    TableDifference.model_validate(answer)
    ada = {**USER_1, "accountType": "gold", "balance": 10.5}
    nobody = {**USER_2, "accountType": None, "balance": None}
    assert {name: value for name, value in answer.items() if name != "columns"} == {
        "table": "final_ui",
        "from": {"generation": 1, "version": 1, "lag": None},
        "to": {"generation": 2, "version": 1, "lag": None},
        "counts": {"added": 1, "removed": 1, "changed": 1, "same": 0},
        "total": 3,
        "key": ["userId"],
        "columnsOnlyIn": {"from": [], "to": []},
        "missing": None,
        "sinks": [{"sink": "final_out", "records": 4}],
        "rows": [
            {"change": "changed", "from": ada, "to": {**ada, "age": 37}},
            {"change": "removed", "from": nobody, "to": None},
            {"change": "added", "from": None, "to": {**nobody, "userId": "u3", "name": "Cy"}},
        ],
    }
    assert [(column["name"], column["type"], column["changed"]) for column in answer["columns"]][2:4] == [
        ("email", "string", 0),
        ("age", "int64", 1),
    ]
    assert difference(compared_url, query={"from": 1, "to": 2}).json() == answer
    back = difference(compared_url, query={"from": 2, "to": 1, "where": "age > 40", "sort": "-age", "limit": 1}).json()
    assert [row["change"] for row in back["rows"]] == ["added"]
    assert (back["counts"], back["total"]) == ({"added": 1, "removed": 1, "changed": 0, "same": 0}, 2)
    for change in ("added", "removed", "changed"):
        alone = difference(compared_url, query={"change": change}).json()
        assert alone == answer | {"total": 1, "rows": [row for row in answer["rows"] if row["change"] == change]}


def test_difference_has_all_formats_that_rows_have(compared_url: str) -> None:
    answers = {
        kind: difference(compared_url, query={"format": kind, "limit": 1}) for kind in ("csv", "arrow", "parquet")
    }
    for columns in tables_of(answers):
        assert (columns["change"], columns["from.age"], columns["to.age"]) == (["changed"], [36], [37])
    for answer in answers.values():
        numbers = ("From-Generation", "From-Version", "To-Generation", "To-Version", "Total")
        assert [answer.headers[f"X-Turnout-{name}"] for name in numbers] == ["1", "1", "2", "1", "3"]


@pytest.mark.parametrize(
    ("table", "query", "wanted"),
    [
        ("nothing", {}, (404, "unknown_table")),
        ("swaps", {}, (404, "unknown_table")),
        ("final_ui", {"from": 7}, (404, "unknown_generation")),
        ("final_ui", {"to": 1}, (400, "bad_parameter")),
        ("final_ui", {"to": "candidate"}, (400, "bad_parameter")),
        ("final_ui", {"change": "same"}, (400, "bad_parameter")),
        ("final_ui", {"columns": "age"}, (400, "unknown_parameter")),
        ("final_ui", {"where": "nothing = 1"}, (400, "bad_where")),
        ("final_ui", {"where": '_row = "1"'}, (400, "bad_where")),
        ("final_ui", {"sort": "_n"}, (400, "bad_sort")),
        ("final_ui", {"limit": 100_001}, (400, "bad_parameter")),
    ],
)
def test_wrong_difference_is_told(
    compared_url: str, table: str, query: dict[str, Any], wanted: tuple[int, str]
) -> None:
    assert code(difference(compared_url, table, query)) == wanted


def test_difference_without_a_candidate_says_so(url: str) -> None:
    assert code(difference(url)) == (409, "no_candidate")


def test_viewer_may_read_differences_and_nobody_without_a_token(compared: Database) -> None:
    tokens = Access(Tokens([(Identity("wall", Role.VIEWER), WALL)]))
    with serving(create_app(patient(compared), tokens)) as url:
        assert difference(url, token=WALL).status_code == 200
        assert code(difference(url)) == (401, "unauthorized")


def test_difference_is_bounded_in_time_and_size(compared: Database) -> None:
    with compared.write() as cursor:
        cursor.execute("INSERT INTO g2.users_ui (\"userId\", name) SELECT 'many', 'x' || i FROM range(500000) AS t(i)")
    try:
        with serving(create_app(patient(compared, query_timeout_seconds=0.01))) as url:
            assert code(difference(url, "users_ui")) == (503, "query_timeout")
        with serving(create_app(patient(compared, max_answer_megabytes=1))) as url:
            assert code(difference(url, "users_ui", {"limit": 100_000})) == (400, "answer_too_large")
            assert difference(url, "users_ui", {"limit": 10}).json()["counts"]["added"] == 500_001
    finally:
        with compared.write() as cursor:
            cursor.execute("DELETE FROM g2.users_ui WHERE \"userId\" = 'many'")


def test_sql_answers_as_rows_do(url: str) -> None:
    answer = sql(url, "select name, sum(age) as ages from users_ui group by all order by name")
    assert answer.json() == {
        "table": "sql",
        "tables": ["users_ui"],
        "generation": 1,
        "version": 0,
        "total": 2,
        "complete": True,
        "columns": [{"name": "name", "type": "string"}, {"name": "ages", "type": "int64"}],
        "rows": [{"name": "Ada", "ages": 36}, {"name": "Ben", "ages": 52}],
    }


def test_sql_is_bounded_and_says_that_there_is_more(url: str) -> None:
    answer = sql(url, "from range(100000)", limit=3).json()
    assert ([row["range"] for row in answer["rows"]], answer["complete"]) == ([0, 1, 2], False)
    assert len(sql(url, "from range(100000)").json()["rows"]) == 1_000
    assert code(sql(url, "select 1", limit=10_001)) == (422, "bad_body")


def test_sql_answers_values_of_all_types(url: str) -> None:
    text = """select 170141183460469231731687303715884105727::hugeint as huge, 7::utinyint as tiny, [1, 2] as list,
        {'a': date '2026-01-31'} as struct, timestamp '2026-01-31 12:00:00' as moment, 1.50 as decimal, 'x'::enum('x')
        as enum, time '10:00' as time, null as nothing, 'nan'::double as nan"""
    assert sql(url, text).json()["rows"] == [
        {
            "huge": "170141183460469231731687303715884105727",
            "tiny": 7,
            "list": [1, 2],
            "struct": {"a": "2026-01-31"},
            "moment": "2026-01-31T12:00:00.000000Z",
            "decimal": "1.50",
            "enum": "x",
            "time": "10:00:00",
            "nothing": None,
            "nan": None,
        }
    ]


def test_sql_has_all_formats_that_rows_have(url: str) -> None:
    text = "select name from users_ui order by name"
    answers = {kind: sql(url, text, format=kind) for kind in ("csv", "arrow", "parquet")}
    assert tables_of(answers) == [{"name": ["Ada", "Ben"]}] * 3
    assert answers["csv"].headers["X-Turnout-Complete"] == "1"


def test_sql_guards_a_csv_file(url: str) -> None:
    text = "select '=1+1' as formula"
    assert "'=1+1" in sql(url, text, format="csv", guard=True).text
    assert "'" not in sql(url, text, format="csv").text


def test_sql_guards_names_of_columns_and_wide_signs(url: str) -> None:
    text = 'select \'\uff1d1+1\' as "=cmd", timestamp \'20000-01-01\' as "@far", 5 as "a=b"'
    assert sql(url, text, format="csv", guard=True).text.splitlines() == [
        '"\'=cmd","\'@far","a=b"',
        '"\'\uff1d1+1","\'+020000-01-01 00:00:00.000000Z",5',
    ]
    assert "'" not in sql(url, text, format="csv").text


@pytest.mark.parametrize(
    "text",
    [
        "drop view users_ui",
        "select 1; select 2",
        "from read_csv('/etc/passwd')",
        "pragma version",
        "attach 'x.db'",
        "copy users_ui to '/tmp/x'",
        "from turnout.published",
        "from g1.users_ui",
        "select nothing from users_ui",
        "select 'a'::int",
        "select interval 1 day",
        "select 'a'::blob",
    ],
)
def test_sql_that_is_refused_is_an_error_of_the_one_shape(url: str, text: str) -> None:
    answer = sql(url, text)
    assert code(answer) == (422, "sql_refused")
    assert answer.json()["error"]["hint"]


def test_sql_of_a_list_as_csv_is_refused(url: str) -> None:
    answer = sql(url, "select 1 as a, [1] as b", format="csv")
    assert code(answer) == (422, "sql_refused")
    assert "'b'" in answer.json()["error"]["message"]


def test_column_without_a_form_is_named(url: str) -> None:
    text = "select 1 as a, interval 1 day as waited, 2 as c"
    assert "'waited'" in sql(url, text).json()["error"]["message"]
    with Socket(url) as live:
        live.send(type="sql", id="q", sql=text)
        problem = live.receive()
    assert isinstance(problem, Problem)
    assert (problem.id, problem.error.code) == ("q", "sql_refused")
    assert "'waited'" in problem.error.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"sql": 1}', b'{"sql": "select 1", "more": 1}', b"\xff"])
def test_sql_body_of_another_shape_is_refused(url: str, body: bytes) -> None:
    assert code(HTTP.post(f"{url}/api/sql", content=body)) == (422, "bad_body")


def test_sql_body_that_is_too_large_is_refused(url: str) -> None:
    assert code(HTTP.post(f"{url}/api/sql", content=b" " * 600_000)) == (413, "message_too_large")


def test_sql_that_is_not_sent_as_json_is_refused(url: str) -> None:
    answer = HTTP.post(f"{url}/api/sql", content=b"sql=1", headers={"Content-Type": "text/plain"})
    assert code(answer) == (415, "unsupported_media_type")


def test_sql_of_another_sites_page_is_refused(url: str) -> None:
    assert code(sql(url, "select 1", headers={"Origin": "https://evil.example"})) == (403, "foreign_origin")


def test_sql_through_a_proxy_is_refused_without_tokens(url: str) -> None:
    assert code(sql(url, "select 1", headers={"X-Forwarded-For": "10.0.0.1"})) == (403, "forbidden")


def test_sql_of_another_machine_is_refused_without_tokens(filling: Filling) -> None:
    made = application(filling.database)

    async def from_elsewhere(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "client": ("10.0.0.7", 50_000)}, receive, send)

    with serving(from_elsewhere) as url:
        assert code(sql(url, "select 1")) == (403, "forbidden")
        assert summary(url).status_code == 200


@pytest.mark.parametrize(
    ("who", "may"),
    [(SqlAccess.OPERATOR, {OPS}), (SqlAccess.VIEWER, {OPS, WALL}), (SqlAccess.OFF, set())],
)
def test_sql_is_run_for_those_whom_access_names(filling: Filling, who: SqlAccess, may: set[str]) -> None:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPS), (Identity("wall", Role.VIEWER), WALL)])
    app = create_app(patient(filling.database), Access(tokens, sql=who))
    with serving(app) as url:
        answers = {token: sql(url, "select 1", token) for token in (OPS, WALL)}
        assert {token for token, answer in answers.items() if answer.status_code == 200} == may
        assert {code(answer) for token, answer in answers.items() if token not in may} <= {(403, "forbidden")}
        assert code(sql(url, "select 1")) == (401, "unauthorized")


@pytest.mark.parametrize(("text", "wanted"), [("off", "off"), ("viewer", "viewer"), ('"off"', "off")])
def test_access_sql_is_read_from_yaml(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text(f"access: {{sql: {text}, tokens: [{{name: ops, role: operator, token: {OPS}}}]}}")
    found = load(file, {}).access
    assert found is not None
    assert found.sql == wanted


def test_sql_that_runs_for_ever_is_ended_and_nobody_else_notices(filling: Filling) -> None:
    with serving(limited(filling, query_timeout_seconds=patience(3))) as url:  # others are read in less
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(sql(url, FOREVER)))
        asking.start()
        while asking.is_alive():
            asking.join(0.2)  # all the time would be a load of its own
            assert summary(url, by="name").status_code == 200
            assert HTTP.get(f"{url}/api/tables/users_ui/rows").status_code == 200
        assert code(answers[0]) == (503, "query_timeout")
        # SQL has a low priority: on a busy machine even this one can meet the limit.
        wait_until(lambda: sql(url, "select 1").status_code == 200, what="an answer to another")


def test_short_sql_is_answered_beside_long_ones_of_the_same_client(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.reads._SLICE_SECONDS", SECONDS)
    begun: list[str] = []
    original = SqlProcess.ask

    def noted(process: SqlProcess, asked: dict[str, Any], *tables: Any) -> Any:
        begun.append(asked["sql"])
        return original(process, asked, *tables)

    monkeypatch.setattr(SqlProcess, "ask", noted)
    with serving(application(filling.database)) as url, Socket(url) as live:
        for number in range(2):
            live.send(type="sql", id=str(number), sql=FOREVER)
        wait_until(lambda: begun == [FOREVER] * 2, what="both are under way")
        assert sql(url, "select 1 as one").json()["rows"] == [{"one": 1}]
        assert live.silent()


def test_sql_ends_when_its_client_goes(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    original = SqlProcess.ask

    def watched(*arguments: Any) -> Any:
        try:
            return original(*arguments)
        finally:
            ended.set()

    monkeypatch.setattr(SqlProcess, "ask", watched)
    with serving(application(filling.database)) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/api/sql", json={"sql": FOREVER}, timeout=0.5)
        wait_until(ended.is_set)


def test_sql_that_needs_too_much_memory_is_refused(filling: Filling) -> None:
    with serving(limited(filling, sql_memory_limit="64MB")) as url:
        answer = sql(url, "select list(i) from range(100000000) t(i)")
        assert code(answer) == (422, "sql_refused")
        assert "64MB" in answer.json()["error"]["message"]


def test_sql_answer_of_too_many_bytes_is_refused(filling: Filling) -> None:
    with serving(limited(filling, max_answer_megabytes=1)) as url:
        assert code(sql(url, "select repeat('x', 1000) from range(2000)", limit=2_000)) == (400, "answer_too_large")
