"""Who is let in and how much they may ask for, by real servers: tokens, roles, sites, names, sizes, rates, sockets."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_socket

from serving import SECONDS, STATUS, serving, small_store
from turnout.config import Settings, load
from turnout.config.server import ServerSettings
from turnout.config.values import is_loopback
from turnout.errors import ConfigError, TurnoutError
from turnout.plan.control import ApplyRequest, ControlMessage, Outcome
from turnout.serve import connections, requests
from turnout.serve.access import Access, Gate, identity_of, subprotocol_of
from turnout.serve.app import Services, create_app
from turnout.serve.connections import OpenConnections
from turnout.serve.limits import Buckets, Rate, Rates, Viewers, client_of
from turnout.store.database import Database
from turnout.store.ledger import MessageRecord
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout.swap.health import Readiness
from turnout.swap.metrics import Metrics
from turnout.testing import wait_until
from turnout_client.messages import PROTOCOL, TOKEN_PROTOCOL

OPS, WALL = "operator-token-0123456789", "viewer-token-0123456789"
ACCESS = f"""
access:
  tokens:
    - {{name: ops, role: operator, token: {OPS}}}
    - {{name: wall, role: viewer, token: {WALL}}}
"""
APP = "https://app.example"
TABLE = "/api/tables/users_ui/rows"
# For servers that many tests share; rates have tests of their own.
UNLIMITED = Rates(Rate(1e6, 10**6), Rate(1e6, 10**6), Rate(1e6, 10**6))


class Desk:
    """Answers every message at once; keeps who sent it."""

    def __init__(self) -> None:
        self.requesters: list[str] = []
        self.holds = False

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        self.requesters.append(requester)
        text = raw.decode() if isinstance(raw, bytes) else raw
        ticket = QueuedMessage(MessageRecord(text, requester, number=len(self.requesters)), ControlMessage())
        if not self.holds:
            ticket.answer = Reply(Outcome.UNCHANGED, "", 1)
            ticket.done.set()
        return ticket


class Steering:
    def __init__(self) -> None:
        self.queue = Desk()

    def status(self) -> dict[str, Any]:
        return STATUS

    def readiness(self) -> Readiness:
        return Readiness(True, "generation 1 is published")

    def metrics(self) -> Metrics:
        return Metrics(self.readiness())

    def topics(self) -> list[str]:
        return ["users"]

    def test_alert(self, name: str) -> None:
        raise NotImplementedError

    @property
    def explainer(self) -> Any:
        raise NotImplementedError

    def example(self, topic: str, records: int) -> dict[str, Any]:
        return {"topic": topic, "looked": records}

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        raise NotImplementedError


class Site:
    """A running server and what is behind it."""

    def __init__(self, url: str, database: Database, desk: Desk) -> None:
        self.url, self.database, self.queue = url, database, desk
        self.port = urlsplit(url).port or 0
        self.http = httpx.Client(base_url=url, timeout=SECONDS, verify=False)

    def get(self, path: str = "/api/status", token: str = "", **headers: str) -> httpx.Response:
        return self.http.get(path, headers=bearer(token) | headers)

    def post(self, token: str = "", path: str = "/api/control", **headers: str) -> httpx.Response:
        return self.http.post(path, json={}, headers=bearer(token) | headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def settings(folder: Path, text: str) -> Settings:
    (folder / "turnout.yaml").write_text(text)
    return load(folder / "turnout.yaml", {})


@contextmanager
def site(
    folder: Path, text: str = "", *, rates: Rates | None = None, open_connections: OpenConnections | None = None
) -> Iterator[Site]:
    steering = Steering()
    with small_store(folder / "store") as database:
        app = create_app(Services(database, steering), Access.of(settings(folder, text), rates))
        with serving(app, open_connections=open_connections) as url:
            found = Site(url, database, steering.queue)
            try:
                yield found
            finally:
                found.http.close()


# One server for all tests that leave it as it was; the next one finds a desk that nobody wrote to.


@pytest.fixture(scope="module")
def protected_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("protected"), ACCESS, rates=UNLIMITED) as running:
        yield running


@pytest.fixture
def protected(protected_server: Site) -> Site:
    protected_server.queue.requesters.clear()
    return protected_server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("open"), rates=UNLIMITED) as running:
        yield running


@pytest.fixture
def open_site(open_server: Site) -> Site:
    open_server.queue.requesters.clear()
    return open_server


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all attacks: it must take them one after the other."""
    with site(tmp_path_factory.mktemp("attacked")) as running:
        yield running


