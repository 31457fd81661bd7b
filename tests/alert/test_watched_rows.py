"""The events of an alert, in a real store and without Kafka: folded, they give the rows that fulfil it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_webhook import Hook, hooked
from filled_store import Filling
from lengths import FOLD_EXAMPLES
from store_histories import LATEST, account, histories, user
from turnout.alert import alerts, watched_rows
from turnout.alert import events as events_module
from turnout.alert.alerts import RunningAlert
from turnout.alert.events import Events
from turnout.alert.watched_rows import StepResult, WatchedRows
from turnout.config import AlertSettings, KafkaSettings, Settings, TargetSettings
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.sink.records import kept_changes, published_table
from turnout.sink.sink import OutputTools
from turnout.store.database import Database
from turnout.store.query.difference import DifferenceQuestion, read_difference
from turnout.store.query.windows import Window

LOG = TargetSettings(log=True)
LARGE = AlertSettings(table="final_ui", where="balance > 1", to=LOG)
Row = tuple[str | None, str]
"""Key and id of a row."""


def table_of_events(database: Database) -> list[dict[str, Any]]:
    with database.read() as cursor:
        rows: list[dict[str, Any]] = cursor.sql("FROM turnout.alerts ORDER BY _id").to_arrow_table().to_pylist()
        return rows


def told(database: Database, after: int = 0) -> list[tuple[str, str | None]]:
    return [(row["event"], row["key"]) for row in table_of_events(database)[after:]]


class Fold:
    """Somebody who counts the rows of each key that fulfil an alert, by its events alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = 0
        with database.read() as cursor:
            rows = cursor.execute("SELECT record FROM turnout.alert_rows").fetchall()
        self.keys = Counter(row_of(record)[0] for (record,) in rows)

    def take(self) -> list[tuple[str, Row]]:
        found = []
        for row in [row for row in table_of_events(self._database) if row["_id"] > self._seen]:
            self._seen, one = row["_id"], row_of(row["_record"])
            assert row["key"] == one[0]
            self.keys[one[0]] += {"entered": 1, "left": -1}[row["event"]]
            assert self.keys[one[0]] >= 0
            found.append((row["event"], one))
        return found


def row_of(record: str) -> Row:
    fields = json.loads(record)
    return fields["key"], fields["id"]


def fitting(database: Database, alert: AlertSettings) -> set[Row]:
    """The rows that fulfil the alert now, by plain Python."""
    with database.read() as cursor:
        rows = cursor.sql(f"SELECT * FROM main.{alert.table}").to_arrow_table().to_pylist()
    column, _, least = alert.where.split()
    return {(row["userId"], row["_row"]) for row in rows if row[column] is not None and row[column] > float(least)}


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    yield Filling(database)
    database.close()


def test_row_that_comes_to_fulfil_the_condition_is_told_once_and_so_is_its_end(filling: Filling) -> None:
    rows = WatchedRows("large", LARGE, filling.database)
    filling.swap(users=[user(1), user(2)])
    assert rows.step() == StepResult(began=True)
    filling.batch(accounts=[account(1, 5.0)])
    assert rows.step() == StepResult(events=1)
    assert rows.step() == StepResult()
    filling.batch(accounts=[account(1, 6.0)])  # it still does
    assert rows.step() == StepResult()
    filling.batch(accounts=[account(1, 0.5)])
    assert rows.step().events == 1
    entered, left = table_of_events(filling.database)
    assert (entered["alert"], entered["event"], entered["key"], entered["delivered"]) == (
        *("large", "entered", "u1"),
        "waiting",
    )
    assert json.loads(entered["row"])["balance"] == 5.0
    assert (left["event"], json.loads(left["row"])["balance"]) == ("left", 0.5)


def test_rows_that_fulfil_an_alert_when_it_begins_are_not_told(filling: Filling) -> None:
    filling.swap(users=[user(1), user(2)], accounts=[account(1, 5.0)])
    rows = WatchedRows("large", LARGE, filling.database)
    assert rows.step() == StepResult(began=True)
    assert Events(filling.database).counts() == {"large": (1, 0)}
    filling.batch(accounts=[account(1, 0.0), account(2, 9.0)])
    rows.step()
    assert sorted(told(filling.database)) == [("entered", "u2"), ("left", "u1")]


def test_alert_is_no_sink_of_a_difference(filling: Filling) -> None:
    filling.swap(users=[user(1), user(2)])
    WatchedRows("large", LARGE, filling.database).step()
    filling.swap(users=[user(1)])
    asked = DifferenceQuestion(Window("final_ui"), 1, 2)
    assert read_difference(filling.database, asked).sinks == {}, "it sends events, and not a record for each row"


