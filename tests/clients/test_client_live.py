"""Live tables in Python: windows, changes and mirrors through every turn of a connection, consumed in every way."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import turnout
from scripted_server import WAIT_SECONDS, Scripted, listening, refused
from turnout.errors import TurnoutError
from turnout.testing import wait_until
from turnout_client import Changes, Client, State, Window, connect
from turnout_client.live import LONGEST_PAUSE_SECONDS, pause_seconds

UNKNOWN = TurnoutError(code="unknown_table", message="no table 'users_ui'", hint="tables: other")


before: set[threading.Thread] = set()
"""The threads that lived when a test began: those of other tests may end at any time."""


@pytest.fixture(autouse=True)
def _threads() -> None:
    before.clear()
    before.update(threading.enumerate())


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
def client(server: Scripted) -> Iterator[Client]:
    with listening(server) as url:
        with connect(url, "s3cret") as client:
            yield client
        assert not _ours()
    # The threads of the server's own sockets end on their own time.
    wait_until(lambda: set(threading.enumerate()) <= before, what="all threads that were started to end")


def _ours() -> list[str]:
    """The client's threads that this test started."""
    return [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("turnout-")]


def ages(event: Window) -> list[int]:
    return [row["age"] for row in event.rows]


# -- windows


def test_window_comes_and_comes_again_when_it_changes(server: Scripted, client: Client) -> None:
    with client.table("users_ui").window(columns=["userId", "age"], where="age > 1", sort="-age", limit=5) as windows:
        asked = server.asked()
        assert asked.model_dump(exclude={"id", "resume"}) == {
            "type": "window", "table": "users_ui", "columns": ["userId", "age"], "where": "age > 1",
            "sort": "-age", "offset": 0, "limit": 5,
        }  # fmt: skip
        server.rows(asked, {"r1": ["u1", 36]})
        first = windows.get(WAIT_SECONDS)
        assert (first.rows, first.ids, first.swapped) == (({"userId": "u1", "age": 36},), ("r1",), False)
        assert (windows.state, windows.latest) == (State.LIVE, first)
        server.rows(asked, {"r1": ["u1", 37]}, version=2)
        assert ages(windows.get(WAIT_SECONDS)) == [37]
    assert server.headers["authorization"] == "Bearer s3cret"


def test_window_is_conflated_to_the_newest(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    asked = server.asked()
    for version in range(1, 6):
        server.rows(asked, {"r1": ["u1", version]}, version=version)
    wait_until(lambda: windows.latest is not None and windows.latest.version == 5)
    assert windows.get(WAIT_SECONDS).version == 5
    with pytest.raises(TimeoutError, match="users_ui: nothing arrived"):
        windows.get(0.01)


def test_window_tells_a_swap_even_when_it_was_conflated(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    asked = server.asked()
    server.rows(asked, {"r1": ["u1", 1]})
    assert not windows.get(WAIT_SECONDS).swapped
    server.rows(asked, {"r9": ["u9", 2]}, generation=2)
    server.rows(asked, {"r9": ["u9", 3]}, generation=2, version=2)
    wait_until(lambda: windows.latest is not None and windows.latest.version == 2)
    event = windows.get(WAIT_SECONDS)
    assert (event.generation, event.swapped, ages(event)) == (2, True, [3])


def test_window_moves_by_the_same_subscription(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window(sort="age", limit=2)
    first = server.asked()
    server.rows(first, {"r1": ["u1", 1]})
    windows.get(WAIT_SECONDS)
    windows.move(offset=10, limit=5)
    moved: Any = server.asked()
    assert (moved.sort, moved.offset, moved.limit, moved.resume) == ("age", 10, 5, None)
    # What was under way for the old place is not shown in the new one.
    server.rows(first, {"r1": ["u1", 2]}, version=2)
    server.rows(moved, {"r1": ["u1", 3]}, version=2)
    assert ages(windows.get(WAIT_SECONDS)) == [3]


def test_window_moves_to_all_rows_by_an_empty_filter(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window(where=["age > 1"], columns=["age"])
    server.asked()
    windows.move(where=[], columns=())
    moved: Any = server.asked()
    assert (moved.where, moved.columns, moved.limit) == ("", None, 100)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"limit": 10_001}, "limit"),
        ({"offset": -1}, "offset"),
        ({"where": [{"column": "age", "op": "=", "value": object()}]}, "serializable"),
        ({"where": ["age = " + "1" * 70_000]}, "where"),
        ({"where": [f"name = {'x' * 9_000}"] * 9}, "too many"),
    ],
)
def test_window_that_no_server_takes_is_refused_at_once(client: Client, options: Any, fault: str) -> None:
    with pytest.raises(TurnoutError, match=fault) as raised:
        client.table("users_ui").window(**options)
    assert raised.value.code == "bad_parameter"
    assert not _ours()