def error_of(answer: httpx.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    return error_in(answer.content, code)


def error_in(body: bytes | bytearray | None, code: str) -> dict[str, str]:
    content = json.loads(bytes(body or b""))
    assert set(content) == {"error"}
    error: dict[str, str] = content["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == code
    assert error["message"]
    return error


# -- tokens and roles


@pytest.mark.parametrize(
    "path", ["/api/status", "/api/tables", TABLE, "/api/swaps", "/api/topics", "/nope", "/metrics"]
)
def test_request_without_a_token_is_unauthorized(protected: Site, path: str) -> None:
    answer = protected.get(path)
    error_of(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong-token-0123456789",
        f"Bearer {OPS[:-1]}",
        f"Bearer {OPS}x",
        f"Bearer {OPS.upper()}",
        "Bearer",
        f"Basic {OPS}",
        OPS,
        f"Bearer {OPS}, Bearer {OPS}",
        "Bearer \xe9\xff",
    ],
)
def test_wrong_token_is_unauthorized(protected: Site, header: str) -> None:
    for method, path in (("GET", "/api/status"), ("POST", "/api/control")):
        answer = protected.http.request(method, path, headers=[(b"Authorization", header.encode("latin-1"))])
        error_of(answer, 401, "unauthorized")
    assert protected.queue.requesters == []


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_right_token_reads(protected: Site, kind: str) -> None:
    for token in (OPS, WALL):
        assert protected.get(Authorization=f"{kind} {token}").status_code == 200
        assert protected.get("/metrics", Authorization=f"{kind} {token}").status_code == 200


def test_page_and_probes_need_no_token(protected: Site) -> None:
    for path in ("/healthz", "/readyz"):
        assert protected.get(path).status_code == 200
        assert protected.get(path, "wrong-token-0123456789").status_code == 200
    assert protected.get("/").status_code in (200, 503)  # 503: not built here
    assert protected.get("/static/nope.js").status_code == 404


@pytest.mark.parametrize(
    "path", ["/static/../api/status", "/static/%2e%2e/api/status", "//api/status", "/./api/status"]
)
def test_path_that_looks_public_shows_nothing(protected: Site, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, body = raw_exchange(protected.port, head.encode())
    assert status in (401, 404)
    assert b"usersTopic" not in body


@pytest.mark.parametrize("path", ["/api/control", "/api/rollback", "/api/cancel", "/api/publish", "/api/discard"])
def test_viewer_may_not_steer(protected: Site, path: str) -> None:
    error = error_of(protected.post(WALL, path), 403, "forbidden")
    assert "wall" in error["message"]
    assert protected.queue.requesters == []
    assert protected.post(OPS, path).status_code == 200


def test_history_has_the_name_of_the_token(protected: Site) -> None:
    assert protected.post(OPS, **{"X-Turnout-Client": "somebody"}).status_code == 200
    assert protected.queue.requesters == ["ops"]


def test_history_has_the_name_of_the_client_without_tokens(open_site: Site) -> None:
    for name in ("Page", "topic", "a b"):
        assert open_site.post(**{"X-Turnout-Client": name}).status_code == 200
    assert open_site.queue.requesters == ["page", "http", "http"]


@pytest.mark.parametrize("name", ["token", "access_token", "authorization"])
def test_token_in_an_address_is_never_taken(protected: Site, name: str) -> None:
    error_of(protected.get(f"/api/status?{name}={OPS}"), 401, "unauthorized")
    answer = protected.get(f"/api/status?{name}={OPS}", OPS)
    error_of(answer, 400, "unknown_parameter")
    assert OPS not in answer.text


def test_token_file_is_read_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{OPS}\n")
    with site(tmp_path, "access: {tokens: [{name: ops, role: operator, token_file: secret}]}") as running:
        assert running.get(token=OPS).status_code == 200
        error_of(running.get(), 401, "unauthorized")


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        ("{name: a, role: viewer, token: fifteen-letters}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer, token: with a blank inside}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer, token: ééééééééééééééééééé}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer}", "access.tokens[0].token: is missing; add it, or token_file"),
        (
            f"{{name: a, role: viewer, token: {OPS}, token_file: x}}",
            "access.tokens[0].token_file: is given beside token; remove one of them",
        ),
        (
            f"{{name: a, role: viewer, token: {OPS}}}, {{name: a, role: viewer, token: {WALL}}}",
            "access.tokens[1].name: 'a' already exists; choose another name",
        ),
        (
            f"{{name: a, role: viewer, token: {OPS}}}, {{name: b, role: viewer, token: {OPS}}}",
            "access.tokens[1].token: is already the token of another name; give each name its own",
        ),
        (f"{{name: topic, role: viewer, token: {OPS}}}", "access.tokens[0].name: 'topic' means something else"),
    ],
)
def test_access_that_is_wrong_is_a_fault_of_the_configuration(tmp_path: Path, tokens: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"access: {{tokens: [{tokens}]}}")
    (found,) = caught.value.faults
    assert found.startswith(f"line 1: {fault}")
    assert OPS not in found


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"short\n", "must be 16 to 512"),
        (b"", "must be 16 to 512"),
        (b"\xff\xfe" * 20, "cannot be read (it is not text)"),
        (OPS.encode(), "is already the token of another name"),
    ],
)
def test_token_file_that_is_wrong_is_a_fault_of_the_configuration(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    text = (
        f"access: {{tokens: [{{name: a, role: viewer, token: {OPS}}}, {{name: b, role: viewer, token_file: secret}}]}}"
    )
    chosen = settings(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Access.of(chosen)
    (found,) = caught.value.faults
    assert found.startswith("access.tokens[1].token_file: ")
    assert fault in found
    assert "short" not in found


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        ("allowed_origins: ['*']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: ['https://app.example/']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: ['null']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: https://app.example", "server.allowed_origins: must be a list"),
        ("max_viewers: 2000", "server: max_viewers is 2000, more than max_connections (1000)"),
        ("max_connections: 0", "server.max_connections: must be at least 1"),
    ],
)
def test_server_settings_that_are_wrong_are_faults(tmp_path: Path, server: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"server: {{{server}}}")
    assert caught.value.faults[0].startswith(f"line 1: {fault}")