def test_batches_are_told_each_by_itself_though_they_are_looked_at_together(filling: Filling) -> None:
    rows = WatchedRows("large", LARGE, filling.database)
    filling.swap(users=[user(1)])
    rows.step()
    for balance in (5.0, 0.0, 7.0):
        filling.batch(accounts=[account(1, balance)])
    rows.step()
    assert told(filling.database) == [("entered", "u1"), ("left", "u1"), ("entered", "u1")]
    assert [json.loads(row["row"])["balance"] for row in table_of_events(filling.database)] == [5.0, 0.0, 7.0]


def test_changes_of_a_row_within_a_batch_are_one(filling: Filling) -> None:
    rows = WatchedRows("large", LARGE, filling.database)
    filling.swap(users=[user(1)])
    rows.step()
    filling.batch(accounts=[account(1, 5.0), account(1, 0.0), account(1, 8.0), account(1, None)])
    assert rows.step().events == 0


def test_swap_tells_the_difference_only(filling: Filling) -> None:
    rows = WatchedRows("large", AlertSettings(table="accounts_ui", where="balance > 1", to=LOG), filling.database)
    filling.swap(accounts=[account(1, 5.0), account(2, 6.0), account(3, 0.0)])
    rows.step()
    filling.generation(Join.INNER)
    filling._offset = (
        0  # the same places: the first row is in both, the second is not large any more, the third is gone
    )
    filling.batch(accounts=[account(1, 5.0), account(2, 0.5)])
    assert rows.step() == StepResult(), "it is not published"
    filling.publish()
    assert rows.step().events == 1
    [row] = table_of_events(filling.database)
    assert (row["event"], row["key"], json.loads(row["row"])["balance"]) == ("left", "u2", 0.5)
    filling.swap(accounts=[])
    rows.step()
    assert [row["row"] for row in table_of_events(filling.database)[1:]] == [None], "the row is gone"


@pytest.mark.parametrize("join", [Join.LEFT, Join.INNER])
def test_swap_tells_nothing_of_a_row_that_only_gets_another_id(filling: Filling, join: Join) -> None:
    rows = WatchedRows("large", LARGE, filling.database)
    filling.swap(users=[user(1), user(2), user(3)], accounts=[account(1, 5.0), account(2, 6.0), account(3, 0.0)])
    rows.step()
    filling.swap(  # other places in Kafka, and with `inner` rows of pairs
        join, users=[user(3), user(1), user(1)], accounts=[account(1, 5.0), account(3, 7.0)]
    )
    assert rows.step().events == 3
    events = table_of_events(filling.database)
    assert sorted((row["event"], row["key"]) for row in events) == [
        ("entered", "u1"),  # of its two rows, one was there
        ("entered", "u3"),
        ("left", "u2"),
    ]
    filling.batch(accounts=[account(1, 0.5), account(3, 0.5)])
    rows.step()
    if join is Join.LEFT:
        assert sorted(told(filling.database, after=3)) == [("left", "u1"), ("left", "u1"), ("left", "u3")]


def test_other_condition_begins_anew(filling: Filling) -> None:
    filling.swap(users=[user(1)], accounts=[account(1, 5.0)])
    WatchedRows("large", LARGE, filling.database).step()
    other = WatchedRows("large", LARGE.model_copy(update={"where": "balance > 7"}), filling.database)
    assert other.step() == StepResult(began=True)
    assert Events(filling.database).counts() == {}
    assert table_of_events(filling.database) == []


def test_condition_that_does_not_fit_the_published_table_is_an_error(filling: Filling) -> None:
    filling.swap(users=[user(1)])
    rows = WatchedRows("large", LARGE.model_copy(update={"where": "score > 7"}), filling.database)
    with pytest.raises(TurnoutError, match="no column 'score'"):
        rows.step()


def test_large_row_is_left_out_of_its_event(filling: Filling) -> None:
    rows = WatchedRows("old", AlertSettings(table="users_ui", where="age > 5", to=LOG), filling.database)
    filling.swap(users=[user(1)])
    rows.step()
    filling.batch(users=[user(2, age=9, name="n" * 70_000)])
    rows.step()
    assert [row["row"] for row in table_of_events(filling.database)] == [None]