# -- changes


def test_changes_begin_with_all_rows_and_go_on(server: Scripted, client: Client) -> None:
    with client.table("users_ui").changes() as changes:
        asked = server.asked()
        server.snapshot(asked, {"r1": ["u1", 1]}, last=False)
        server.snapshot(asked, {"r2": ["u2", 2]})
        first = changes.get(WAIT_SECONDS)
        assert (first.snapshot, first.swapped, list(first.inserted)) == (True, False, ["r1", "r2"])
        server.changes(asked, 1, insert={"r3": ["u3", 3]}, update={"r1": ["u1", 9]}, delete=["r2"])
        then = changes.get(WAIT_SECONDS)
        assert not then.snapshot
        assert (then.inserted, then.updated, then.deleted) == (
            {"r3": {"userId": "u3", "age": 3}}, {"r1": {"userId": "u1", "age": 9}}, frozenset({"r2"})
        )  # fmt: skip
        mirror = changes.mirror
        assert mirror.rows == {"r1": {"userId": "u1", "age": 9}, "r3": {"userId": "u3", "age": 3}}
        assert (mirror.generation, mirror.version, len(mirror), "r2" in mirror) == (1, 2, 2, False)
        assert mirror.to_arrow().to_pylist() == [{"userId": "u1", "age": 9}, {"userId": "u3", "age": 3}]


def test_changes_show_parts_of_a_snapshot_only_when_all_have_come(server: Scripted, client: Client) -> None:
    changes = client.table("users_ui").changes()
    asked = server.asked()
    server.snapshot(asked, {"r1": ["u1", 1]})
    changes.get(WAIT_SECONDS)
    server.snapshot(asked, {"n1": ["x", 1]}, generation=2, last=False)
    other = client.table("users_ui").changes()
    server.snapshot(server.asked(), {})  # on the same socket, so the part before it has been read
    other.get(WAIT_SECONDS)
    assert list(changes.mirror.rows) == ["r1"]
    server.snapshot(asked, {"n2": ["y", 2]}, generation=2)
    event = changes.get(WAIT_SECONDS)
    assert (event.swapped, list(event.inserted), list(changes.mirror.rows)) == (True, ["n1", "n2"], ["n1", "n2"])


def test_changes_with_a_gap_are_asked_for_again(server: Scripted, client: Client) -> None:
    changes = client.table("users_ui").changes()
    asked = server.asked()
    server.snapshot(asked, {"r1": ["u1", 1]})
    changes.get(WAIT_SECONDS)
    server.changes(asked, 7, delete=["r1"])
    again = server.asked()
    assert again.resume is None and again.id != asked.id
    assert list(changes.mirror.rows) == ["r1"]
    server.snapshot(again, {"r8": ["u8", 8]}, version=8)
    event = changes.get(WAIT_SECONDS)
    assert (event.snapshot, event.swapped, list(event.inserted)) == (True, False, ["r8"])


def test_changes_that_came_before_are_passed_over(server: Scripted, client: Client) -> None:
    changes = client.table("users_ui").changes()
    asked = server.asked()
    server.snapshot(asked, {"r1": ["u1", 1]}, version=5)
    changes.get(WAIT_SECONDS)
    server.changes(asked, 3, delete=["r1"])
    server.changes(asked, 5, insert={"r2": ["u2", 2]})
    assert list(changes.get(WAIT_SECONDS).inserted) == ["r2"]
    assert list(changes.mirror.rows) == ["r1", "r2"]


def test_changes_of_chosen_columns_are_asked_for(server: Scripted, client: Client) -> None:
    client.table("users_ui").changes(columns=("userId", "age"))
    assert server.asked().columns == ["userId", "age"]


# -- the connection