def test_secrets_are_in_no_log_and_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "wrong-token-9876543210"
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG), site(tmp_path, ACCESS) as running:
        for token in (OPS, WALL, wrong):
            for path in ("/", "/api/status", "/api/tables", "/api/swaps", "/api/topics", TABLE, f"/nope?token={token}"):
                answer = running.get(path, token)
                seen += [answer.text, str(answer.headers)]
            for path in (
                "/api/control",
                "/api/rollback",
                "/api/publish",
                "/api/discard",
                f"/api/control?token={token}",
            ):
                seen.append(running.post(token, path).text)
            seen.append(str(refusal(running.url, token=token, path=f"/api/nope?token={token}")))
        for table in ("orchestrator_logs", "control_raw", "swaps", "orchestrator_status"):
            seen.append(running.get(f"/api/tables/{table}/rows", OPS).text)
    logged = [record.getMessage() + str(record.exc_info) for record in caplog.records if of_the_server(record)]
    text = "\n".join([*seen, *logged, repr(settings(tmp_path, ACCESS))])
    for secret in (OPS, WALL, wrong, encoded(OPS), encoded(WALL), encoded(wrong)):
        assert secret not in text


def of_the_server(record: logging.LogRecord) -> bool:
    """The clients of this test log what they send."""
    return not record.name.startswith(("httpx", "httpcore", "websockets.client"))


# -- sites


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "", "https://127.0.0.1"])
@pytest.mark.parametrize("token", ["", OPS])
def test_page_of_another_site_may_not_post(protected: Site, open_site: Site, origin: str, token: str) -> None:
    error_of((protected if token else open_site).post(token, Origin=origin), 403, "foreign_origin")
    assert protected.queue.requesters == open_site.queue.requesters == []


def test_page_of_another_site_cannot_read(open_site: Site) -> None:
    answer = open_site.get(Origin="http://evil.example")
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_own_page_may_post(open_site: Site) -> None:
    assert open_site.post(Origin=open_site.url).status_code == 200
    own = f"http://localhost:{open_site.port}"
    assert open_site.post(Origin=own, Host=urlsplit(own).netloc).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:10000", "127.0.0.1.evil.example", "x@localhost", "["])
@pytest.mark.parametrize("path", ["/", "/api/status", "/healthz", "/static/x", TABLE])
def test_name_that_a_site_gave_this_machine_shows_nothing(attacked: Site, host: str, path: str) -> None:
    error_of(attacked.get(path, Host=host), 403, "foreign_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7", "127.0.0.1", "[::1]:10000", "turnout.localhost"])
def test_names_of_this_machine_are_served(attacked: Site, host: str) -> None:
    assert attacked.get(Host=host).status_code == 200


def test_server_with_tokens_is_served_under_any_name(protected: Site) -> None:
    headers = {"Host": "turnout.example", "Origin": "https://turnout.example"}
    assert protected.post(OPS, **headers).status_code == 200


def test_proxy_that_is_an_allowed_origin_may_keep_its_name(tmp_path: Path) -> None:
    with site(tmp_path, "server: {allowed_origins: ['https://turnout.example']}") as running:
        headers = {"Host": "turnout.example", "Origin": "https://turnout.example"}
        assert running.post(**headers).status_code == 200
        error_of(running.get(Host="other.example"), 403, "foreign_host")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    text = f"server: {{allowed_origins: ['{APP}', 'http://localhost:4200']}}\n{ACCESS}"
    with site(tmp_path_factory.mktemp("shared"), text, rates=UNLIMITED) as running:
        yield running


def test_allowed_site_reads_and_steers(shared: Site) -> None:
    for origin in (APP, "http://localhost:4200"):
        answers = [shared.get(token=OPS, Origin=origin), shared.post(OPS, Origin=origin)]
        # Its page can read why it was refused, too.
        answers += [shared.get(Origin=origin), shared.post(WALL, Origin=origin)]
        assert [answer.status_code for answer in answers] == [200, 200, 401, 403]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == origin
            assert "X-Turnout-Generation" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "Origin"
            assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["https://app.example.evil.example", "http://app.example", "https://app.example:444"]
)
def test_site_that_is_nearly_allowed_is_not(shared: Site, origin: str) -> None:
    answer = shared.get(token=OPS, Origin=origin)
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["vary"] == "Origin"
    error_of(shared.post(OPS, Origin=origin), 403, "foreign_origin")
    error_of(preflight(shared, origin), 403, "foreign_origin")


