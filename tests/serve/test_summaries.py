"""Live summaries and live SQL: sent when they change, computed once for all, through swaps and reconnects."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from collections import defaultdict
from statistics import fmean
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filled_store import GOLD_1, USER_1, USER_2, Filling, filled
from http_server import HTTP, SECONDS, application, patient, serving
from lengths import LIVE_EXAMPLES
from live_socket import Socket, place_of
from turnout.config import SqlAccess
from turnout.config.server import Role
from turnout.plan.joins import Join
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import create_app
from turnout.serve.live.summary_history import MAX_POINTS, LastHour
from turnout.store.query.sql import read_sql
from turnout.store.query.sql_process import SqlProcess
from turnout.store.query.summary_read import SummaryQueries, read_summary
from turnout.testing import patience, wait_until
from turnout_client.messages import Problem, SummaryGroups, WindowRows

OPS, WALL = "operator-token-0123456789", "viewer-token-0123456789"
FOREVER = "select sum(i % 7) from range(1000000000000) t(i)"
SILVER_2 = {"userId": "u2", "accountType": "silver", "balance": 2.0}


def groups(socket: Socket) -> SummaryGroups:
    message = socket.receive()
    assert isinstance(message, SummaryGroups), message
    return message


def rows(socket: Socket) -> WindowRows:
    message = socket.receive()
    assert isinstance(message, WindowRows), message
    return message


def problem(socket: Socket) -> str:
    message = socket.receive()
    assert isinstance(message, Problem), message
    assert message.id is not None
    assert message.error.hint
    return message.error.code


def test_summary_is_sent_at_once_and_again_when_it_changes(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="final_ui", by="accountType", values="count,sum(balance)")
        first = groups(socket)
        assert (first.id, first.table, first.by, first.total) == ("s", "final_ui", ["accountType"], 2)
        assert [column.name for column in first.columns] == ["accountType", "count", "sum(balance)"]
        assert first.groups == [["gold", 1, 10.5], [None, 1, None]]
        assert first.history is None
        filling.batch(accounts=[SILVER_2])
        assert groups(socket).groups == [["gold", 1, 10.5], ["silver", 1, 2.0]]


def test_summary_is_not_sent_when_a_change_leaves_it_as_it_was(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="final_ui", where="age<50")
        groups(socket)
        filling.batch(users=[{"userId": "u9", "name": "Old", "email": None, "age": 80}])
        assert socket.silent()


def test_summary_follows_a_swap_by_one_message(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="final_ui", by="accountType")
        before = groups(socket)
        filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[GOLD_1])
        after = groups(socket)
        assert (before.generation, after.generation) == (1, 2)
        assert after.groups == [["gold", 1]]


def test_summaries_that_are_the_same_are_computed_once(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[object] = []
    show, advance = SummaryQueries.show, SummaryQueries.advance

    def shown(*arguments: Any) -> Any:
        computed.append(arguments)
        return show(*arguments)

    def advanced(queries: SummaryQueries, kept: list[Any], *more: Any) -> Any:
        computed.extend(kept)
        return advance(queries, kept, *more)

    monkeypatch.setattr(SummaryQueries, "show", shown)
    monkeypatch.setattr(SummaryQueries, "advance", advanced)
    sockets = [Socket(url) for _ in range(10)]
    for socket in sockets:
        socket.send(type="summary", id="s", table="final_ui", by="name")
        groups(socket)
    assert len(computed) == 1
    filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 70}])
    answers = [groups(socket) for socket in sockets]
    assert len({answer.model_dump_json() for answer in answers}) == 1
    assert len(computed) == 2
    for socket in sockets:
        socket.raw.close()


def test_summary_that_takes_long_is_not_computed_all_the_time(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[float] = []

    def slow(*arguments: Any) -> Any:
        began = time.monotonic()
        while time.monotonic() < began + 0.3:
            pass
        computed.append(began)
        return read_summary(*arguments)

    monkeypatch.setattr("turnout.serve.live.summaries.read_summary", slow)
    with Socket(url) as socket:
        # A percentile is read anew each time.
        socket.send(type="summary", id="s", table="users_ui", values="count,p50(age)")
        total = groups(socket).groups[0][0]
        for number in range(3):
            filling.batch(users=[{**USER_1, "userId": f"n{number}"}])
        while total < 5:
            total = groups(socket).groups[0][0]
    assert all(later - earlier >= 5 * 0.3 for earlier, later in itertools.pairwise(computed))


def test_summary_with_history_has_points_and_swaps(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="final_ui", by="accountType", history=600)
        first = groups(socket).history
        assert first is not None
        assert (first.seconds, first.whole, [point.groups for point in first.points], first.swaps) == (
            600,
            True,
            [[["gold", 1], [None, 1]]],
            [],
        )
        filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[GOLD_1])
        second = groups(socket).history
        assert second is not None
        assert not second.whole
        assert second.points[-1].groups == [["gold", 1]]
        assert second.points[0].time >= first.points[0].time
        assert [swap.generation for swap in second.swaps] == [2]
    # It is kept for a client that comes back.
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="final_ui", by="accountType", history=600)
        again = groups(socket).history
        assert again is not None
        assert again.whole
        assert [swap.generation for swap in again.swaps] == [2]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"table": "nothing"}, "unknown_table"),
        ({"table": "users_ui", "by": "nothing"}, "bad_by"),
        ({"table": "users_ui", "by": "age:0"}, "bad_by"),
        ({"table": "users_ui", "values": "sum(name)"}, "bad_values"),
        ({"table": "users_ui", "where": "nothing=1"}, "bad_where"),
        ({"table": "users_ui", "sort": "nothing"}, "bad_sort"),
    ],
)
def test_summary_that_is_wrong_is_over_with_an_error(url: str, asked: dict[str, str], wanted: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", **asked)
        assert problem(socket) == wanted
        socket.send(type="summary", id="s", table="users_ui")
        assert groups(socket).groups == [[2]]


def test_summary_of_a_generation_ends_with_it(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="users_ui@1")
        groups(socket)
        filling.swap(users=[USER_1])
        filling.drop(1)
        assert problem(socket) == "unknown_table"


def test_summary_of_too_many_groups_is_over_with_an_error(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="users_ui", by="name")
        groups(socket)
        monkeypatch.setattr("turnout.store.query.summary_read.MAX_GROUPS", 2)
        filling.batch(users=[{**USER_1, "name": "Third"}])
        assert problem(socket) == "too_many_groups"


def test_sql_is_answered_once(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        assert socket.hello.sql
        socket.send(type="sql", id="q", sql="select name, age from users_ui order by age", limit=1)
        answer = rows(socket)
        assert (answer.id, answer.table, answer.generation) == ("q", "sql", 1)
        assert (answer.rows, answer.ids, answer.total, answer.complete) == ([["Ada", 36]], ["0"], 1, False)
        filling.batch(users=[{**USER_1, "age": 1}])
        assert socket.silent()
        socket.send(type="sql", id="q", sql="select name, age from users_ui order by age", limit=1)
        assert rows(socket).rows == [["Ada", 1]]


def test_live_sql_is_answered_again_when_a_table_that_it_names_changed(filling: Filling, url: str) -> None:
    text = "select count(*) from users_ui where userId in (select userId from accounts_ui)"
    with Socket(url) as socket:
        socket.send(type="sql", id="q", sql=text, live=True)
        assert rows(socket).rows == [[1]]
        filling.batch(accounts=[SILVER_2])
        assert rows(socket).rows == [[2]]
        filling.swap(users=[USER_1], accounts=[GOLD_1])
        after = rows(socket)
        assert (after.rows, after.generation) == ([[1]], 2)


def test_live_sql_is_not_run_for_tables_that_it_does_not_name(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def counted(store: Any, text: str, *more: Any) -> Any:
        ran.append(text)
        return read_sql(store, text, *more)

    monkeypatch.setattr("turnout.serve.live.computed.read_sql", counted)
    with Socket(url) as socket:
        socket.send(type="sql", id="q", sql="select count(*) from control_raw", live=True)
        assert rows(socket).rows == [[0]]
        filling.batch(users=[{**USER_1, "userId": "u7"}])
        assert socket.silent()
    assert len(ran) == 1


@pytest.mark.parametrize(
    "text",
    ["drop view users_ui", "select 1; select 2", "from 'x.csv'", "from turnout.published", "pragma version", "selec"],
)
def test_sql_that_is_refused_is_over_with_an_error(url: str, text: str) -> None:
    with Socket(url) as socket:
        for live in (False, True):
            socket.send(type="sql", id="q", sql=text, live=live)
            assert problem(socket) == "sql_refused"


def test_sql_that_runs_for_ever_is_ended_and_nobody_else_notices(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = SqlProcess.ask

    def stopped(worker: SqlProcess, asked: Any, tables: Any) -> Any:
        """Its process is stopped: it runs for ever, and takes no core, as the one of `test_ask_api.py` does."""
        if asked["sql"] == FOREVER:
            worker._process.send_signal(signal.SIGSTOP)
        return ask(worker, asked, tables)

    monkeypatch.setattr(SqlProcess, "ask", stopped)
    app = create_app(patient(filling.database, query_timeout_seconds=patience(3)))  # others are read in less
    with serving(app) as url, Socket(url) as asking, Socket(url) as other:
        asking.send(type="sql", id="q", sql=FOREVER, live=True)
        other.send(type="summary", id="s", table="users_ui")
        assert groups(other).groups == [[2]]
        filling.batch(users=[{**USER_1, "userId": "u5"}])
        assert groups(other).groups == [[3]]
        assert problem(asking) == "query_timeout"


def test_sql_is_taken_from_those_whom_access_names(filling: Filling) -> None:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPS), (Identity("wall", Role.VIEWER), WALL)])
    allowed = {SqlAccess.OPERATOR: {OPS}, SqlAccess.VIEWER: {OPS, WALL}, SqlAccess.OFF: set[str]()}
    for who, may in allowed.items():
        app = create_app(patient(filling.database), Access(tokens, sql=who))
        with serving(app) as url:
            for token in (OPS, WALL):
                with Socket(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
                    assert socket.hello.sql == (token in may)
                    socket.send(type="sql", id="q", sql="select 1")
                    if token in may:
                        assert rows(socket).rows == [[1]]
                    else:
                        assert problem(socket) == "forbidden"
                    socket.send(type="summary", id="s", table="users_ui")
                    assert groups(socket).groups == [[2]]


def test_sql_is_taken_from_this_machine_only_without_tokens(filling: Filling) -> None:
    made = application(filling.database)

    async def from_elsewhere(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "client": ("10.0.0.7", 50_000)}, receive, send)

    with serving(from_elsewhere) as url, Socket(url) as socket:
        assert not socket.hello.sql
        socket.send(type="sql", id="q", sql="select 1")
        assert problem(socket) == "forbidden"


# -- a live summary is the same GROUP BY over the rows

ASKED: list[dict[str, Any]] = [
    {"by": "accountType", "values": "count,sum(balance),min(age)", "sort": "accountType"},
    {"by": "age:10,accountType", "values": "count,count(name),max(balance)"},
    {"where": "age>=30", "values": "count,sum(age),count_distinct(userId)"},
    {"where": "balance>-5", "by": "accountType,age:20", "values": "avg(balance),max(balance),min(balance),avg(age)"},
    {"where": "accountType is not null", "values": "max(age),min(balance),sum(balance),count"},
]


def expected(url: str, asked: dict[str, Any]) -> list[list[Any]]:
    """The groups, computed here from the rows that HTTP answers."""
    where = {"where": asked["where"]} if "where" in asked else {}
    answer = HTTP.get(f"{url}/api/tables/final_ui/rows", params={"limit": 100_000, **where}).json()["rows"]
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    by = asked["by"].split(",") if "by" in asked else []
    for row in answer:
        found[tuple(_bin(row, column) for column in by)].append(row)
    if not by and not found:
        found[()] = []
    values = asked["values"].split(",")
    made = [[*key, *(_value(value, of) for value in values)] for key, of in found.items()]
    return sorted(made, key=lambda group: [(cell is None, "" if cell is None else cell) for cell in group[: len(by)]])


def _bin(row: dict[str, Any], column: str) -> Any:
    name, _, width = column.partition(":")
    value = row[name]
    return value if not width or value is None else value // int(width) * int(width)


def _value(value: str, of: list[dict[str, Any]]) -> Any:
    if value == "count":
        return len(of)
    function, _, column = value.rstrip(")").partition("(")
    present = [row[column] for row in of if row[column] is not None]
    functions: dict[str, Any] = {"sum": sum, "min": min, "max": max, "avg": fmean}
    if function == "count":
        return len(present)
    if function == "count_distinct":
        return len(set(present))
    return functions[function](present) if present else None


KEYS = st.sampled_from(["a", "b", "c", "d"])
USERS = st.builds(
    lambda key, age: {"userId": key, "name": key.upper(), "email": None, "age": age},
    KEYS,
    st.none() | st.integers(0, 60),
)
ACCOUNTS = st.builds(
    lambda key, kind, halves: {"userId": key, "accountType": kind, "balance": halves / 2},
    KEYS,
    st.sampled_from(["gold", "silver", None]),
    st.integers(-20, 20),
)
RECORDS = st.fixed_dictionaries({"users": st.lists(USERS, max_size=5), "accounts": st.lists(ACCOUNTS, max_size=5)})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), RECORDS),
        st.tuples(st.just("swap"), st.tuples(st.sampled_from([Join.LEFT, Join.INNER]), RECORDS)),
        st.tuples(st.just("reconnect"), st.none()),
    ),
    min_size=1,
    max_size=6,
)


@given(steps=STEPS)
@settings(max_examples=LIVE_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_live_summary_is_the_same_group_by_over_the_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    with filled(tmp_path_factory.mktemp("store")) as filling, serving(application(filling.database)) as url:
        watching = Watching(url)
        for kind, given_records in steps:
            if kind == "batch":
                filling.batch(**given_records)
            elif kind == "swap":
                filling.swap(given_records[0], **given_records[1])
            else:
                watching.reconnect()
            watching.compare()
        watching.socket.raw.close()


class Watching:
    """A client with all summaries, and what each was last."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.socket = self._subscribed()

    def _subscribed(self) -> Socket:
        self.newest: dict[str, SummaryGroups] = {}
        socket = Socket(self.url)
        for number, asked in enumerate(ASKED):
            socket.send(type="summary", id=str(number), table="final_ui", **asked)
        return socket

    def reconnect(self) -> None:
        self.socket.raw.close()
        self.socket = self._subscribed()

    def compare(self) -> None:
        """All are what the rows say, within the time that anything may take."""
        wanted = {str(number): expected(self.url, asked) for number, asked in enumerate(ASKED)}
        generation, _ = place_of(self.url, "final_ui")
        deadline = time.monotonic() + SECONDS
        while not all(self._is(number, generation, found) for number, found in wanted.items()):
            assert time.monotonic() < deadline, (wanted, self.newest)
            message = groups(self.socket)
            self.newest[message.id] = message

    def _is(self, number: str, generation: int, wanted: list[list[Any]]) -> bool:
        found = self.newest.get(number)
        return found is not None and (found.generation, found.groups) == (generation, wanted)


