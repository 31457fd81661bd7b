"""Attacks on a real server: names, filters, sizes and bytes that are no requests. It refuses them and goes on."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from access_site import TABLE, Site, error_in, error_of, handshake, raw_exchange
from http_server import SECONDS

# -- paths and handshakes


@pytest.mark.parametrize(
    "path", ["/static/../api/status", "/static/%2e%2e/api/status", "//api/status", "/./api/status"]
)
def test_path_that_looks_public_shows_nothing(protected: Site, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, body = raw_exchange(protected.port, head.encode())
    assert status in (401, 404)
    assert b"usersTopic" not in body


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