def test_browser_may_ask_before_it_sends(shared: Site) -> None:
    answer = preflight(shared, APP)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == APP
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert {"authorization", "content-type", "x-turnout-client"} <= set(allowed.split(", "))


def preflight(running: Site, origin: str) -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return running.http.options("/api/control", headers=headers)


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("::ffff:127.0.0.1", True)),
        *(("0.0.0.0", False), ("::", False), ("example.org", False), ("127.0.0.1.nip.io", False), ("", False)),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_loopback_is_only_this_machine(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback


# -- WebSockets


def encoded(token: str) -> str:
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=subprotocol_of(websocket.scope))
    who = identity_of(websocket.scope)
    shown = [str(websocket.scope["headers"]), str(websocket.scope["subprotocols"])]
    await websocket.send_json({"name": who.name, "role": who.role, "scope": shown})
    await websocket.close()


@contextmanager
def echoing(folder: Path, text: str, rates: Rates | None = None) -> Iterator[str]:
    app = Starlette(routes=[WebSocketRoute("/api/live", echo)])
    with serving(Gate(app, Access.of(settings(folder, text), rates))) as url:
        yield url


@pytest.fixture(scope="module")
def echoing_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Text of the configuration -> address."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("echoing")
        yield {text: stack.enter_context(echoing(folder, text, UNLIMITED)) for text in ("", ACCESS)}


def opened(url: str, token: str = "", *, origin: str | None = None, path: str = "/api/live") -> ClientConnection:
    """A WebSocket as a browser opens it: with the token among its subprotocols."""
    offered: list[Any] = [PROTOCOL, *([TOKEN_PROTOCOL + encoded(token)] if token else [])]
    return connect_socket(url.replace("http", "ws") + path, origin=origin, subprotocols=offered, proxy=None)  # type: ignore[arg-type]


def refusal(url: str, **how: Any) -> tuple[int, bytes]:
    with pytest.raises(InvalidStatus) as caught, opened(url, **how):
        pass
    response = caught.value.response
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, bytes(response.body or b"")


def test_socket_has_the_identity_of_its_token_and_not_the_token(echoing_servers: dict[str, str]) -> None:
    url = echoing_servers[ACCESS]
    for token, name, role in ((OPS, "ops", "operator"), (WALL, "wall", "viewer")):
        with opened(url, token) as browser:
            assert browser.subprotocol == PROTOCOL
            told = json.loads(browser.recv())
        assert (told["name"], told["role"]) == (name, role)
        assert token not in str(told)
        assert encoded(token) not in str(told)
    address = url.replace("http", "ws") + "/api/live"
    with connect_socket(address, additional_headers=bearer(WALL), proxy=None) as program:
        assert json.loads(program.recv())["name"] == "wall"
        assert program.subprotocol is None


@pytest.mark.parametrize("token", ["", "wrong-token-0123456789"])
def test_socket_without_a_right_token_is_refused_before_it_opens(echoing_servers: dict[str, str], token: str) -> None:
    status, body = refusal(echoing_servers[ACCESS], token=token)
    assert status == 401
    error_in(body, "unauthorized")


@pytest.mark.parametrize("offered", ["!!!", "", "A", "_w", "~~~~"])
def test_socket_with_a_token_that_is_no_base64_is_refused(echoing_servers: dict[str, str], offered: str) -> None:
    head = handshake(**{"Sec-WebSocket-Protocol": f"{PROTOCOL}, {TOKEN_PROTOCOL}{offered}"})
    status, body = raw_exchange(urlsplit(echoing_servers[ACCESS]).port or 0, head)
    assert status == 401
    error_in(body, "unauthorized")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
@pytest.mark.parametrize("access", ["", ACCESS])
def test_socket_of_another_site_is_refused(echoing_servers: dict[str, str], origin: str, access: str) -> None:
    url = echoing_servers[access]
    status, body = refusal(url, token=OPS, origin=origin)
    assert status == 403
    error_in(body, "foreign_origin")
    with opened(url, OPS, origin=url) as own:
        assert own.recv()


def test_socket_of_an_allowed_site_opens(tmp_path: Path) -> None:
    with (
        echoing(tmp_path, f"server: {{allowed_origins: ['{APP}']}}\n{ACCESS}") as url,
        opened(url, WALL, origin=APP) as browser,
    ):
        assert json.loads(browser.recv())["role"] == "viewer"


def test_socket_under_the_name_of_a_site_is_refused(echoing_servers: dict[str, str]) -> None:
    head = handshake(Host="evil.example", Origin="http://evil.example")
    status, body = raw_exchange(urlsplit(echoing_servers[""]).port or 0, head)
    assert status == 403
    error_in(body, "foreign_host")