def test_oldest_events_are_dropped_where_too_many_wait_and_the_table_is_bounded(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "MAX_WAITING", 3)
    monkeypatch.setattr(events_module, "MAX_EVENTS", 5)
    rows = WatchedRows("old", AlertSettings(table="users_ui", where="age > 5", to=LOG), filling.database)
    filling.swap(users=[user(1)])
    rows.step()
    filling.batch(users=[user(number, age=9) for number in range(10, 14)])
    assert rows.step() == StepResult(events=4, dropped=1)
    states = [(row["delivered"], row["key"]) for row in table_of_events(filling.database)]
    assert states == [("dropped", "u10"), ("waiting", "u11"), ("waiting", "u12"), ("waiting", "u13")]
    filling.batch(users=[user(number, age=9) for number in range(14, 21)])
    assert rows.step() == StepResult(events=7, dropped=2 + 2 + 3)
    states = [(row["delivered"], row["key"]) for row in table_of_events(filling.database)]
    assert states == [*(("dropped", key) for key in ("u16", "u17")), *(("waiting", f"u{n}") for n in (18, 19, 20))]
    events = Events(filling.database)
    events.delivered(events.waiting("old")[:1])
    assert [row["delivered"] for row in table_of_events(filling.database)][2:] == ["delivered", "waiting", "waiting"]
    events.forget_others([])
    assert {row["delivered"] for row in table_of_events(filling.database)} == {"delivered", "dropped"}
    assert events.counts() == {}


