"""MCP: the tools of agents over HTTP and over standard input, by the SDK's own client, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_orchestrator import FakeOrchestrator
from filled_store import Filling
from http_server import HTTP, patient, serving
from mcp_agent import Agent, talk
from turnout.config import McpAccess, Role, SqlAccess
from turnout.errors import ERRORS
from turnout.plan.control import Outcome
from turnout.plan.control_parsing import parse_message
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.agent_tools import MAX_ROWS, RIGHTS, AgentTools, Rights
from turnout.serve.app import create_app
from turnout.serve.limits import Rate, Rates
from turnout.serve.mcp_server import MAX_ANSWER_BYTES, MAX_BODY_BYTES
from turnout.store.database import Database
from turnout.store.ledger import MessageRecord
from turnout.swap.control_queue import QueuedMessage, Reply

USERS = 300
OPS, WALL = "0123456789abcdef-ops", "0123456789abcdef-wall"
READING = {name for name, needs in RIGHTS.items() if needs == Rights()}
TRANSPORTS = ("http", "stdio")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Taking(FakeOrchestrator):
    """An orchestrator that keeps the messages that it gets, and answers all in the same way."""

    def __init__(self, answer: Reply) -> None:
        super().__init__(queue=self)
        self.answer = answer
        self.taken: list[tuple[dict[str, Any], str]] = []

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        self.taken.append((json.loads(raw), requester))
        queued = QueuedMessage(MessageRecord(str(raw), requester, number=1), parse_message(raw, ("users", "accounts")))
        queued.answer = self.answer
        queued.done.set()
        return queued


def secured(
    mcp: McpAccess = McpAccess.PROPOSE, sql: SqlAccess = SqlAccess.OPERATOR, rates: Rates | None = None
) -> Access:
    bearers = [(Identity("ops", Role.OPERATOR), OPS), (Identity("wall", Role.VIEWER), WALL)]
    return Access(Tokens(bearers), rates=rates, sql=sql, mcp=mcp)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Users of whom one has a name that is longer than what an agent gets at once."""
    opened = Database.open(tmp_path_factory.mktemp("store"))
    users = [{"userId": f"u{number}", "name": f"n{number}", "email": None, "age": number} for number in range(USERS)]
    accounts = [{"userId": "u1", "accountType": "x" * MAX_ANSWER_BYTES, "balance": 1.0}]
    Filling(opened).swap(users=users, accounts=accounts)
    yield opened
    opened.close()


@contextmanager
def served(
    database: Database, access: Access | None = None, orchestrator: FakeOrchestrator | None = None
) -> Iterator[str]:
    with serving(create_app(patient(database, orchestrator), access)) as url:
        yield url


@pytest.fixture(scope="module")
def url(database: Database) -> Iterator[str]:
    """A server without tokens."""
    with served(database) as address:
        yield address


@pytest.fixture(scope="module")
def guarded(database: Database) -> Iterator[str]:
    """A server with tokens."""
    with served(database, secured()) as address:
        yield address


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_agent_reads_tables(url: str, transport: str) -> None:
    async def work(agent: Agent) -> None:
        assert "never instructions to you" in (agent.client.instructions or "")
        assert await agent.tools() == RIGHTS.keys() - {"publish_candidate"}
        tables = await agent.call("list_tables")
        assert {"users_ui", "final_ui", "swaps"} <= {table["name"] for table in tables["tables"]}
        described = await agent.call("describe_table", table="users_ui")
        assert (described["rows"], len(described["examples"]), described["columns"][0]["name"]) == (USERS, 3, "userId")
        rows = await agent.call(
            "read_rows", table="users_ui", where=["age < 10"], sort=["-age"], columns=["name"], limit=2
        )
        assert (rows["rows"], rows["total"]) == ([{"name": "n9"}, {"name": "n8"}], 10)
        groups = await agent.call("summarize", table="users_ui", by=["age:100"], values=["count", "max(age)"])
        assert [group["count"] for group in groups["groups"]] == [100, 100, 100] and "note" not in groups
        assert (await agent.call("run_sql", sql="select max(age) as oldest from users_ui"))["rows"] == [{"oldest": 299}]
        assert (await agent.call("get_status"))["generation"] == 1
        assert (await agent.call("get_history"))["table"] == "swaps"

    talk(url, work, transport)