def test_socket_to_nowhere_is_not_found(open_site: Site) -> None:
    for path in ("/api/nope", "/", "/static/x", "/api/status"):
        status, body = refusal(open_site.url, path=path)
        assert status == 404
        error_in(body, "not_found")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Sec-WebSocket-Key": "short"}, 400, "bad_handshake"),
        ({"Sec-WebSocket-Version": "12"}, 400, "bad_handshake"),
        ({"Sec-WebSocket-Protocol": "a b, ="}, 400, "bad_handshake"),
        ({"Sec-WebSocket-Protocol": "é"}, 400, "bad_handshake"),
        ({"Content-Length": "5"}, 400, "bad_handshake"),
        ({"Transfer-Encoding": "chunked"}, 400, "bad_handshake"),
        ({"X-Long": "x" * 9_000}, 431, "headers_too_large"),
        ({f"X-{number}": "x" for number in range(150)}, 431, "headers_too_large"),
    ],
)
def test_handshake_that_is_none_gets_an_error(attacked: Site, change: dict[str, str], status: int, code: str) -> None:
    got, body = raw_exchange(attacked.port, handshake(**change))
    assert got == status
    error_in(body, code)
    assert attacked.get().status_code == 200


def test_handshake_that_is_a_post_gets_an_error(attacked: Site) -> None:
    status, body = raw_exchange(attacked.port, handshake().replace(b"GET", b"POST"))
    assert status == 400
    error_in(body, "bad_handshake")


def handshake(**headers: str) -> bytes:
    given = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
        "Sec-WebSocket-Version": "13",
    } | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"GET /api/live HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


# -- names of tables, and where


@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "..%5c..%5cx",
        "users_ui%00",
        "%00",
        "users_ui%2f..%2fusers_ui",
        "users_ui%22",
        "%22users_ui%22",
        "users_ui%27%3b%20DROP%20TABLE%20g1.users_ui%3b--",
        "g1.users_ui",
        "turnout.swaps",
        "main.users_ui",
        "users_ui@1%3bSELECT",
        "users_ui@-1",
        "users_ui@1e3",
        "users_ui@%D9%A1",  # an Arabic 1
        "USERS_UI",
        "u%CC%88sers_ui",
        "%F0%9F%92%A5",
        "%ff%fe",
        "%E2%80%AEiu_sresu",
        quote("read_csv('/etc/passwd')"),
        "x" * 5_000,
    ],
)
def test_table_name_with_a_trick_in_it_is_just_unknown(attacked: Site, name: str) -> None:
    answer = attacked.get(f"/api/tables/{name}/rows")
    assert answer.status_code == 404, answer.text
    assert answer.json()["error"]["code"] in ("unknown_table", "not_found")
    assert len(answer.content) < 5_000
    assert "root:" not in answer.text
    assert rows_of(attacked) == ALL_ROWS


def test_address_that_is_too_long_is_refused(attacked: Site) -> None:
    for path in (f"/api/tables/{'x' * 9_000}/rows", f"{TABLE}?where={'x' * 9_000}"):
        error_of(attacked.get(path), 414, "url_too_long")


ALL_ROWS = [["u1", "Ada", 36], ["u2", "Ben", None], ["u3", "[b]Cy", 52]]


def rows_of(running: Site) -> list[list[Any]]:
    with running.database.read() as cursor:
        return [
            list(row) for row in cursor.execute('SELECT "userId", name, age FROM g1.users_ui ORDER BY _id').fetchall()
        ]


@pytest.mark.parametrize("parameter", ["where", "sort", "columns"])
@pytest.mark.parametrize(
    "attack",
    [
        "1=1",
        "name='x' OR 1=1",
        "name='x'; DROP TABLE g1.users_ui; --",
        'name = "x\'; DELETE FROM g1.users_ui; --"',
        "name = 'x\\'; DELETE FROM g1.users_ui; --'",
        'name = "x\\"; ATTACH \'/tmp/turnout-attacked\'; --"',
        '"name" = "x") OR (1=1',
        'name"=1--',
        "name) OR (1=1",
        "name/**/=/**/1",
        "name in ('a', 'b'); DROP VIEW users_ui",
        "name in (SELECT name FROM turnout.swaps)",
        "age > (SELECT 0)",
        "age = 1 UNION SELECT * FROM turnout.swaps",
        "read_text('/etc/passwd') is not null",
        '"name\\" OR 1=1 --" = x',
        "`name` OR 1=1 --` = x",
        "_id = 1",
        "-(SELECT 1)",
        "age; COPY g1.users_ui TO '/tmp/turnout-attacked'",
        "$1",
        "?",
        "name = ${OPS}",
        "name contains %",
        '[{"column": "name", "op": "= 1 OR 1 =", "value": 1}]',
        '[{"column": "name\\" OR 1=1 --", "op": "=", "value": 1}]',
        '[{"column": "name", "op": "=", "value": {"$ne": 1}}]',
        '[{"column": "name", "op": "in", "value": ["x\') OR 1=1 --"]}]',
        "\x00",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "'" * 500,
        "(" * 2_000,
    ],
)
def test_attack_by_a_parameter_is_refused_or_finds_nothing(attacked: Site, parameter: str, attack: str) -> None:
    answer = attacked.get(f"{TABLE}?{parameter}={quote(attack)}")
    if answer.status_code == 200:
        # It was a value like any other: no name is that.
        assert parameter == "where"
        assert answer.json()["rows"] == []
    else:
        assert answer.status_code == 400, answer.text
        assert set(answer.json()["error"]) == {"code", "message", "hint"}
        assert len(answer.content) < 5_000
    assert rows_of(attacked) == ALL_ROWS
    assert not Path("/tmp/turnout-attacked").exists()