@pytest.mark.parametrize("kept", [True, False])
def test_flood_keeps_the_rows_of_the_events_that_can_be_delivered(
    filling: Filling, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The rows of a million events would be gigabytes."""
    monkeypatch.setattr(watched_rows, "MAX_WAITING", 2)
    if not kept:
        monkeypatch.setattr(watched_rows, "MAX_KEPT_CHANGES", 0)
    rows = WatchedRows("large", LARGE, filling.database)
    numbers = range(1, 6)
    filling.swap(users=[user(number) for number in numbers])
    rows.step()
    filling.batch(accounts=[account(number, 5.0) for number in numbers])
    with filling.database.read() as cursor:
        now = published_table(cursor, "final_ui")
        assert now is not None and rows._position is not None
        assert (kept_changes(now, rows._position) is not None) == kept
    assert rows.step().events == 5
    found = table_of_events(filling.database)
    assert [row["key"] for row in found] == ["u1", "u2", "u3", "u4", "u5"]
    assert [row["row"] and json.loads(row["row"])["userId"] for row in found] == [None, None, None, "u4", "u5"]


def test_events_go_together_up_to_a_size(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_TOGETHER_BYTES", 200)
    rows = WatchedRows("old", AlertSettings(table="users_ui", where="age > 5", to=LOG), filling.database)
    filling.swap(users=[user(1)])
    rows.step()
    filling.batch(users=[user(1, age=9, name="n" * 500), user(2, age=9), user(3, age=9), user(4, age=9, name="n" * 99)])
    rows.step()
    events, together = Events(filling.database), []
    while waiting := events.waiting("old"):
        together.append([one.content["key"] for one in waiting])
        events.delivered(waiting)
    assert together == [["u1"], ["u2", "u3"], ["u4"]]


def test_events_of_rows_that_are_gone_go_together_with_others(filling: Filling) -> None:
    rows = WatchedRows("old", AlertSettings(table="users_ui", where="age > 5", to=LOG), filling.database)
    filling.swap(users=[user(number, age=9) for number in range(3)])
    rows.step()
    filling.swap(users=[user(7, age=9)])
    rows.step()
    waiting = Events(filling.database).waiting("old")
    assert sorted((one.event, one.content["row"] is None) for one in waiting) == [
        ("entered", False),
        *[("left", True)] * 3,
    ]


def test_event_has_an_id_that_no_other_store_gives(filling: Filling, tmp_path: Path) -> None:
    first, database = Events(filling.database), Database.open(tmp_path / "other")
    other = Events(database)
    assert first.number_of(int(first.id_of(7), 16)) == 7
    assert first.number_of(int(other.id_of(7), 16)) == 0
    database.close()


class Answer(StrEnum):
    """What a target does with a request."""

    TAKEN = "taken"
    ERROR = "answers 500"
    LOST = "takes it, and ends the connection without an answer"
    AWAY = "does not listen"


class Receiver:
    """A webhook that is away now and then, and the alert at work, which is told to try."""

    def __init__(self, database: Database) -> None:
        self.hook = Hook()
        with hooked(hook=self.hook):
            pass  # a port of its own, where nobody listens
        to = TargetSettings.model_validate({"webhook": self.hook.url, "private": True})
        self.alert = AlertSettings(table="final_ui", where="balance > 0", to=to)
        self._database, self._said = database, list[str]()
        self.restart()

    def restart(self) -> None:
        """Go on as after a restart of the process: the store has all that is known."""
        tools = OutputTools(self._database, KafkaSettings(), self._say)
        self._running = RunningAlert("watched", self.alert, tools, Events(self._database))

    def _say(self, level: str, text: str) -> None:
        self._said.append(text)

    def deliver(self, answer: Answer) -> None:
        """Let it try once. What waited is delivered where the target has taken it, and waits on otherwise."""
        waiting, came = self._waiting(), len(self.hook.bodies)
        self.hook.status, self.hook.loses = 500 if answer is Answer.ERROR else 200, answer is Answer.LOST
        if answer is Answer.AWAY:
            self._running._deliver()
        else:
            with hooked(self.hook.port, hook=self.hook):
                self._running._deliver()
        taken = answer is Answer.TAKEN
        assert self._waiting() == ([] if taken else waiting)
        assert len(self.hook.bodies) == came + (bool(waiting) and answer in (Answer.TAKEN, Answer.LOST))
        if waiting:
            assert (self._running.status(None).error is None) == taken

    def _waiting(self) -> list[int]:
        return [row["_id"] for row in table_of_events(self._database) if row["delivered"] == "waiting"]

    def check(self) -> None:
        """Every event has come, in the order of the table."""
        self.deliver(Answer.TAKEN)
        rows = table_of_events(self._database)
        assert {row["delivered"] for row in rows} <= {"delivered"}
        assert self.hook.events() == [(row["event"], row["key"]) for row in rows]


MORE = (st.tuples(st.just("apply"), st.integers(0, 2)), st.tuples(st.just("deliver"), st.sampled_from(list(Answer))))


@settings(max_examples=FOLD_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=histories(*MORE), kept=st.sampled_from(["all", "latest"]), column=st.sampled_from(["balance", "age"]))
def test_events_fold_to_the_rows_that_fulfil_the_alert_and_arrive_though_the_target_is_away_at_times(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, Any]], kept: str, column: str
) -> None:
    folder = tmp_path_factory.mktemp("watched")
    database = Database.open(folder)
    sources = LATEST if kept == "latest" else Settings().sources
    filling = Filling(database, Settings().model_copy(update={"sources": sources}))
    filling.swap(users=[user(1)], accounts=[account(1, 1.0)])
    before = filling.tables
    receiver = Receiver(database)
    alert = receiver.alert.model_copy(update={"where": f"{column} > 0"})
    rows = WatchedRows("watched", alert, database)
    rows.step()
    fold, states, moved = Fold(database), [fitting(database, alert)], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched_rows, "MAX_KEPT_CHANGES", 6)
        patch.setattr(alerts, "PAUSES_SECONDS", (0.0, 0.0))
        for number, (kind, value) in enumerate([*operations, ("step", None)]):
            if kind == "users":
                filling.batch(users=[user(one, age=number % 3) for one in value])
            elif kind == "accounts":
                filling.batch(accounts=[account(one, [None, 0.0, 1.0, 2.0][(number + one) % 4]) for one in value])
            elif kind == "swap":
                before = filling.tables
                filling.swap(value, users=[user(number % 6)], accounts=[account(1, float(number % 3))])
            elif kind == "back" and before is not None:  # a lingering generation is published again
                with database.write() as cursor:
                    before.publish(cursor)
                before, filling.tables = filling.tables, before
                assert filling.tables is not None
                filling._batch = filling.tables.progress().batch_id
            elif kind == "restart":
                rows.stop()
                rows = WatchedRows("watched", alert, database)
                receiver.restart()
            elif kind == "deliver":
                receiver.deliver(value)
            elif kind == "apply":
                alert = alert.model_copy(update={"where": f"{column} > {value}"})
                if alert.where != rows._settings.where:
                    rows.stop()
                    rows = WatchedRows("watched", alert, database)
                    assert rows.step() == StepResult(began=True)
                    seen, fold = fold._seen, Fold(database)
                    fold._seen, states = max(seen, len_of(database)), [fitting(database, alert)]
            states.append(fitting(database, alert))
            moved = moved or kind in ("swap", "back")  # away and back again is no difference
            if kind == "step":
                position = rows._position
                with database.read() as cursor:
                    now = published_table(cursor, "final_ui")
                exact = not moved and bool(position and now and kept_changes(now, position))
                rows.step()
                found = fold.take()
                if exact:  # each batch by itself
                    changes = [old ^ new for old, new in pairwise(states)]
                    assert sorted(map(str, (row for _, row in found))) == sorted(
                        map(str, (r for c in changes for r in c))
                    )
                assert fold.keys == Counter(key for key, _ in states[-1])
                assert rows.step() == StepResult()
                states, moved = [states[-1]], False
        receiver.check()
    database.close()


def len_of(database: Database) -> int:
    return max((row["_id"] for row in table_of_events(database)), default=0)
