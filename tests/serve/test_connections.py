"""How much one client may take of a real server: rates, and connections that are idle, slow or too many."""

from __future__ import annotations

import asyncio
import http.client
import re
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidStatus

from access_site import (
    ACCESS,
    OPS,
    TABLE,
    WALL,
    Site,
    echoing,
    error_in,
    error_of,
    handshake,
    opened,
    raw_exchange,
    refusal,
    site,
)
from fake_orchestrator import leave_waiting
from http_server import SECONDS, serving
from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.serve import connections, requests
from turnout.serve.connections import OpenConnections
from turnout.serve.limits import Buckets, Rate, Rates, Viewers, client_of
from turnout.testing import wait_until

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
        hint = error_of(guesses[-1], 429, "too_many_requests")["hint"]
        assert re.fullmatch(r"wait \d+ s; then send a token that is known here, or sign in again", hint)
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


def test_client_that_opens_sockets_too_often_is_told_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_UPGRADES", Rate(0.01, 1))
    with echoing(tmp_path, "") as url:
        with opened(url) as first:
            assert first.recv()
        with pytest.raises(InvalidStatus) as caught, opened(url):
            pass
    assert caught.value.response.status_code == 429
    assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 100


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
        site(
            tmp_path,
            open_connections=OpenConnections(ServerSettings(max_connections=2, max_viewers=2), request_seconds=1),
        ) as running,
    ):
        running.queue.decide = leave_waiting
        waiting = pool.submit(httpx.post, f"{running.url}/api/control", json={}, timeout=SECONDS)
        wait_until(lambda: len(running.queue.requesters) == 1)
        with idle_sockets(running.port, 5) as idle:
            wait_until(lambda: all(map(is_closed, idle)))
        assert not waiting.done()
    assert waiting.result(SECONDS).status_code == 202  # told at the stop


def test_connection_beyond_the_limit_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REFUSAL_SECONDS", SECONDS)  # a slow client has its answer too
    full = OpenConnections(ServerSettings(max_connections=2, max_viewers=2), SECONDS)
    with ThreadPoolExecutor(2) as pool, site(tmp_path, open_connections=full) as running:
        running.queue.decide = leave_waiting
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
    with site(
        tmp_path, open_connections=OpenConnections(ServerSettings(max_connections=1, max_viewers=1), SECONDS)
    ) as running:
        for _ in range(50):
            assert running.get().status_code == 200