# -- sizes


TEN_MEGABYTES = 10 * 1024 * 1024


def test_large_body_is_refused(open_site: Site) -> None:
    for path in ("/api/control", "/api/rollback", "/api/cancel", "/api/publish", "/api/discard"):
        error_of(open_site.http.post(path, content=b" " * TEN_MEGABYTES), 413, "message_too_large")
        pieces = (b" " * 65_536 for _ in range(TEN_MEGABYTES // 65_536))
        error_of(open_site.http.post(path, content=pieces), 413, "message_too_large")
    assert open_site.queue.requesters == []
    assert open_site.get().status_code == 200


@pytest.mark.parametrize(
    ("start", "statuses"),
    [
        ("GET /api/status HTTP/1.1\r\nHost: localhost\r\nX-Large: ", {431}),
        ("GET /api/status?", {431}),
        ("", {400, 431}),
    ],
)
def test_large_head_is_refused(attacked: Site, start: str, statuses: set[int]) -> None:
    status, body = raw_exchange(attacked.port, start.encode() + b"x" * TEN_MEGABYTES)
    assert status in statuses
    assert set(json.loads(body)["error"]) == {"code", "message", "hint"}
    assert attacked.get().status_code == 200


@pytest.mark.parametrize("headers", [{"X-Large": "x" * 9_000}, {f"X-{n}": "x" * 900 for n in range(20)}])
def test_headers_that_are_too_large_by_little_are_refused(attacked: Site, headers: dict[str, str]) -> None:
    error_of(attacked.get(**headers), 431, "headers_too_large")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"hello\r\n\r\n", b"\x00\r\n\r\n"]
)
def test_what_is_no_request_gets_an_error(attacked: Site, garbage: bytes) -> None:
    status, body = raw_exchange(attacked.port, garbage)
    assert status == 400
    error_in(body, "bad_request")