def test_summaries_of_clients_that_have_gone_are_computed_no_more(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = threading.Event()
    advance = SummaryQueries.advance

    def counted(*arguments: Any) -> Any:
        computed.set()
        return advance(*arguments)

    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="users_ui")
        groups(socket)
        socket.send(type="unsubscribe", id="s")
        socket.send(type="status", id="t")
        wait_until(lambda: json.loads(socket.raw.recv(SECONDS))["type"] == "status")
        monkeypatch.setattr(SummaryQueries, "advance", counted)
        filling.batch(users=[{**USER_1, "userId": "u5"}])
        assert not computed.wait(0.5)


def test_history_goes_on_for_a_client_that_comes_back(filling: Filling, url: str) -> None:
    asked = {"type": "summary", "id": "s", "table": "users_ui", "history": 600}
    with Socket(url) as socket:
        socket.send(**asked)
        groups(socket)
    filling.swap(users=[USER_1])
    with Socket(url) as other:
        other.send(type="summary", id="o", table="users_ui")
        assert groups(other).generation == 2
    with Socket(url) as socket:
        socket.send(**asked)
        found = groups(socket)
        while found.generation == 1:
            found = groups(socket)
        assert found.history is not None
        assert [swap.generation for swap in found.history.swaps] == [2]


def test_history_is_a_bounded_ring_that_begins_with_the_value_before() -> None:
    history = LastHour()
    for second in range(0, 200, 2):
        history.add(second * 1_000, 1, b"[[%d]]" % second)
    history.add(198_500, 2, b"[[0]]")
    found = json.loads(history.body(60, 198_500, None)[0])
    assert [point["time"] for point in found["points"]] == list(range(138_000, 200_000, 2_000))
    assert found["points"][-1] == {"time": 198_000, "generation": 2, "groups": [[0]]}
    assert found["swaps"] == [{"time": 198_500, "generation": 2}]
    later = json.loads(history.body(60, 198_500, 196_000)[0])
    assert ([point["time"] for point in later["points"]], later["whole"]) == ([196_000, 198_000], False)