def test_connection_is_one_for_all_subscriptions_and_ends_with_the_last(server: Scripted, client: Client) -> None:
    first, second = client.table("users_ui").window(), client.table("users_ui").changes()
    asked = [server.asked(), server.asked()]
    assert {one.type for one in asked} == {"window", "changes"}
    assert (server.connections, _ours()) == (1, ["turnout-live"])
    first.close()
    assert server.hear().type == "unsubscribe"
    second.close()
    assert not _ours()
    client.table("users_ui").window()
    server.asked()
    assert server.connections == 2


def test_reconnect_resumes_every_subscription_where_it_was(server: Scripted, client: Client) -> None:
    windows, changes = client.table("users_ui").window(), client.table("users_ui").changes()
    _answer(server, {"r1": ["u1", 1]})
    _answer(server, {"r1": ["u1", 1]})
    windows.get(WAIT_SECONDS), changes.get(WAIT_SECONDS)
    server.hang_up()
    for _ in range(2):
        asked = server.asked()
        assert asked.resume and asked.resume.model_dump() == {"generation": 1, "version": 4}
        if asked.type == "window":
            server.current(asked, version=4)
        else:
            server.changes(asked, 4, insert={"r2": ["u2", 2]})
    assert list(changes.get(WAIT_SECONDS).inserted) == ["r2"]
    windows.wait(WAIT_SECONDS)
    wait_until(lambda: windows.state is State.LIVE)
    with pytest.raises(TimeoutError):  # nothing changed, so nothing is told
        windows.get(0.01)


def _answer(server: Scripted, rows: dict[str, list[Any]]) -> None:
    asked = server.asked()
    (server.rows if asked.type == "window" else server.snapshot)(asked, rows, version=4)


def test_reconnect_to_another_store_resumes_nothing(server: Scripted, client: Client) -> None:
    windows, changes = client.table("users_ui").window(), client.table("users_ui").changes()
    _answer(server, {"r1": ["u1", 1]})
    _answer(server, {"r1": ["u1", 1]})
    windows.wait(WAIT_SECONDS), changes.wait(WAIT_SECONDS)
    server.store = "store-2"
    server.hang_up()
    assert [server.asked().resume, server.asked().resume] == [None, None]
    # Nothing came from the new store yet, so its positions are still unknown here.
    server.hang_up()
    assert [server.asked().resume, server.asked().resume] == [None, None]


def test_connection_goes_on_when_the_server_comes_back(server: Scripted) -> None:
    with listening(server) as url:
        client = connect(url)
        windows = client.table("users_ui").window()
        server.rows(server.asked(), {"r1": ["u1", 1]})
        windows.get(WAIT_SECONDS)
    with client:
        wait_until(lambda: "nothing listens there" in windows.reason)
        assert (windows.state, windows.latest and ages(windows.latest)) == (State.AWAY, [1])
        with listening(server, port=int(url.rpartition(":")[2])):
            server.rows(server.asked(), {"r1": ["u1", 2]}, version=2)
            assert ages(windows.get(WAIT_SECONDS)) == [2]
            assert (windows.state, windows.reason) == (State.LIVE, "")