_POST = b"POST /api/control HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        _POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\nX-More: 1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n",
    ],
)
def test_request_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    attacked: Site, request_bytes: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=SECONDS) as connection:
        connection.sendall(request_bytes + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += piece
    assert received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1") == 1
    error_in(received.partition(b"\r\n\r\n")[2], "bad_request")


def test_bytes_of_a_body_may_be_line_feeds(attacked: Site) -> None:
    """They are no part of the head, also where both come at once."""
    body = b"{\n\n}\n\n"
    status, _ = raw_exchange(attacked.port, _POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert status != 400


def raw_exchange(port: int, data: bytes) -> tuple[int, bytes]:
    """Send bytes as far as they are taken, and read the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        received = b""
        # The answer can be there before all was sent.
        with suppress(OSError):
            connection.sendall(data)
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += piece
                if whole(received):
                    break
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def whole(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return bool(end) and len(body) >= int(line.split(b":")[1])
    return False


# -- rates


def test_client_that_reads_too_often_is_told_to_wait(tmp_path: Path) -> None:
    with site(tmp_path, rates=Rates(reads=Rate(0.01, 5))) as running:
        assert [running.get().status_code for _ in range(5)] == [200] * 5
        answer = running.get()
        error_of(answer, 429, "too_many_requests")
        assert int(answer.headers["retry-after"]) >= 1
        # Steering and the probe of life are counted apart.
        assert running.post().status_code == 200
        assert running.get("/healthz").status_code == 200


def test_client_that_steers_too_often_is_told_to_wait(tmp_path: Path) -> None:
    with site(tmp_path, rates=Rates(controls=Rate(0.01, 2))) as running:
        assert [running.post().status_code for _ in range(3)] == [200, 200, 429]
        assert len(running.queue.requesters) == 2
        assert running.get().status_code == 200


def test_each_token_has_a_rate_of_its_own(tmp_path: Path) -> None:
    with site(tmp_path, ACCESS, rates=Rates(reads=Rate(0.01, 2))) as running:
        assert [running.get(token=WALL).status_code for _ in range(3)] == [200, 200, 429]
        assert running.get(token=OPS).status_code == 200


def test_guessing_tokens_ends_soon_and_locks_out_nobody_who_was_in(tmp_path: Path) -> None:
    with site(tmp_path, ACCESS, rates=Rates(wrong_tokens=Rate(0.01, 3))) as running:
        assert running.get(token=WALL).status_code == 200
        guesses = [running.get(token=f"guess-number-000000{number}") for number in range(5)]
        assert [guess.status_code for guess in guesses] == [401, 401, 401, 429, 429]
        error_of(guesses[-1], 429, "too_many_requests")
        # A guess that is right is not told so.
        error_of(running.get(token=OPS), 429, "too_many_requests")
        assert running.get(token=WALL).status_code == 200
        error_of(running.get(), 401, "unauthorized")


def test_sockets_count_as_reads(tmp_path: Path) -> None:
    with echoing(tmp_path, "", Rates(reads=Rate(0.01, 1))) as url:
        with opened(url) as first:
            assert first.recv()
        status, body = refusal(url)
        assert status == 429
        error_in(body, "too_many_requests")


def test_ordinary_use_is_never_told_to_wait(tmp_path: Path) -> None:
    # Fifty viewers behind one address load the page and read, all at once.
    statuses: set[int] = set()
    with site(tmp_path) as running, ExitStack() as stack:
        viewers = [http.client.HTTPConnection("127.0.0.1", running.port, timeout=SECONDS) for _ in range(50)]
        for viewer in viewers:
            stack.callback(viewer.close)
        for path in ("/api/status", *["/api/topics"] * 9):
            for viewer in viewers:
                viewer.request("GET", path)
            for viewer in viewers:
                answer = viewer.getresponse()
                answer.read()
                statuses.add(answer.status)
    assert statuses == {200}


def test_bucket_fills_again_with_time() -> None:
    now = [100.0]
    buckets = Buckets(Rate(2, 3), clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    now[0] += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    now[0] += 1000
    assert [buckets.take("a") == 0 for _ in range(4)] == [True, True, True, False]


def test_buckets_remember_so_many_clients_and_no_more() -> None:
    buckets = Buckets(Rate(1, 1), most=100, clock=lambda: 0.0)
    for number in range(1_000):
        buckets.take(f"client {number}")
    assert len(buckets) == 100
    assert buckets.take("client 999") > 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_client_is_an_address_or_a_network_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (client_of({"client": (one, 1)}) == client_of({"client": (other, 2)})) is same


def test_viewers_have_so_many_places() -> None:
    viewers = Viewers(ServerSettings(max_viewers=2))
    with viewers.place("a"):
        with viewers.place("a"):
            with pytest.raises(TurnoutError) as caught, viewers.place("b"):
                pass
            assert (caught.value.code, caught.value.status) == ("too_many_viewers", 503)
            assert viewers.count == 2
        with viewers.place("a"):
            assert viewers.count == 2
    assert viewers.count == 0


# -- connections


@contextmanager
def idle_sockets(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) for _ in range(count)
        ]


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def is_served(running: Site) -> bool:
    """Whether a request is answered; on a busy machine one may come too late for a server that waits shortly."""
    try:
        return running.get().status_code == 200
    except httpx.TransportError:
        return False


def test_thousand_idle_sockets_do_not_keep_others_out(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_096:  # both ends of every socket are in this process
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    # None is closed for the time that it waits, however long this takes.
    patient = OpenConnections(request_seconds=10 * SECONDS)
    with site(tmp_path, open_connections=patient) as running, idle_sockets(running.port, 1_000) as idle:
        for _ in range(20):
            with httpx.Client(base_url=running.url, timeout=SECONDS, verify=False) as other:
                assert other.get(TABLE).json()["total"] == 3
                assert other.post("/api/control", json={}).status_code == 200
        # Those that waited for longest made room.
        wait_until(lambda: is_closed(idle[0]))
        assert not is_closed(idle[-1])


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that waits shortly for requests."""
    with site(tmp_path_factory.mktemp("hasty"), open_connections=OpenConnections(request_seconds=0.3)) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", b"GET /api/status HT", b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n"])
def test_socket_without_a_whole_request_is_closed(hasty: Site, sent: bytes) -> None:
    with idle_sockets(hasty.port, 1) as (connection,):
        connection.sendall(sent)
        wait_until(lambda: is_closed(connection))
        wait_until(lambda: is_served(hasty), what="an answer")


def test_socket_that_trickles_a_request_is_closed(hasty: Site) -> None:
    with idle_sockets(hasty.port, 1) as (connection,):
        connection.sendall(b"GET /api/status HTTP/1.1\r\n")

        def trickled() -> bool:
            try:
                connection.sendall(b"X: x\r\n")
            except OSError:
                return True
            return is_closed(connection)

        wait_until(trickled)


def test_request_that_waits_for_its_outcome_is_not_idle(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        site(tmp_path, open_connections=OpenConnections(most=2, request_seconds=1)) as running,
    ):
        running.queue.holds = True
        waiting = pool.submit(httpx.post, f"{running.url}/api/control", json={}, timeout=SECONDS)
        wait_until(lambda: len(running.queue.requesters) == 1)
        with idle_sockets(running.port, 5) as idle:
            wait_until(lambda: all(map(is_closed, idle)))
        assert not waiting.done()
    assert waiting.result(SECONDS).status_code == 202  # told at the stop