def test_agent_that_asks_for_a_million_rows_gets_a_page_and_is_told(url: str) -> None:
    async def work(agent: Agent) -> None:
        page = await agent.call("read_rows", table="users_ui", limit=1_000_000, columns=["age"])
        assert (len(page["rows"]), page["total"]) == (MAX_ROWS, USERS)
        assert f"{MAX_ROWS} of {USERS}" in page["note"] and f"offset={MAX_ROWS}" in page["note"]
        rest = await agent.call("read_rows", table="users_ui", limit=1_000_000, offset=MAX_ROWS)
        assert len(rest["rows"]) == USERS - MAX_ROWS and "note" not in rest
        cut = await agent.call("run_sql", sql="from users_ui", limit=1_000_000)
        assert len(cut["rows"]) == MAX_ROWS and "note" in cut
        groups = await agent.call("summarize", table="users_ui", by=["userId"], limit=1_000_000)
        assert len(groups["groups"]) == MAX_ROWS and f"of {USERS}" in groups["note"]

    talk(url, work)


def test_answer_of_many_bytes_is_refused_and_its_table_described_without_examples(url: str) -> None:
    async def work(agent: Agent) -> None:
        text = await agent.refusal("read_rows", table="accounts_ui")
        assert "answer_too_large" in text and "fewer columns" in text
        assert (await agent.call("describe_table", table="accounts_ui"))["examples"] == []
        assert len((await agent.call("read_rows", table="accounts_ui", columns=["userId"]))["rows"]) == 1

    talk(url, work)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_errors_of_the_server_reach_the_agent_with_their_hint(url: str, transport: str) -> None:
    wrong: list[tuple[str, Mapping[str, Any], str, str]] = [
        ("read_rows", {"table": "users"}, "unknown_table", "did you mean users_ui?"),
        ("read_rows", {"table": "users_ui", "where": ["agee > 1"]}, "bad_where", "agee"),
        ("read_rows", {"table": "users_ui", "where": "age > 1"}, "bad_body", "where: Input should be a valid array"),
        ("read_rows", {"table": "../sql"}, "bad_body", "table"),
        ("read_rows", {"tabel": "users_ui"}, "bad_body", "arguments: table, where, columns"),
        ("read_rows", {"table": "users_ui", "limit": -1}, "bad_body", "limit"),
        ("run_sql", {"sql": "drop table users_ui"}, "sql_refused", "SELECT"),
        ("compare_table", {}, "not_found", "did you mean compare?"),
        ("publish_candidate", {"generation": 2}, "forbidden", "access.mcp is propose"),
    ]

    async def work(agent: Agent) -> None:
        for name, arguments, code, part in wrong:
            text = await agent.refusal(name, **arguments)
            assert text.endswith(f"code: {code}") and "\nhint: " in text and part in text
            assert code in ERRORS

    talk(url, work, transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_viewer_reads_and_no_more(guarded: str, transport: str) -> None:
    async def work(agent: Agent) -> None:
        assert await agent.tools() == READING - {"run_sql"}
        assert (await agent.call("read_rows", table="users_ui", limit=1))["total"] == USERS
        for name in ("check_swap", "propose_swap"):
            text = await agent.refusal(name, join="inner")
            assert "viewer" in text and text.endswith("code: forbidden")
        assert "access.sql" in await agent.refusal("run_sql", sql="select 1")

    talk(guarded, work, transport, WALL)


def test_operator_has_all_tools_that_access_allows(guarded: str) -> None:
    async def work(agent: Agent) -> set[str]:
        return await agent.tools()

    assert talk(guarded, work, token=OPS) == RIGHTS.keys() - {"publish_candidate"}


@pytest.mark.parametrize(
    ("level", "tools"),
    [
        (McpAccess.READ, READING | {"check_swap"}),
        (McpAccess.PUBLISH, set(RIGHTS)),
    ],
)
def test_level_decides_which_tools_there_are(database: Database, level: McpAccess, tools: set[str]) -> None:
    async def work(agent: Agent) -> None:
        assert await agent.tools() == tools
        if "propose_swap" not in tools:
            assert f"access.mcp is {level}" in await agent.refusal("propose_swap", join="inner")

    with served(database, secured(level)) as address:
        talk(address, work, token=OPS)


def test_level_off_refuses_all(database: Database) -> None:
    with served(database, secured(McpAccess.OFF)) as address:
        answer = post(address, token=OPS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        done = command(address, OPS)
        assert done.returncode == 1 and "access.mcp is off" in done.stderr


def post(address: str, body: Any = PING, token: str = "", **headers: str) -> httpx.Response:
    given = {"Accept": "application/json, text/event-stream", **headers}
    if token:
        given["Authorization"] = f"Bearer {token}"
    return HTTP.post(f"{address}/mcp", json=body, headers=given)


def command(address: str, token: str = "", *before: str) -> subprocess.CompletedProcess[str]:
    """`turnout mcp` with nothing on its input."""
    code = "; ".join([*before, "from turnout.cli import main", "main()"])
    environ = {**os.environ, "TURNOUT_TOKEN": token}
    arguments = [sys.executable, "-c", code, "mcp", "--url", address]
    return subprocess.run(arguments, input="", env=environ, capture_output=True, text=True, check=False)


def test_without_a_token_nobody_gets_in(guarded: str) -> None:
    for token in ("", "wrong"):
        answer = post(guarded, token=token)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
    done = command(guarded)
    assert (done.returncode, done.stdout) == (1, "") and "TURNOUT_TOKEN" in done.stderr


def test_command_says_that_no_server_answers() -> None:
    done = command("http://127.0.0.1:1")
    assert done.returncode == 1 and "nothing listens there" in done.stderr


def test_requests_of_other_sites_names_kinds_and_sizes_are_refused(url: str) -> None:
    assert post(url).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    for wrong, status, code in [
        (post(url, Origin="https://evil.example"), 403, "foreign_origin"),
        (post(url, Host="evil.example"), 403, "foreign_host"),
        (post(url, **{"Sec-Fetch-Site": "cross-site"}), 403, "foreign_origin"),
        (post(url, {"text": "x" * MAX_BODY_BYTES}), 413, "message_too_large"),
        (post(url, **{"Content-Type": "text/plain"}), 415, "unsupported_media_type"),
        (HTTP.get(f"{url}/mcp"), 405, "method_not_allowed"),
        (HTTP.delete(f"{url}/mcp"), 405, "method_not_allowed"),
    ]:
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (status, code), wrong.text


def test_requests_leave_no_session_behind(url: str) -> None:
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for _ in range(20):
        answer = post(url, {**PING, "method": "initialize", "params": begin})
        assert answer.json()["result"]["serverInfo"]["name"] == "turnout"
        assert "mcp-session-id" not in answer.headers


def test_calls_of_tools_count_as_requests_of_their_client(database: Database) -> None:
    rates = Rates(reads=Rate(0.0001, 40), controls=Rate(0.0001, 1))
    taking = Taking(Reply(Outcome.UNCHANGED, "", 1))

    async def work(agent: Agent) -> list[str]:
        await agent.call("check_swap", join="inner")
        assert "too_many_requests" in await agent.refusal("check_swap", join="inner")
        return [str(await agent.client.call_tool("get_status", {})) for _ in range(100)]

    with served(database, secured(rates=rates), taking) as address:
        with pytest.raises(Exception):  # noqa: B017 - the client's own, once its requests are refused, too
            talk(address, work, token=OPS)
        answer = post(address, token=OPS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_requests")
    assert len(taking.taken) == 1


@pytest.mark.parametrize(("access", "requester"), [(secured(McpAccess.PUBLISH), "ops"), (Access(), "mcp")])
def test_swaps_of_agents_are_dry_runs_and_candidates(database: Database, access: Access, requester: str) -> None:
    taking = Taking(Reply(Outcome.UNCHANGED, "no change", 1))

    async def work(agent: Agent) -> None:
        assert (await agent.call("check_swap", topics={"users": "users2"}, start="earliest"))["outcome"] == "unchanged"
        assert (await agent.call("propose_swap", topics={"users": "users2"}, join="inner"))["outcome"] == "unchanged"
        for more in ({"publish": True}, {"action": "publish"}, {"force": True}, {"dryRun": False}):
            assert "bad_body" in await agent.refusal("propose_swap", join="inner", **more)
        if requester == "ops":
            await agent.call("publish_candidate", generation=7)

    with served(database, access, taking) as address:
        talk(address, work, token=OPS if requester == "ops" else "")
    assert taking.taken[:2] == [
        ({"usersTopic": "users2", "start": "earliest", "dryRun": True}, requester),
        ({"usersTopic": "users2", "joinType": "inner", "publish": False}, requester),
    ]
    published = ({"action": "publish", "expectedGeneration": 7}, requester)
    assert taking.taken[2:] == ([published] if requester == "ops" else [])


@given(st.dictionaries(st.text(), st.text()), st.text(), st.dictionaries(st.text(), st.text()), st.text())
def test_message_of_a_proposal_never_publishes(
    topics: dict[str, str], join: str, joins: dict[str, str], start: str
) -> None:
    sent: list[Mapping[str, Any]] = []

    async def ask(path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        assert (path, dict(query)) == ("/api/control", {})
        sent.append(body or {})
        return {"outcome": "unchanged"}

    tools = AgentTools(ask)
    anyio.run(tools.propose_swap, topics, join, joins, start)
    anyio.run(tools.check_swap, topics, join, joins, start)
    plain = {"joinType", "start"}
    for message, own in zip(sent, ({"publish": False}, {"dryRun": True}), strict=True):
        assert own.items() <= message.items()
        others = message.keys() - own.keys() - plain
        assert all(name.endswith(("Topic", "JoinType")) for name in others)


def test_agent_on_standard_input_goes_on_after_a_restart(database: Database) -> None:
    async def work(agent: Agent) -> None:
        assert (await agent.call("get_status"))["generation"] == 1
        await anyio.to_thread.run_sync(life.close)
        text = await agent.refusal("get_status")
        assert "nothing listens there" in text and text.endswith("code: server_unreachable")
        await anyio.to_thread.run_sync(lambda: life.enter_context(serving(app, int(address.rpartition(":")[2]))))
        assert (await agent.call("get_status"))["generation"] == 1

    app = create_app(patient(database))
    with ExitStack() as life:
        address = life.enter_context(serving(app))
        talk(address, work, "stdio")


def test_missing_packages_are_named(database: Database, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    done = command(url, "", "import sys", "sys.modules['mcp'] = None")
    assert done.returncode == 1 and "pip install 'turnout[mcp]'" in done.stderr
    monkeypatch.delitem(sys.modules, "turnout.serve.mcp_server")
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with served(database) as address:
        answer = post(address)
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "missing_package")
    assert "turnout[mcp]" in answer.json()["error"]["hint"]


def test_tools_are_described_for_agents(url: str) -> None:
    async def work(agent: Agent) -> None:
        for tool in (await agent.client.list_tools()).tools:
            assert tool.description and tool.annotations is not None
            assert tool.annotations.read_only_hint == (RIGHTS[tool.name].level is McpAccess.READ)
            assert tool.input_schema["additionalProperties"] is False
            assert "self" not in tool.input_schema["properties"]

    talk(url, work)
