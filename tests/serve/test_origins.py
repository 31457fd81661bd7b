"""Which sites may ask a server, by HTTP and by WebSocket, and under which names it is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect as connect_socket

from access_site import (
    ACCESS,
    APP,
    OPS,
    TABLE,
    UNLIMITED,
    WALL,
    Site,
    bearer,
    echoing,
    encoded,
    error_in,
    error_of,
    handshake,
    opened,
    raw_exchange,
    refusal,
    site,
)
from turnout.config.values import is_loopback
from turnout_client.messages import PROTOCOL, TOKEN_PROTOCOL

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


@pytest.fixture(scope="module")
def echoing_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Text of the configuration -> address."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("echoing")
        yield {text: stack.enter_context(echoing(folder, text, UNLIMITED)) for text in ("", ACCESS)}


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