def test_connection_beyond_the_limit_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REFUSAL_SECONDS", SECONDS)  # a slow client has its answer too
    full = OpenConnections(most=2, request_seconds=SECONDS)
    with ThreadPoolExecutor(2) as pool, site(tmp_path, open_connections=full) as running:
        running.queue.holds = True
        waiting = [pool.submit(httpx.post, f"{running.url}/api/control", json={}, timeout=SECONDS) for _ in range(2)]
        wait_until(lambda: len(running.queue.requesters) == 2)
        error_of(running.get(), 503, "too_many_connections")
        status, body = raw_exchange(running.port, handshake())
        assert status == 503
        error_in(body, "too_many_connections")
    assert [post.result(SECONDS).status_code for post in waiting] == [202, 202]


def test_body_that_does_not_come_is_not_waited_for(open_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.2)
    head = b"POST /api/control HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
    status, body = raw_exchange(open_site.port, head)
    assert status == 408
    error_in(body, "request_timeout")
    assert open_site.queue.requesters == []


def test_client_that_never_reads_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_STALLED_SECONDS", 0.3)
    ended = threading.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    with serving(endless) as url, idle_sockets(urlsplit(url).port or 0, 1) as (connection,):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(SECONDS)


def test_answers_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    open_connections = OpenConnections(request_seconds=SECONDS)
    with site(tmp_path, open_connections=open_connections) as running, idle_sockets(running.port, 1):
        wait_until(lambda: len(open_connections.idle) == 1)
        (connection,) = open_connections.idle
        taken = connection.transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_connection_is_used_again(tmp_path: Path) -> None:
    with site(tmp_path, open_connections=OpenConnections(most=1, request_seconds=SECONDS)) as running:
        for _ in range(50):
            assert running.get().status_code == 200


# -- headers and the page


def test_every_answer_has_security_headers(protected: Site) -> None:
    answers = [
        protected.get("/"),
        protected.get("/healthz"),
        protected.get(),
        protected.get(token=OPS),
        protected.post(WALL),
    ]
    answers.append(protected.get("/static/nope"))
    for answer in answers:
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script" not in policy  # so scripts are the server's own, and eval is not allowed
        assert "server" not in headers


@contextmanager
def page(folder: Path, index: str | None, **server: Any) -> Iterator[httpx.Client]:
    static = folder / "static"
    if index is not None:
        (static / "assets").mkdir(parents=True)
        (static / "index.html").write_text(index)
        (static / "assets" / "index-abc123.js").write_text("//")
        (static / "icon.svg").write_text("<svg/>")
    with (
        small_store(folder / "store") as database,
        serving(create_app(Services(database, Steering(), limits=ServerSettings(**server)), static=static)) as url,
        httpx.Client(base_url=url, timeout=SECONDS, verify=False) as client,
    ):
        yield client


def test_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    with page(tmp_path, None) as client:
        assert "make setup" in error_of(client.get("/"), 503, "page_not_built")["hint"]
        error_of(client.get("/static/assets/index-abc123.js"), 404, "not_found")
        assert client.get("/api/status").status_code == 200


def test_parts_with_a_hash_are_kept_and_the_page_is_not(tmp_path: Path) -> None:
    with page(tmp_path, "<p>") as client:
        assert "immutable" in client.get("/static/assets/index-abc123.js").headers["cache-control"]
        for path in ("/", "/static/icon.svg", "/static/index.html"):
            assert client.get(path).headers["cache-control"] == "no-cache"


def test_only_named_sites_have_the_page_in_a_frame_and_only_its_embedded_form(tmp_path: Path) -> None:
    def ancestors(client: httpx.Client, path: str) -> str:
        return client.get(path).headers["content-security-policy"].partition("frame-ancestors ")[2]

    with page(tmp_path / "none", "<p>") as client:
        assert ancestors(client, "/?embed=1") == "'none'"
    sites = ("https://wiki.example", "http://localhost:4200")
    with page(tmp_path / "some", "<p>", embed_origins=sites) as client:
        assert ancestors(client, "/?embed=1") == "https://wiki.example http://localhost:4200"
        for path in ("/", "/?embed=0", "/static/index.html", "/api/tables"):
            assert ancestors(client, path) == "'none'"


def test_page_with_a_nonce_needs_no_other_right_to_styles(tmp_path: Path) -> None:
    with page(tmp_path, '<meta property="csp-nonce" nonce="__CSP_NONCE__">') as client:
        answers = [client.get("/"), client.get("/")]
    assert answers[0].text != answers[1].text
    for answer in answers:
        nonce = answer.text.split('nonce="')[1].split('"')[0]
        assert f"style-src 'self' 'nonce-{nonce}'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
