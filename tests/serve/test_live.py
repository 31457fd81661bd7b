"""Live subscriptions against the real server: what is sent, when, and what is not."""

import json
import socket as socket_module
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus

from filled_store import GOLD_1, USER_1, USER_2, Filling, filled, settings_of
from http_server import HTTP, SECONDS, application, serving
from lengths import LIVE_EXAMPLES
from live_socket import Follower, Socket, place_of, rows_of, same, sorted_rows_of
from turnout.plan.joins import Join
from turnout.serve.live import outbox
from turnout.serve.live import windows as live_windows
from turnout.serve.live.changes import SharedChanges
from turnout.store.database import Database
from turnout.store.feed import Wanted
from turnout.store.ledger import Ledger
from turnout.store.query.window_rows import TrackedWindow, track_window
from turnout.store.query.windows import Window
from turnout.testing import patience, wait_until
from turnout_client.messages import (
    MAX_SUBSCRIPTIONS,
    Changes,
    CloseCode,
    Current,
    Problem,
    Snapshot,
    StatusNow,
    WindowRows,
)


@pytest.fixture(scope="module")
def quiet_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose store nobody writes to, for all tests that only look."""
    with filled(tmp_path_factory.mktemp("quiet")) as made, serving(application(made.database)) as address:
        yield address


def test_window_is_sent_at_once_and_again_when_it_changes(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="window", id="w", table="final_ui", sort="-age", where="age>30", columns=["name", "balance"])
        first = socket.receive()
        assert isinstance(first, WindowRows)
        assert (first.id, first.total, first.rows) == ("w", 2, [["Ben", None], ["Ada", 10.5]])
        filling.batch(accounts=[{"userId": "u2", "accountType": "silver", "balance": 2.0}])
        second = socket.receive()
        assert isinstance(second, WindowRows)
        assert second.rows == [["Ben", 2.0], ["Ada", 10.5]]
        assert second.ids == first.ids, "a row keeps its identity while its cells change"


def test_window_is_not_sent_when_a_change_does_not_concern_it(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="window", id="w", table="final_ui", where="age<50")
        socket.receive()
        filling.batch(users=[{"userId": "u9", "name": "Old", "email": None, "age": 80}])
        assert socket.silent()


def test_window_whose_total_alone_changes_is_sent_with_the_new_total(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="window", id="w", table="users_ui", sort="age", limit=1)
        first = socket.receive()
        filling.batch(users=[{"userId": "u9", "name": "Old", "email": None, "age": 80}])
        second = socket.receive()
        assert isinstance(first, WindowRows)
        assert isinstance(second, WindowRows)
        assert (first.total, second.total) == (2, 3)
        assert first.rows == second.rows


def test_window_moves_when_its_id_is_sent_again(quiet_url: str) -> None:
    with Socket(quiet_url) as socket:
        socket.send(type="window", id="w", table="users_ui", limit=1)
        socket.receive()
        socket.send(type="window", id="w", table="users_ui", limit=1, offset=1)
        moved = socket.receive()
        assert isinstance(moved, WindowRows)
        assert (moved.offset, moved.rows[0][0]) == (1, "u2")


def test_windows_that_are_the_same_are_read_once_and_changes_are_merged_into_them(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []

    def counted(*arguments: Any) -> Any:
        reads.append(arguments)
        return track_window(*arguments)

    monkeypatch.setattr("turnout.serve.live.windows.track_window", counted)
    sockets = [Socket(url) for _ in range(10)]
    for socket in sockets:
        socket.send(type="window", id="w", table="final_ui", sort="-age")
        socket.receive()
    filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 70}])
    answers = [socket.receive() for socket in sockets]
    assert len(reads) == 1
    assert len({answer.model_dump_json() for answer in answers}) == 1
    for socket in sockets:
        socket.raw.close()


def test_windows_that_take_long_to_read_hold_up_nobody_else(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def slow(database: Database, window: Window) -> TrackedWindow:
        if window.table == "accounts_ui":
            release.wait(SECONDS)
        return track_window(database, window)

    monkeypatch.setattr("turnout.serve.live.windows.track_window", slow)
    with Socket(url) as socket, Socket(url) as other:
        socket.send(type="window", id="w", table="users_ui")
        socket.receive()
        for number in range(4):
            other.send(type="window", id=str(number), table="accounts_ui", offset=number)
        filling.batch(users=[{**USER_1, "userId": "u3"}])
        answer = socket.receive()
        release.set()
        assert isinstance(answer, WindowRows)
        assert answer.total == 3
        assert {other.receive().type for _ in range(4)} == {"rows"}


def test_windows_whose_values_are_equal_and_mean_different_things_are_two(filling: Filling, url: str) -> None:
    filling.batch(users=[{"userId": "u3", "name": name, "email": None, "age": 1} for name in ("1", "1.0")])
    with Socket(url) as socket:
        for value in (1, 1.0):
            where = [{"column": "name", "op": "=", "value": value}]
            socket.send(type="window", id=str(value), table="users_ui", where=where, columns="name")
            answer = socket.receive()
            assert isinstance(answer, WindowRows)
            assert answer.rows == [[str(value)]]


def test_changes_are_a_snapshot_and_then_every_insert_update_and_delete(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    filling = Filling(database, settings_of("latest"))
    filling.swap(users=[USER_1])
    with serving(application(database)) as url, Socket(url) as socket:
        socket.send(type="changes", id="c", table="users_ui")
        first = socket.receive()
        assert isinstance(first, Snapshot)
        assert (first.reason, first.last, len(first.rows)) == ("subscribed", True, 1)
        filling.batch(users=[{**USER_1, "age": 37}, USER_2])
        second = socket.receive()
        assert isinstance(second, Changes)
        assert (second.since, second.version) == (first.version, first.version + 1)
        assert second.update.ids == first.ids, "rows: latest keeps the identity of a key"
        assert [row[0] for row in second.insert.rows] == ["u2"]
        assert second.delete == []
    database.close()


def test_changes_of_a_large_table_come_in_parts(quiet_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.serve.live.changes.SNAPSHOT_PART_ROWS", 1)
    with Socket(quiet_url) as socket:
        socket.send(type="changes", id="c", table="users_ui")
        parts = [socket.receive(), socket.receive()]
        assert [part.last for part in parts if isinstance(part, Snapshot)] == [False, True]


def test_changes_of_columns_leave_out_updates_of_others(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    filling = Filling(database, settings_of("latest"))
    filling.swap(users=[USER_1])
    with serving(application(database)) as url, Socket(url) as socket:
        socket.send(type="changes", id="c", table="users_ui", columns="userId,name")
        socket.receive()
        filling.batch(users=[{**USER_1, "age": 99}])
        change = socket.receive()
        assert isinstance(change, Changes)
        assert (change.insert.rows, change.update.rows, change.delete) == ([], [], [])
    database.close()


def test_changes_of_shared_tables_are_told_too(filling: Filling, url: str) -> None:
    ledger = Ledger(filling.database, ["users", "accounts"])
    with Socket(url) as socket:
        socket.send(type="changes", id="c", table="orchestrator_logs")
        assert isinstance(socket.receive(), Snapshot)
        ledger.log("INFO", "one line")
        change = socket.receive()
        assert isinstance(change, Changes)
        assert [row[1:] for row in change.insert.rows] == [["INFO", "one line"]]


@pytest.mark.parametrize("kind", ["window", "changes"])
def test_swap_reaches_fifty_subscribers_as_one_message_each(filling: Filling, url: str, kind: str) -> None:
    sockets = [Socket(url) for _ in range(50)]
    for socket in sockets:
        socket.send(type=kind, id="s", table="final_ui")
        socket.receive()
    new = [{"userId": f"n{i}", "name": "New", "email": None, "age": i} for i in range(100)]
    filling.swap(Join.INNER, users=new, accounts=[{"userId": "n7", "accountType": "gold", "balance": 1.0}])
    answers = [socket.receive() for socket in sockets]
    assert all(socket.silent(0.2 if index == 0 else 0.01) for index, socket in enumerate(sockets))
    expected = rows_of(url, "final_ui")
    for answer in answers:
        assert isinstance(answer, (WindowRows, Snapshot))
        assert (answer.generation, answer.rows) == (2, expected)
    for socket in sockets:
        socket.raw.close()


def test_generation_of_its_own_is_followed_until_it_is_retired(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="window", id="w", table="users_ui@1")
        socket.send(type="changes", id="c", table="users_ui@1")
        assert {socket.receive().type, socket.receive().type} == {"rows", "snapshot"}
        filling.swap(users=[USER_1])
        assert socket.silent(), "the names moved, this generation did not"
        filling.drop(1)
        errors = [socket.receive(), socket.receive()]
        assert {error.error.code for error in errors if isinstance(error, Problem)} == {"unknown_table"}
        assert {error.id for error in errors if isinstance(error, Problem)} == {"w", "c"}


def test_viewer_that_asks_for_what_is_not_there_harms_no_batch(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    filling = Filling(database, settings_of("latest"))
    filling.swap(users=[USER_1], accounts=[GOLD_1])
    database.feed.want([(table, Wanted(frozenset({"nope", "_hash", "age"}))) for table in ("users_ui", "final_ui")])
    filling.batch(users=[{**USER_1, "age": 40}])
    with serving(application(database)) as url:
        assert [row[3] for row in rows_of(url, "final_ui")] == [40]
    database.close()


def test_fault_of_the_server_ends_the_subscription_with_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a secret of the house")

    monkeypatch.setattr("turnout.serve.live.windows.track_window", broken)
    monkeypatch.setattr("turnout.serve.live.changes.track_window", broken)
    with Socket(url) as socket:
        # A filter that nobody asked for before: where an order is kept, nothing is read.
        socket.send(type="window", id="w", table="users_ui", where="age > -7")
        socket.send(type="changes", id="c", table="users_ui")
        for error in (socket.receive(), socket.receive()):
            assert isinstance(error, Problem)
            assert error.error.code == "internal_error"
            assert "secret" not in error.model_dump_json()


def test_status_is_pushed(quiet_url: str) -> None:
    with Socket(quiet_url) as socket:
        socket.send(type="status", id="s")
        first, second = socket.receive(), socket.receive()
        assert isinstance(first, StatusNow)
        assert isinstance(second, StatusNow)
        assert first.status["newestRecord"] == "2026-01-01T00:00:02Z"
        assert first.status["time"] < second.status["time"]


def test_change_that_comes_while_the_snapshot_is_read_is_sent_after_it(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified, notify = threading.Event(), SharedChanges.notify

    def noted(self: SharedChanges, *arguments: Any) -> None:
        notify(self, *arguments)
        notified.set()

    def slow(database: Database, window: Window, *_: Any) -> TrackedWindow:
        found = track_window(database, window)
        if not notified.is_set():
            filling.batch(users=[{**USER_1, "userId": "u3"}])
            assert notified.wait(SECONDS)
        return found

    monkeypatch.setattr(SharedChanges, "notify", noted)
    monkeypatch.setattr("turnout.serve.live.changes.track_window", slow)
    follower = Follower("users_ui")
    with Socket(url) as socket:
        follower.subscribe(socket)
        for _ in range(2):
            follower.apply(socket.receive())
        assert [type(message) for message in follower.messages] == [Snapshot, Changes]
        assert follower.place == place_of(url, "users_ui")


def test_resume_gets_only_what_was_missed(filling: Filling, url: str) -> None:
    follower = Follower("final_ui")
    with Socket(url) as socket:
        follower.subscribe(socket)
        follower.read_up_to(socket, place_of(url, "final_ui"))
        with Socket(url) as other:
            Follower("final_ui").subscribe(other)
            other.receive()
    filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 1}])
    filling.batch(users=[{"userId": "u4", "name": "Di", "email": None, "age": 2}])
    # Until both changes are known: who resumes before that gets `current`, and then the changes.
    early = Follower("final_ui")
    early.place, early.rows = follower.place, dict(follower.rows)
    with Socket(url) as socket:
        early.subscribe(socket)
        early.read_up_to(socket, place_of(url, "final_ui"))
        assert Snapshot not in [type(message) for message in early.messages]
    with Socket(url) as socket:
        follower.subscribe(socket)
        follower.read_up_to(socket, place_of(url, "final_ui"))
        assert [type(message) for message in follower.messages] == [Snapshot, Changes, Changes]
    with Socket(url) as socket:
        follower.subscribe(socket)
        assert isinstance(socket.receive(), Current)
        generation, version = place_of(url, "final_ui")
        socket.send(
            type="window",
            id="w",
            table="final_ui",
            resume={"generation": generation, "version": version},
        )
        assert isinstance(socket.receive(), Current)
    assert follower.sorted_rows() == sorted_rows_of(url, "final_ui")


def test_resume_after_a_restart_of_the_server_is_current_where_nothing_changed(filling: Filling, url: str) -> None:
    follower = Follower("final_ui")
    with Socket(url) as socket:
        follower.subscribe(socket)
        follower.read_up_to(socket, place_of(url, "final_ui"))
    with serving(application(filling.database)) as restarted, Socket(restarted) as socket:
        follower.subscribe(socket)
        assert isinstance(socket.receive(), Current)
        filling.batch(users=[USER_2])
        follower.read_up_to(socket, place_of(restarted, "final_ui"))
        assert follower.sorted_rows() == sorted_rows_of(restarted, "final_ui")


def test_resume_of_an_unknown_place_gets_a_snapshot(quiet_url: str) -> None:
    with Socket(quiet_url) as socket:
        socket.send(type="changes", id="c", table="final_ui", resume={"generation": 9, "version": 4})
        assert isinstance(socket.receive(), Snapshot)


def test_unsubscribe_ends_what_is_sent(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="window", id="w", table="users_ui")
        socket.receive()
        socket.send(type="unsubscribe", id="w")
        filling.batch(users=[USER_2])
        assert socket.silent()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("{", "bad_message"),
        ("[]", "bad_message"),
        ('{"type": "drop"}', "bad_message"),
        ('{"type": "window", "id": "1"}', "bad_message"),
        ('{"type": "window", "id": "1", "table": "users_ui", "limit": 10001}', "bad_message"),
        ('{"type": "window", "id": "1", "table": "users_ui", "offset": -1}', "bad_message"),
        ('{"type": "window", "id": "1", "table": "users_ui", "extra": 1}', "bad_message"),
        ('{"type": "window", "id": "1", "table": "g1.users_ui"}', "unknown_table"),
        ('{"type": "changes", "id": "1", "table": "turnout.published"}', "unknown_table"),
        ('{"type": "window", "id": "1", "table": "users_ui", "where": "age > 1; DROP TABLE x"}', "bad_where"),
        ('{"type": "window", "id": "1", "table": "users_ui", "where": "_id > 1"}', "bad_where"),
        ('{"type": "window", "id": "1", "table": "users_ui", "sort": "_id"}', "bad_sort"),
        ('{"type": "changes", "id": "1", "table": "users_ui", "columns": "_hash"}', "bad_columns"),
        (
            '{"type": "window", "id": "1", "table": "users_ui", "where": [{"column": "age", "op": "=", "value": [1]}]}',
            "bad_where",
        ),
    ],
)
def test_bad_message_is_an_error_and_the_connection_stays(quiet_url: str, raw: str, code: str) -> None:
    with Socket(quiet_url) as socket:
        socket.raw.send(raw)
        error = socket.receive()
        assert isinstance(error, Problem)
        assert error.error.code == code
        assert error.error.hint
        socket.send(type="window", id="2", table="users_ui")
        assert isinstance(socket.receive(), WindowRows)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('{"type": "summary", "id": "s"}', "s"),
        ('{"type": "sql", "id": "q"}', "q"),
        ('{"id": "w", "type": "window", "table": 1}', "w"),
        ('{"id": "d", "type": "drop"}', "d"),
        ('{"type": "sql", "id": 7}', None),
        ('{"type": "sql", "id": "", "sql": "select 1"}', None),
        ('{"type": "sql", "id": "q"', None),
    ],
)
def test_error_of_a_bad_message_has_the_id_that_was_sent(quiet_url: str, raw: str, wanted: str | None) -> None:
    with Socket(quiet_url) as socket:
        socket.raw.send(raw)
        error = socket.receive()
        assert isinstance(error, Problem)
        assert (error.id, error.error.code) == (wanted, "bad_message")


def test_message_of_ten_megabytes_ends_the_connection_only(quiet_url: str) -> None:
    with Socket(quiet_url) as socket, Socket(quiet_url) as other:
        with pytest.raises(ConnectionClosed) as closed:
            socket.raw.send("x" * 10_000_000)
            socket.receive()
        assert closed.value.rcvd is None or closed.value.rcvd.code == CloseCode.TOO_LARGE
        other.send(type="window", id="w", table="users_ui")
        assert isinstance(other.receive(), WindowRows)


def test_too_many_messages_end_the_connection(quiet_url: str) -> None:
    with Socket(quiet_url) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(1000):
                socket.send(type="unsubscribe", id="x")
            while True:
                socket.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.TOO_MANY_MESSAGES


def test_too_many_subscriptions_are_refused(quiet_url: str) -> None:
    with Socket(quiet_url) as socket:
        for number in range(MAX_SUBSCRIPTIONS + 1):
            socket.send(type="window", id=str(number), table="users_ui", limit=number)
        answers = [socket.receive() for _ in range(MAX_SUBSCRIPTIONS + 1)]
        refused = [answer for answer in answers if isinstance(answer, Problem)]
        assert [(error.id, error.error.code) for error in refused] == [
            (str(MAX_SUBSCRIPTIONS), "too_many_subscriptions")
        ]


def test_idle_sockets_are_bounded_and_others_are_served(filling: Filling, caplog: pytest.LogCaptureFixture) -> None:
    services = application(filling.database, max_viewers=20)
    with serving(services) as url:
        sockets = [Socket(url) for _ in range(20)]
        for _ in range(30):
            with pytest.raises(InvalidStatus) as answer:
                Socket(url)
            assert answer.value.response.status_code == 503
            assert json.loads(answer.value.response.body or b"")["error"]["code"] == "too_many_viewers"
        assert HTTP.get(f"{url}/api/tables").status_code == 200
        sockets[0].send(type="window", id="w", table="users_ui")
        assert isinstance(sockets[0].receive(), WindowRows)
        sockets[1].raw.close()
        wait_until(lambda: _has_room(url), what="room for one who comes when another has left")
        told = [record for record in caplog.records if record.name.startswith(("turnout.serve", "uvicorn"))]
        assert not told, "a refusal is no fault of the server"
        for socket in sockets:
            socket.raw.close()


def test_stalled_client_is_conflated_then_dropped_and_others_notice_nothing(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", patience(3))
    monkeypatch.setattr("turnout.serve.connections._LAST_WORD_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "MAX_WAITING_CHANGES", 3)
    follower = Follower("users_ui")
    services = application(filling.database, max_viewers=2)
    with serving(services, send_buffer=16_384) as url, Socket(url) as socket:
        follower.subscribe(socket)
        follower.read_up_to(socket, place_of(url, "users_ui"))
        stalled = Stalled(url)
        with pytest.raises(InvalidStatus):
            Socket(url)
        wide = {"userId": "u", "name": "x" * 200_000, "email": None, "age": 1}
        for _ in range(12):
            filling.batch(users=[wide])
            follower.read_up_to(socket, place_of(url, "users_ui"))
        wait_until(lambda: _has_room(url), what="a client that reads nothing is given up")
        assert follower.sorted_rows() == sorted_rows_of(url, "users_ui")
        assert [type(message) for message in follower.messages] == [Snapshot] + [Changes] * 12
        stalled.close()


def _has_room(url: str) -> bool:
    try:
        Socket(url).raw.close()
    except InvalidStatus:
        return False
    return True


class Stalled:
    """A client that subscribes to changes and then reads nothing."""

    def __init__(self, url: str) -> None:
        address = httpx.URL(url)
        self._socket = socket_module.create_connection((address.host, address.port))
        self._socket.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_RCVBUF, 4096)
        request = (
            f"GET /api/live HTTP/1.1\r\nHost: {address.netloc.decode()}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        assert b"101" in self._socket.recv(4096)
        text = json.dumps({"type": "changes", "id": "c", "table": "users_ui"}).encode()
        self._socket.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)

    def close(self) -> None:
        self._socket.close()


def test_client_that_falls_behind_gets_a_snapshot_instead(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING_CHANGES", 1)
    monkeypatch.setattr("turnout.serve.connections.SLOW_SECONDS", 10 * SECONDS)
    follower = Follower("users_ui")
    # A kernel may buffer tens of megabytes; a buffer whose size is set stays as small.
    narrow = socket_module.socket()
    narrow.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_RCVBUF, 65_536)
    with serving(application(filling.database), send_buffer=16_384) as url:
        address = httpx.URL(url)
        narrow.connect((address.host, address.port))
        with Socket(url, max_queue=1, sock=narrow) as socket:
            follower.subscribe(socket)
            follower.read_up_to(socket, place_of(url, "users_ui"))
            wide = {"userId": "u", "name": "x" * 400_000, "email": None, "age": 1}
            for _ in range(12):
                filling.batch(users=[wide])
            follower.read_up_to(socket, place_of(url, "users_ui"))
            assert "behind" in {message.reason for message in follower.messages if isinstance(message, Snapshot)}
            assert follower.sorted_rows() == sorted_rows_of(url, "users_ui")


# -- the property: whatever happens, a follower ends with the table

_KEYS = st.sampled_from(["a", "b", "c", "d", None])
_USERS = st.builds(
    lambda key, age: {"userId": key, "name": f"n{age}", "email": None, "age": age}, _KEYS, st.integers(0, 3)
)
_ACCOUNTS = st.builds(
    lambda key, balance: {"userId": key, "accountType": "x", "balance": balance}, _KEYS, st.sampled_from([0.0, 1.5])
)
_BATCH = st.tuples(
    st.just("batch"), st.lists(st.one_of(st.none(), _USERS), max_size=4), st.lists(_ACCOUNTS, max_size=4)
)
_SWAP = st.tuples(
    st.just("swap"), st.sampled_from([Join.LEFT, Join.INNER, Join.FULL, Join.RIGHT]), st.lists(_USERS, max_size=3)
)
_STEPS = st.lists(st.one_of(_BATCH, _BATCH, _BATCH, _SWAP, st.just(("reconnect",)), st.just(("settle",))), max_size=12)
_TABLES = ("users_ui", "accounts_ui", "final_ui", "bad_records", "join_quality")
_WINDOWS: tuple[dict[str, Any], ...] = (
    {"sort": "-age,name", "limit": 3},
    {"where": "age>=2", "limit": 2, "offset": 1},
    {"where": "userId is not null", "sort": "userId", "limit": 100},
    {"where": "* icontains B", "sort": "-userId", "limit": 4},
    {"limit": 0},
)


@settings(max_examples=LIVE_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.sampled_from(["all", "latest"]),
    duplicates=st.sampled_from(["latest", "all"]),
    max_rows=st.sampled_from([None, 3]),
    held=st.sampled_from([(0, 1), (2_000, 1), (2_000, 3), (2_000, 100)]),
    steps=_STEPS,
)
def test_followers_and_windows_end_with_what_http_answers(
    tmp_path_factory: pytest.TempPathFactory,
    rows: str,
    duplicates: str,
    max_rows: int | None,
    held: tuple[int, int],
    steps: list[Any],
) -> None:
    database = Database.open(tmp_path_factory.mktemp("store"))
    filling = Filling(database, settings_of(rows, max_rows, duplicates))
    filling.swap()
    try:
        with pytest.MonkeyPatch.context() as patch, serving(application(database)) as url:
            patch.setattr(live_windows, "MAX_HELD_ROWS", held[0])
            patch.setattr(live_windows, "SPARE_ROWS", held[1])
            _follow_through(filling, url, steps)
    finally:
        database.close()


def _follow_through(filling: Filling, url: str, steps: list[Any]) -> None:
    followers = [Follower(table, table) for table in _TABLES]
    windows: dict[str, WindowRows] = {}
    socket = _connected(url, followers)
    for step in [*steps, ("settle",), ("reconnect",), ("settle",)]:
        if step[0] == "batch":
            filling.batch(users=step[1], accounts=step[2])
        elif step[0] == "swap":
            filling.swap(step[1], users=step[2])
        elif step[0] == "reconnect":
            socket.raw.close()
            socket = _connected(url, followers)
        else:
            _settle(socket, url, followers, windows)
    socket.raw.close()


def _connected(url: str, followers: list[Follower]) -> Socket:
    socket = Socket(url)
    for follower in followers:
        follower.subscribe(socket)
    for number, window in enumerate(_WINDOWS):
        socket.send(type="window", id=f"w{number}", table="final_ui", **window)
    return socket


def _settle(socket: Socket, url: str, followers: list[Follower], windows: dict[str, WindowRows]) -> None:
    """Read on until all have got to the present; they then hold what HTTP answers."""
    by_id = {follower.identity: follower for follower in followers}
    places = {follower.identity: place_of(url, follower.table) for follower in followers}
    rows = f"{url}/api/tables/final_ui/rows"
    wanted = {f"w{n}": HTTP.get(rows, params=w).json() for n, w in enumerate(_WINDOWS)}

    def done() -> bool:
        followed = all(follower.place == places[follower.identity] for follower in followers)
        return followed and all(name in windows and same(windows[name], wanted[name]) for name in wanted)

    while not done():
        message = socket.receive()
        if isinstance(message, WindowRows):
            windows[message.id] = message
        else:
            assert not isinstance(message, Problem), message
            by_id[message.id].apply(message)  # type: ignore[union-attr]
    for follower in followers:
        assert follower.sorted_rows() == sorted_rows_of(url, follower.table), follower.table
