"""What one client can take of a server, over real sockets: the rest is there for the others."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import re
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h11
import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidStatus

from fake_orchestrator import STATUS, FakeOrchestrator
from filled_store import Filling, filled
from http_server import HTTP, SECONDS, patient, serving
from live_socket import Follower, Socket, place_of, rows_of
from turnout.config import load
from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.plan.where import MAX_VALUES
from turnout.serve import connections
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app
from turnout.serve.connections import OpenConnections
from turnout.serve.limits import Buckets, HeldBytes, Hold, Rate
from turnout.serve.live import endpoint
from turnout.serve.live.changes import ChangeHistory, SharedChanges
from turnout.serve.live.hub import MAX_COMMITS, Hub
from turnout.serve.live.outbox import ROOM_SECONDS, Outbox, Subscription
from turnout.serve.live.shared import Readers
from turnout.serve.reads import Reads
from turnout.serve.responses import to_json
from turnout.store.feed import Commit
from turnout.store.query.window_rows import TrackedWindow, track_window
from turnout.store.query.windows import Positions, Window
from turnout.swap.health import Readiness
from turnout.testing import patience, wait_until
from turnout_client.messages import Changes, Problem, Snapshot, WindowRows

OTHER = "127.0.0.2"
SLOW_WHERE = ",".join(['name icontains ""'] * 40)


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    with filled(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    """A store that nobody writes to, for all tests that only read."""
    with filled(tmp_path_factory.mktemp("quiet")) as made:
        yield made


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    """Another one, whose rows take long to search."""
    with filled(tmp_path_factory.mktemp("large")) as made:
        made.batch(users=[user(number, 2000) for number in range(8_000)])
        yield made


def app(filling: Filling, **limits: Any) -> Any:
    return create_app(patient(filling.database, **limits))


def unbounded(filling: Filling) -> Readers:
    held = HeldBytes(10**9, "")
    return Readers(Reads(filling.database), held, held)


def user(number: int, size: int = 10) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"n{number}" + "x" * size, "email": None, "age": number}


@contextmanager
def client(url: str, address: str = OTHER) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, transport=httpx.HTTPTransport(local_address=address), timeout=SECONDS) as made:
        yield made


def raw(url: str, request: str, address: str = "127.0.0.1") -> socket.socket:
    """A connection that sent something and has read nothing."""
    parts = httpx.URL(url)
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.bind((address, 0))
    made.settimeout(SECONDS)
    made.connect((parts.host, parts.port))
    made.sendall(request.replace("\n", "\r\n").encode())
    return made


# -- reads


def test_read_over_http_ends_after_its_time(large: Filling) -> None:
    with serving(app(large, query_timeout_seconds=0.02)) as url:
        answer = HTTP.get(f"{url}/api/tables/users_ui/rows", params={"where": SLOW_WHERE})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "query_timeout")
        file = HTTP.get(f"{url}/api/tables/users_ui/rows", params={"where": SLOW_WHERE, "format": "csv"})
        assert (file.status_code, file.json()["error"]["code"]) == (503, "query_timeout")
        with Socket(url) as live:
            live.send(type="window", id="w", table="users_ui", where=SLOW_WHERE)
            problem = live.receive()
            assert isinstance(problem, Problem)
            assert (problem.id, problem.error.code) == ("w", "query_timeout")


def test_read_whose_client_has_gone_is_ended(large: Filling) -> None:
    where = SLOW_WHERE.replace(" ", "%20").replace('"', "%22")
    with serving(app(large, max_reads=1, max_reads_per_client=1, query_timeout_seconds=SECONDS)) as url:
        for _ in range(20):
            raw(
                url, f"GET /api/tables/users_ui/rows?where={where} HTTP/1.1\nHost: {httpx.URL(url).netloc.decode()}\n\n"
            ).close()
        assert HTTP.get(f"{url}/api/tables").status_code == 200


def test_probes_do_not_wait_for_reads(large: Filling) -> None:
    with serving(app(large, max_reads=1, query_timeout_seconds=SECONDS)) as url, ExitStack() as held:
        where = SLOW_WHERE.replace(" ", "%20").replace('"', "%22")
        for _ in range(10):
            request = (
                f"GET /api/tables/users_ui/rows?where={where} HTTP/1.1\nHost: {httpx.URL(url).netloc.decode()}\n\n"
            )
            held.callback(raw(url, request).close)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert HTTP.get(f"{url}{path}").status_code == 200


def test_answers_and_windows_have_a_largest_size(filling: Filling) -> None:
    filling.batch(users=[user(number, 50_000) for number in range(40)])
    with serving(app(filling, max_answer_megabytes=1)) as url:
        answer = HTTP.get(f"{url}/api/tables/users_ui/rows")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "answer_too_large")
        assert HTTP.get(f"{url}/api/tables/users_ui/rows", params={"limit": 10}).status_code == 200
        assert HTTP.get(f"{url}/api/tables/users_ui/rows", params={"format": "arrow"}).status_code == 200
        with Socket(url) as live:
            live.send(type="window", id="w", table="users_ui")
            problem = live.receive()
            assert isinstance(problem, Problem)
            assert problem.error.code == "answer_too_large"


def test_lists_of_where_are_bounded_and_long_ones_are_followed(filling: Filling) -> None:
    with serving(app(filling)) as url, Socket(url) as live:
        terms = [{"column": "age", "op": "not in", "value": list(range(1000, 1000 + MAX_VALUES))}]
        live.send(type="window", id="w", table="users_ui", where=terms)
        rows = live.receive()
        assert isinstance(rows, WindowRows)
        assert rows.total == 2
        filling.batch(users=[user(7), user(1007)])
        changed = live.receive()
        assert isinstance(changed, WindowRows)
        assert changed.total == 3
        terms[0]["value"] = list(range(MAX_VALUES + 1))
        live.send(type="window", id="w", table="users_ui", where=terms)
        problem = live.receive()
        assert isinstance(problem, Problem)
        assert (problem.id, problem.error.code) == ("w", "bad_where")


# -- bytes


def test_held_bytes_are_counted_for_each_client_and_given_back() -> None:
    held = HeldBytes(100, "server.some_setting")
    hold = Hold(held, "a")
    hold.grow_to(60)
    hold.grow_to(90)
    with pytest.raises(TurnoutError) as caught:
        Hold(held, "a").grow_to(20)
    assert (caught.value.code, caught.value.status) == ("too_much_unread", 429)
    assert "server.some_setting" in caught.value.hint
    other = Hold(held, "b")
    other.grow_to(20)
    hold.release()
    hold.grow_to(90)
    assert (held.of("a"), held.of("b")) == (0, 20)


def test_held_objects_count_while_they_live() -> None:
    class Rows: ...

    held, rows = HeldBytes(100, ""), Rows()
    held.keep("a", rows, 60)
    held.keep("a", rows, 100)
    assert (held.of("a"), held.has_room("a"), held.has_room("b")) == (100, False, True)
    del rows
    assert (held.of("a"), held.has_room("a")) == (0, True)


def test_downloads_that_nobody_reads_are_bounded_for_each_client(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.connections._STALLED_SECONDS", SECONDS)  # they stay, however slow the machine is
    filling.batch(users=[user(number, 1000) for number in range(3000)])
    limited = app(filling, max_download_megabytes_per_client=10)
    # Left alone, a kernel may take a whole answer for a client that does not read: then nothing is held for it.
    with serving(limited, send_buffer=250_000) as url, client(url) as other, ExitStack() as held:
        request = f"GET /api/tables/users_ui/rows?format=csv HTTP/1.1\nHost: {httpx.URL(url).netloc.decode()}\n\n"
        for _ in range(3):
            download = raw(url, request)
            held.callback(download.close)
            assert download.recv(12) == b"HTTP/1.1 200"  # its file is made, and counts
        path, query = "/api/tables/users_ui/rows", {"format": "csv"}
        assert HTTP.get(f"{url}{path}", params=query).status_code == 429
        assert other.get(path, params=query).status_code == 200
        held.close()
        wait_until(lambda: HTTP.get(f"{url}{path}", params=query).status_code == 200, what="given back")


def test_snapshots_wait_until_the_client_has_read_others(filling: Filling) -> None:
    filling.batch(users=[user(number, 1000) for number in range(3000)])
    with serving(app(filling, max_held_megabytes_per_client=1)) as url, Socket(url) as live:
        for number in range(5):
            live.send(type="changes", id=str(number), table="users_ui")
        answers = [live.receive() for _ in range(5)]
        assert all(isinstance(answer, Snapshot) for answer in answers)


def test_snapshots_that_nobody_reads_stay_within_the_memory_of_their_client(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", SECONDS)
    filling.batch(users=[user(number, 1000) for number in range(3000)])
    rows: list[weakref.ref[Any]] = []
    running, at_once, most = 0, 0, 0

    def noted(*arguments: Any) -> TrackedWindow:
        nonlocal running, at_once, most
        running += 1
        at_once = max(at_once, running)
        try:
            found = track_window(*arguments)
        finally:
            running -= 1
        rows.append(weakref.ref(found.rows))
        most = max(most, sum(one.nbytes for known in rows if (one := known()) is not None))
        return found

    monkeypatch.setattr("turnout.serve.live.changes.track_window", noted)
    columns = list(itertools.permutations(["userId", "name", "email", "age"]))
    limited = app(filling, max_held_megabytes_per_client=20)
    with serving(limited, send_buffer=250_000) as url, ExitStack() as opened:
        # Each reads its first message only.
        sockets = [opened.enter_context(Socket(url, max_queue=1)) for _ in range(3)]
        for number, chosen in enumerate(columns):
            sockets[number % 3].send(type="changes", id=str(number), table="users_ui", columns=chosen)
        wait_until(lambda: bool(rows), what="a snapshot")
        time.sleep(1)  # all could be read in that time
        with ThreadPoolExecutor(3) as threads:
            read = threads.map(lambda socket: [socket.receive() for _ in range(len(columns) // 3)], sockets)
            answers = [answer for received in read for answer in received]
        assert all(isinstance(answer, Snapshot) and answer.last for answer in answers)
        assert {answer.id for answer in answers if isinstance(answer, Snapshot)} == set(map(str, range(len(columns))))
    assert at_once == 1, "reads of whole tables for one client"
    assert most < 20_000_000 + 4_000_000


def test_snapshot_is_read_once_for_all_who_have_not_read_it(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", SECONDS)
    filling.batch(users=[user(number, 1000) for number in range(3000)])
    reads = []

    def noted(*arguments: Any) -> TrackedWindow:
        reads.append(arguments)
        return track_window(*arguments)

    monkeypatch.setattr("turnout.serve.live.changes.track_window", noted)
    with serving(app(filling), send_buffer=250_000) as url, Socket(url, max_queue=1) as live:
        followers = [Follower("users_ui", str(number)) for number in range(20)]
        for follower in followers:
            follower.subscribe(live)
        wait_until(lambda: bool(reads), what="a snapshot")
        subscribed = 'turnout_subscriptions{kind="changes"} 20.0'
        wait_until(lambda: subscribed in HTTP.get(f"{url}/metrics").text, what="all subscriptions")
        filling.batch(users=[user(3001)])
        place = place_of(url, "users_ui")
        while any(follower.place != place for follower in followers):
            message = live.receive()
            followers[int(message.id)].apply(message)  # type: ignore[union-attr,arg-type]
        assert {len(follower.rows) for follower in followers} == {len(rows_of(url, "users_ui"))}
    assert len(reads) == 1


def test_changes_that_nobody_reads_stay_within_the_memory_of_their_client(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", SECONDS)
    histories: dict[ChangeHistory, None] = {}
    add, most = ChangeHistory.add, 0

    def noted(history: ChangeHistory, *arguments: Any) -> None:
        nonlocal most
        add(history, *arguments)
        histories[history] = None
        most = max(most, sum(known.bytes for known in histories))

    monkeypatch.setattr(ChangeHistory, "add", noted)
    columns = list(itertools.permutations(["userId", "name", "email"]))
    limited = app(filling, max_held_megabytes_per_client=8)
    with serving(limited, send_buffer=50_000) as url, Socket(url, max_queue=1) as live:
        for number, chosen in enumerate(columns):
            live.send(type="changes", id=str(number), table="users_ui", columns=chosen)
        wait_until(lambda: bool(live.receive()), what="a snapshot")
        for number in range(20):
            filling.batch(users=[user(100 * number + one, 5000) for one in range(100)])
            wait_until(lambda: bool(histories), what="changes")
        place = place_of(url, "users_ui")
        newest: dict[str, tuple[int, int]] = {}
        while len(newest) < len(columns) or set(newest.values()) != {place}:
            message = live.receive()
            assert isinstance(message, Snapshot | Changes)
            newest[message.id] = message.generation, message.version
    assert len(histories) == len(columns)
    assert most < 2_000_000 + len(columns) * 600_000, "a quarter, and the newest of each"


def test_message_counts_until_it_was_sent_and_others_of_its_client_wait() -> None:
    held, body, sent = HeldBytes(1_000_000, ""), to_json({"rows": "x" * 200_000}), []

    async def play() -> None:
        read = asyncio.Event()

        async def send_text(text: str) -> None:
            sent.append(text)
            await read.wait()

        outboxes = [Outbox("a", held) for _ in range(3)]
        sending = [asyncio.ensure_future(outbox.send(send_text)) for outbox in outboxes]
        for outbox in outboxes:
            Subscription(outbox, "w").replace("rows", body)
        await asyncio.sleep(3 * ROOM_SECONDS)
        assert len(sent) == 1
        assert held.of("a") > 600_000, "the body, its text, and what the connection holds"
        read.set()
        while len(sent) < 3 or held.of("a"):
            await asyncio.sleep(ROOM_SECONDS)
        for task in sending:
            task.cancel()

    asyncio.run(play())


def test_message_is_sent_when_its_client_has_read_it(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", SECONDS)
    filling.batch(users=[user(number, 10_000) for number in range(60)])
    send, unread = connections.Socket.send, []

    async def noted(connection: connections.Socket, message: Any) -> None:
        await send(connection, message)
        unread.append(connection.transport.get_write_buffer_size())

    monkeypatch.setattr(connections.Socket, "send", noted)
    with serving(app(filling), send_buffer=50_000) as url, Socket(url) as live:
        for number in range(4):
            live.send(type="window", id=str(number), table="users_ui", offset=number, limit=60)
        assert all(isinstance(live.receive(), WindowRows) for _ in range(4))
        wait_until(lambda: len(unread) > 4, what="hello and four windows")
    assert max(unread) <= 64 * 1024, "each has 600 kB"


def test_windows_of_one_client_have_so_many_bytes(filling: Filling) -> None:
    filling.batch(users=[user(number, 10_000) for number in range(60)])
    with serving(app(filling, max_held_megabytes_per_client=3)) as url, Socket(url) as live:
        for number in range(6):
            live.send(type="window", id=str(number), table="users_ui", offset=number, limit=60)
        answers = [live.receive() for _ in range(6)]
        assert {"too_much_unread"} == {answer.error.code for answer in answers if isinstance(answer, Problem)}
        assert any(isinstance(answer, WindowRows) for answer in answers)


# -- places


def test_one_client_cannot_take_all_places_for_viewers(quiet: Filling) -> None:
    with serving(app(quiet, max_viewers=4, max_viewers_per_client=2)) as url, ExitStack() as held:
        for _ in range(2):
            held.enter_context(Socket(url))
        with pytest.raises(InvalidStatus) as refused:
            Socket(url)
        error = json.loads(refused.value.response.body or b"")["error"]
        assert (refused.value.response.status_code, error["code"]) == (503, "too_many_viewers")
        assert "max_viewers_per_client" in error["hint"]
        held.enter_context(Socket(url, source_address=(OTHER, 0)))


def test_one_client_has_so_many_subscriptions(quiet: Filling) -> None:
    with serving(app(quiet, max_subscriptions_per_client=3)) as url, Socket(url) as one, Socket(url) as two:
        for number in range(2):
            one.send(type="status", id=str(number))
            two.send(type="status", id=str(number))
        told = [*(one.receive() for _ in range(2)), *(two.receive() for _ in range(2))]
        assert [answer.error.code for answer in told if isinstance(answer, Problem)] == ["too_many_subscriptions"]


def test_connections_of_one_client_are_bounded_and_others_and_probes_are_answered(
    quiet: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, connections stay until the test has looked.
    monkeypatch.setattr("turnout.serve.connections._REFUSAL_SECONDS", SECONDS)
    monkeypatch.setattr("turnout.serve.requests.BODY_SECONDS", SECONDS)
    open_connections = OpenConnections(
        ServerSettings(max_connections=8, max_viewers=8, max_connections_per_client=4), SECONDS
    )
    with serving(app(quiet), open_connections=open_connections) as url, client(url) as other, ExitStack() as held:
        host = httpx.URL(url).netloc.decode()
        for _ in range(4):
            # Waits for its body, and so is not idle.
            held.callback(raw(url, f"POST /api/control HTTP/1.1\nHost: {host}\nContent-Length: 9\n\n").close)
        wait_until(
            lambda: not open_connections.idle and open_connections._open.total() == 4, what="the share is used up"
        )
        assert HTTP.get(f"{url}/api/tables").json()["error"]["code"] == "too_many_connections"
        assert other.get("/api/tables").status_code == 200
        for path in ("/healthz", "/readyz"):
            assert HTTP.get(f"{url}{path}").status_code == 200
        answer = raw(url, f"GET /healthz HTTP/1.1\nHost: {host}\n\nGET /api/tables HTTP/1.1\nHost: {host}\n\n")
        received = b""
        while piece := answer.recv(4096):
            received += piece
        assert received.count(b"HTTP/1.1") == 1, "one answer, to the probe"


def test_slow_reader_gets_all_of_its_answer(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = patience(0.5)
    monkeypatch.setattr("turnout.serve.connections._STALLED_SECONDS", stalled)
    filling.batch(users=[user(number, 10_000) for number in range(400)])
    with serving(app(filling), send_buffer=16_384) as url:
        request = "GET /api/tables/users_ui/rows?limit=1000 HTTP/1.1\nConnection: close\nHost: "
        slow = raw(url, f"{request}{httpx.URL(url).netloc.decode()}\n\n")
        received, began = bytearray(), time.monotonic()
        while piece := slow.recv(20_000):
            received += piece
            if time.monotonic() - began < 3 * stalled:
                time.sleep(0.02)  # slow, for longer than a reader may take nothing
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        assert b"200 OK" in head
        assert json.loads(body)["total"] == 402


# -- messages


def test_bytes_count_in_the_rate_and_large_messages_are_not_read_on_the_event_loop(
    quiet: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "BYTES", Rate(per_second=1_000_000, burst=50_000))
    threads: list[str] = []
    parse = endpoint.parsed

    def noted(raw: str | bytes) -> endpoint.Asked:
        threads.append(threading.current_thread().name)
        return parse(raw)

    monkeypatch.setattr(endpoint, "parsed", noted)
    spent: list[float] = []
    spend = Buckets.spend

    def counted(self: Buckets, client: str, amount: float) -> None:
        spent.append(amount)
        spend(self, client, amount)

    monkeypatch.setattr(Buckets, "spend", counted)
    with serving(app(quiet)) as url, Socket(url) as live:
        where = [{"column": "age", "op": "in", "value": list(range(5000))}]
        for _ in range(3):
            live.send(type="window", id="w", table="users_ui", where=where)
            assert isinstance(live.receive(), WindowRows)
        live.send(type="window", id="w", table="users_ui")
        assert isinstance(live.receive(), WindowRows)
    assert [name.startswith("parse") for name in threads] == [True, True, True, False]
    assert sum(amount > 20_000 for amount in spent) == 3


# -- what is followed does not pile up


def test_following_a_compared_table_keeps_no_changes(quiet: Filling) -> None:
    async def follow() -> int:
        shared = SharedChanges(Window("join_quality"), unbounded(quiet), lambda: None)
        for version in range(1, 50):
            moved = {Position(1, version): None}
            shared.notify(Positions(1, None, {"join_quality": version}, {}), {"join_quality": moved})
        shared.close()
        return len(shared._deltas)

    assert asyncio.run(follow()) == 0


def test_commits_do_not_pile_up_while_positions_cannot_be_read(quiet: Filling) -> None:
    async def hear() -> int:
        hub = Hub(quiet.database, lambda: STATUS, unbounded(quiet))
        for version in range(3 * MAX_COMMITS):
            hub._take(Commit(1, {"users_ui": version}, {}))
        return len(hub._commits)

    assert asyncio.run(hear()) <= MAX_COMMITS


# -- what others are told, and who is believed


def test_cross_site_reads_are_refused_where_there_are_no_tokens(quiet: Filling) -> None:
    allowed = Access.of(_settings("server: {allowed_origins: ['https://app.example']}"))
    services = Services(quiet.database, FakeOrchestrator())
    with serving(create_app(services, allowed)) as url:
        path = f"{url}/api/tables"
        answer = HTTP.get(path, headers={"Sec-Fetch-Site": "cross-site"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        for site in ("same-origin", "same-site", "none"):
            assert HTTP.get(path, headers={"Sec-Fetch-Site": site}).status_code == 200
        named = {"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example"}
        assert HTTP.get(path, headers=named).status_code == 200
        assert HTTP.get(f"{url}/", headers={"Sec-Fetch-Site": "cross-site"}).status_code != 403


class Unready(FakeOrchestrator):
    def readiness(self) -> Readiness:
        return Readiness(False, "broker kafka-7.internal:9092 is away", "kafka_unreachable", "check kafka-7.internal")


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_without_a_token_tells_no_addresses(quiet: Filling, ready: bool) -> None:
    access = Access.of(_settings("access: {tokens: [{name: wall, role: viewer, token: 0123456789abcdef0123}]}"))
    services = Services(quiet.database, FakeOrchestrator() if ready else Unready())
    with serving(create_app(services, access)) as url:
        blind = HTTP.get(f"{url}/readyz")
        known = HTTP.get(f"{url}/readyz", headers={"Authorization": "Bearer 0123456789abcdef0123"})
        assert blind.status_code == known.status_code == (200 if ready else 503)
        if ready:
            assert (blind.json(), known.json()["reason"]) == ({"status": "ready"}, "generation 1 is published")
        else:
            assert "kafka-7" not in blind.text
            assert "kafka-7" in known.text
            assert blind.json()["error"]["code"] == known.json()["error"]["code"] == "kafka_unreachable"


@pytest.mark.parametrize("trusted", [True, False])
def test_forwarded_address_is_believed_of_configured_proxies_only(
    quiet: Filling, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    access = Access.of(_settings("access: {tokens: [{name: wall, role: viewer, token: 0123456789abcdef0123}]}"))
    services = Services(quiet.database, FakeOrchestrator())
    proxies = ("127.0.0.0/8",) if trusted else ()
    with serving(create_app(services, access), trusted_proxies=proxies) as url:
        codes = [
            HTTP.get(
                f"{url}/api/tables",
                headers={"Authorization": "Bearer wrong", "X-Forwarded-For": f"192.0.2.{number}"},
            ).status_code
            for number in range(20)
        ]
    assert (429 in codes) is not trusted


def test_csv_cells_that_look_like_formulas_can_be_guarded(filling: Filling) -> None:
    names = ["=1+1", "+1", "-1", "@x", "\tx", "plain", "", None]
    filling.swap(users=[{"userId": f"u{n}", "name": name, "email": None, "age": -n} for n, name in enumerate(names)])
    with serving(app(filling)) as url:
        path, query = f"{url}/api/tables/users_ui/rows", {"format": "csv", "columns": "name,age"}
        plain = HTTP.get(path, params=query).text.splitlines()
        guarded = HTTP.get(path, params=query | {"guard": "true"}).text.splitlines()
        assert plain[1:5] == ['"=1+1",0', '"+1",-1', '"-1",-2', '"@x",-3']
        assert guarded[1:] == [
            '"\'=1+1",0',
            '"\'+1",-1',
            '"\'-1",-2',
            '"\'@x",-3',
            '"\'\tx",-4',
            '"plain",-5',
            '"",-6',
            ",-7",
        ]
        assert HTTP.get(path, params=query | {"guard": "maybe"}).json()["error"]["code"] == "bad_parameter"


def _settings(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "turnout.yaml"
        file.write_text(text)
        return load(file)


# -- the parts of uvicorn that are extended


def test_uvicorn_has_the_parts_that_are_extended_and_no_other_series_is_taken() -> None:
    http, websocket = (
        set(inspect.getsource(H11Protocol).split("self.")),
        set(inspect.getsource(WebSocketsSansIOProtocol).split("self.")),
    )
    for name in ("cycle", "transport", "loop", "scope", "client", "connections", "flow", "conn"):
        assert any(re.match(rf"{name}\b", part) for part in http), name
    handshake = ("handshake_complete", "handshake_initiated")
    for name in ("queue", "conn", "transport", "loop", *handshake, "close_sent", "writable"):
        assert any(re.match(rf"{name}\b", part) for part in websocket), name
    assert "self._receive_buffer = ReceiveBuffer()" in inspect.getsource(h11.Connection)
    pinned = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    series = re.search(r'"uvicorn>=(0\.\d+),<(0\.\d+)"', pinned)
    assert series is not None
    assert uvicorn.__version__.startswith(f"{series[1]}.")