@pytest.mark.parametrize("seconds", [1, 60, 299, 300, 301, 600, 601, 1_234, 3_600])
def test_history_of_every_length_is_bounded_in_order_and_right(seconds: int) -> None:
    history, last = LastHour(), 7_999_500
    for now in range(0, last + 1, 500):
        history.add(now, 1, b"[[%d]]" % now)
    found = json.loads(history.body(seconds, last, None)[0])
    times = [point["time"] for point in found["points"]]
    assert times == sorted(set(times))
    assert len(times) <= MAX_POINTS + 1
    # It begins with the value of its beginning, and each point has the last value of its step.
    assert times[0] <= last - seconds * 1_000 < times[1]
    assert all(0 <= point["groups"][0][0] - point["time"] < 12_000 for point in found["points"])
    assert found["points"][-1]["groups"] == [[last]]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 24_000


def test_history_of_a_summary_with_fewer_groups_is_cut() -> None:
    history = LastHour()
    history.add(1_000, 1, b'[["a",1],["b",2],[null,3]]')
    history.add(3_000, 2, b'[["b",4]]')
    body, newest = history.first_groups(2).body(60, 3_000, None)
    found = json.loads(body)
    assert [point["groups"] for point in found["points"]] == [[["a", 1], ["b", 2]], [["b", 4]]]
    assert (found["swaps"], newest) == ([{"time": 3_000, "generation": 2}], 3_000)