def test_table_that_a_restarted_server_does_not_have_yet_is_waited_for(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    server.rows(server.asked(), {"r1": ["u1", 1]})
    windows.get(WAIT_SECONDS)
    server.hang_up()
    server.error(server.asked(), UNKNOWN)
    server.rows(server.asked(), {"r1": ["u1", 2]}, version=2)
    assert ages(windows.get(WAIT_SECONDS)) == [2]


def test_generation_that_a_restarted_server_does_not_have_is_over(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui@7").window()
    server.rows(server.asked(), {})
    windows.get(WAIT_SECONDS)
    server.hang_up()
    server.error(server.asked(), UNKNOWN)
    with pytest.raises(TurnoutError, match="no table"):
        windows.get(WAIT_SECONDS)


def test_store_that_fails_for_a_while_is_waited_for(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    server.error(server.asked(), TurnoutError(code="store_unavailable", message="the disk is full"))
    server.rows(server.asked(), {"r1": ["u1", 1]})
    assert ages(windows.get(WAIT_SECONDS)) == [1]


def test_pauses_grow_to_a_limit_and_are_spread() -> None:
    assert all(0.125 <= pause_seconds(0) <= 0.25 for _ in range(50))
    assert LONGEST_PAUSE_SECONDS / 2 <= pause_seconds(10_000) <= LONGEST_PAUSE_SECONDS
    assert len({pause_seconds(3) for _ in range(20)}) > 1


# -- refusals


def test_unknown_table_is_the_servers_error_everywhere(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    server.error(server.asked(), UNKNOWN)
    for use in (lambda: windows.get(WAIT_SECONDS), lambda: windows.wait(WAIT_SECONDS), lambda: list(windows)):
        with pytest.raises(TurnoutError) as raised:
            use()
        assert (raised.value.code, raised.value.status, raised.value.hint) == ("unknown_table", 404, "tables: other")
    assert windows.state is State.REFUSED
    assert windows.error is not None
    wait_until(lambda: not _ours(), what="the thread to end")


def test_refusal_of_one_subscription_leaves_the_others(server: Scripted, client: Client) -> None:
    one, other = client.table("users_ui").window(), client.table("other").window()
    asked = {asked.table: asked for asked in (server.asked(), server.asked())}
    server.error(asked["users_ui"], UNKNOWN)
    server.rows(asked["other"], {"r1": ["u1", 1]})
    assert ages(other.get(WAIT_SECONDS)) == [1]
    assert one.state is State.REFUSED


@pytest.mark.parametrize(("status", "code"), [(401, "token_missing"), (403, "foreign_origin")])
def test_refused_token_ends_every_subscription(server: Scripted, client: Client, status: int, code: str) -> None:
    server.refusal = refused(status, code, "the token is not known")
    one, other = client.table("users_ui").window(), client.table("users_ui").changes()
    for subscription in (one, other):
        with pytest.raises(TurnoutError, match="the token is not known") as raised:
            subscription.wait(WAIT_SECONDS)
        assert (raised.value.code, raised.value.status) == (code, status)
    assert server.connections == 0


def test_full_server_is_tried_again(server: Scripted, client: Client) -> None:
    server.refusal = refused(503, "too_many_viewers", "1,000 look already")
    windows = client.table("users_ui").window()
    wait_until(lambda: windows.reason == "1,000 look already")
    assert windows.state is State.AWAY
    server.refusal = None
    server.rows(server.asked(), {"r1": ["u1", 1]})
    assert ages(windows.get(WAIT_SECONDS)) == [1]


@pytest.mark.parametrize("first", [{"type": "welcome"}, {"no": "type"}])
def test_server_that_is_no_turnout_is_named_as_such(server: Scripted, client: Client, first: dict[str, str]) -> None:
    server.first = first
    with pytest.raises(TurnoutError, match="does not answer as Turnout does") as raised:
        client.table("users_ui").window().wait(WAIT_SECONDS)
    assert raised.value.code == "bad_answer"


def test_path_without_a_live_socket_is_named_as_such(server: Scripted, client: Client) -> None:
    server.refusal = (404, b"<html>not here</html>")
    with pytest.raises(TurnoutError, match="/api/live answers 404"):
        client.table("users_ui").window().wait(WAIT_SECONDS)


def test_redirect_is_not_followed(server: Scripted, client: Client) -> None:
    """The other server would get the token."""
    other = Scripted()
    with listening(other) as url:
        server.refusal, server.location = (302, b""), url.replace("http", "ws")
        with pytest.raises(TurnoutError, match="/api/live answers 302"):
            client.table("users_ui").window().wait(WAIT_SECONDS)
        assert not other.headers


def test_message_that_is_not_valid_ends_the_subscription(server: Scripted, client: Client) -> None:
    changes = client.table("users_ui").changes()
    server.say({"type": "snapshot", "id": server.asked().id}, checked=False)
    with pytest.raises(TurnoutError, match="a snapshot message is not valid"):
        changes.wait(WAIT_SECONDS)


def test_messages_of_a_newer_server_are_passed_over(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    asked = server.asked()
    server.say({"type": "weather", "id": asked.id}, checked=False)
    server.rows(asked, {"r1": ["u1", 1]})
    assert ages(windows.get(WAIT_SECONDS)) == [1]


# -- callbacks


class Taken:
    """Collects what callbacks get, and on which thread."""

    def __init__(self, act: Callable[[Any], object] = lambda _: None) -> None:
        self.events: list[Any] = []
        self.states: list[State] = []
        self.threads: set[str] = set()
        self._act = act

    def event(self, event: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append(event)
        self._act(event)

    def state(self, state: State, _: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.states.append(state)


def test_callback_gets_every_change_on_a_thread_of_its_own(server: Scripted, client: Client) -> None:
    taken = Taken()
    with client.table("users_ui").subscribe(taken.event, on_state=taken.state):
        asked = server.asked()
        server.snapshot(asked, {"r1": ["u1", 1]})
        wait_until(lambda: len(taken.events) == 1)
        server.changes(asked, 1, insert={"r2": ["u2", 2]})
        wait_until(lambda: len(taken.events) == 2)
        assert isinstance(taken.events[1], Changes)
    assert taken.threads == {"turnout-callback-users_ui"}
    assert taken.states == [State.LIVE, State.CLOSED]


def test_callback_of_a_window_gets_windows(server: Scripted, client: Client) -> None:
    taken = Taken()
    client.table("users_ui").subscribe(taken.event, window={"sort": "-age", "limit": 3})
    asked: Any = server.asked()
    assert (asked.type, asked.sort, asked.limit) == ("window", "-age", 3)
    server.rows(asked, {"r1": ["u1", 1]})
    wait_until(lambda: taken.events)
    assert isinstance(taken.events[0], Window)


def test_callback_hears_of_every_turn_of_the_connection(server: Scripted, client: Client) -> None:
    taken = Taken()
    client.table("users_ui").subscribe(taken.event, on_state=taken.state)
    server.snapshot(server.asked(), {})
    wait_until(lambda: taken.states == [State.LIVE])
    server.hang_up()
    wait_until(lambda: State.AWAY in taken.states)
    server.current(server.asked())
    wait_until(lambda: taken.states[-1] is State.LIVE)
    server.refusal = refused(401, "token_unknown", "the token is not known any more")
    server.hang_up()
    wait_until(lambda: taken.states[-1] is State.REFUSED)
    wait_until(lambda: not _ours(), what="the threads to end")


def test_callback_that_fails_is_told_once_and_goes_on(
    server: Scripted, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    taken = Taken(lambda event: 1 / 0)
    client.table("users_ui").subscribe(taken.event)
    asked = server.asked()
    server.snapshot(asked, {})
    wait_until(lambda: len(taken.events) == 1)
    server.changes(asked, 1)
    wait_until(lambda: len(taken.events) == 2)
    told = [record for record in caplog.records if "failed" in record.message]
    assert len(told) == 1 and told[0].exc_info and "division by zero" in told[0].message


def test_callback_may_close_its_own_subscription(server: Scripted, client: Client) -> None:
    taken = Taken(lambda event: subscription.close())
    subscription = client.table("users_ui").subscribe(taken.event)
    server.snapshot(server.asked(), {})
    wait_until(lambda: subscription.state is State.CLOSED and not _ours())


def test_slow_callback_holds_back_nobody_and_loses_nothing(server: Scripted, client: Client) -> None:
    go = threading.Event()
    rows: dict[str, Any] = {}

    def slow(event: Changes) -> None:
        assert go.wait(WAIT_SECONDS)
        rows.update(event.inserted)

    changes = client.table("users_ui").subscribe(slow)
    asked = server.asked()
    server.snapshot(asked, {})
    other = client.table("users_ui").window()
    server.rows(server.asked(), {"r1": ["u1", 1]})
    assert ages(other.get(WAIT_SECONDS)) == [1]
    for version in range(1, 1_201):  # more than are kept one by one
        server.changes(asked, version, insert={f"r{version}": [f"u{version}", version]})
    wait_until(lambda: changes.mirror.version == 1_201)
    go.set()
    wait_until(lambda: len(rows) == 1_200)
    assert rows == changes.mirror.rows


def test_callback_thread_ends_after_a_refusal_that_finds_events_waiting(server: Scripted, client: Client) -> None:
    go = threading.Event()
    taken: list[int] = []

    def slow(event: Changes) -> None:
        assert go.wait(WAIT_SECONDS)
        taken.append(event.version)

    changes = client.table("users_ui@1").subscribe(slow)
    asked = server.asked()
    server.snapshot(asked, {})
    server.changes(asked, 1, insert={"r1": ["u1", 1]})
    server.error(asked, UNKNOWN)
    wait_until(lambda: changes.state is State.REFUSED)
    go.set()
    wait_until(lambda: not _ours(), what="its threads to end by themselves")
    assert taken in ([1, 2], [2])


def test_refusal_that_nobody_listens_for_is_logged(
    server: Scripted, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        client.table("users_ui").subscribe(lambda _: None)
        server.error(server.asked(), UNKNOWN)
        wait_until(lambda: "no table 'users_ui'; tables: other" in caplog.text)


# -- iterators


def test_iterator_ends_when_the_subscription_is_closed(server: Scripted, client: Client) -> None:
    windows = client.table("users_ui").window()
    server.rows(server.asked(), {"r1": ["u1", 1]})
    seen = []
    for window in windows:
        seen.append(ages(window))
        windows.close()
    assert seen == [[1]]
    with pytest.raises(TurnoutError, match="is closed"):
        windows.get()


def test_iterator_with_a_timeout_says_what_it_waited_for(server: Scripted, client: Client) -> None:
    with pytest.raises(TimeoutError, match=r"users_ui: nothing arrived within 0.05 s \(connecting\)"):
        next(client.table("users_ui").window().events(timeout=0.05))


def test_async_iterator_gets_the_same_events(server: Scripted, client: Client) -> None:
    async def main() -> list[list[int]]:
        seen = []
        async with client.table("users_ui").window() as windows:
            asked = await asyncio.to_thread(server.asked)
            server.rows(asked, {"r1": ["u1", 1]})
            async for window in windows:
                seen.append(ages(window))
                if len(seen) == 3:
                    break
                server.rows(asked, {"r1": ["u1", len(seen) + 1]}, version=len(seen) + 1)
        return seen

    assert asyncio.run(main()) == [[1], [2], [3]]
    assert not _ours()


def test_async_iterators_run_side_by_side_and_hear_of_refusals(server: Scripted, client: Client) -> None:
    async def one(table: str) -> int:
        async for window in client.table(table).window():
            return window.version
        raise AssertionError

    async def answer() -> None:
        for _ in range(2):
            asked = await asyncio.to_thread(server.asked)
            if asked.table == "nothing":
                server.error(asked, UNKNOWN)
            else:
                server.rows(asked, {}, version=8)

    async def main() -> tuple[Any, ...]:
        return await asyncio.gather(one("users_ui"), one("nothing"), answer(), return_exceptions=True)

    version, refusal, _ = asyncio.run(main())
    assert version == 8
    assert isinstance(refusal, TurnoutError) and refusal.code == "unknown_table"


def test_async_wait_that_is_cancelled_loses_nothing(server: Scripted, client: Client) -> None:
    async def main() -> tuple[int, int]:
        changes = client.table("users_ui").changes()
        asked = await asyncio.to_thread(server.asked)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(changes.aget(), 0.01)
        waiting = len(changes._wakers)
        server.snapshot(asked, {"r1": ["u1", 1]})
        return waiting, len((await changes.aget()).inserted)

    assert asyncio.run(main()) == (0, 1)


def test_notebook_with_a_running_event_loop_can_use_everything(server: Scripted, client: Client) -> None:
    """As in a notebook: plain calls, on a thread whose event loop runs already."""

    async def cells() -> None:
        taken: list[Window] = []
        notebook = turnout.connect(client.url)
        table = notebook.table("users_ui")
        live = table.subscribe(taken.append, window={"limit": 1})
        server.rows(server.asked(), {"r1": ["u1", 1]})
        wait_until(lambda: taken)
        changes = table.changes()
        server.snapshot(server.asked(), {"r1": ["u1", 1]})
        assert changes.wait(WAIT_SECONDS).mirror.to_arrow().num_rows == 1
        assert changes.get(WAIT_SECONDS).snapshot
        live.close()
        notebook.close()
        await asyncio.sleep(0)

    asyncio.run(cells())
    assert not _ours()


def test_closing_many_times_and_from_many_threads_leaves_nothing(server: Scripted, client: Client) -> None:
    subscriptions = [client.table("users_ui").subscribe(lambda _: None) for _ in range(10)]
    closers = [threading.Thread(target=one.close) for one in subscriptions for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(WAIT_SECONDS)
    assert not _ours()
    client.close()
    client.close()


def test_close_while_the_server_is_away_is_prompt() -> None:
    with connect("http://127.0.0.1:9") as client:
        windows = client.table("users_ui").window()
        wait_until(lambda: windows.state is State.AWAY)
        assert "nothing listens there" in windows.reason
    assert not _ours()
