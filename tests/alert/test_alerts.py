"""Running alerts over a store that is filled by hand: lines of the log, real webhooks, changes and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake_webhook import Hook, hooked
from filled_store import Filling
from turnout.alert import alerts
from turnout.alert.alerts import Alerts
from turnout.config import AlertSettings, KafkaSettings
from turnout.errors import TurnoutError
from turnout.plan.answers import AlertStatus
from turnout.store.database import Database
from turnout.store.query.windows import Window, list_tables, read_window
from turnout.testing import wait_until


class Watched:
    """A store that is filled by hand, and its alerts."""

    def __init__(self, folder: Path) -> None:
        self.database = Database.open(folder)
        self.filling = Filling(self.database)
        self.said: list[tuple[str, str]] = []
        self.alerts = Alerts(self.database, KafkaSettings(), lambda level, text: self.said.append((level, text)))

    def start(self, **alerts: AlertSettings) -> None:
        self.alerts.start(alerts)

    def wait_begun(self) -> None:
        count = len(self.alerts.status())
        with_rows = "SELECT count(*) FROM turnout.alert_positions"
        wait_until(lambda: self._number(with_rows) == count, what="the alerts have begun")

    def _number(self, sql: str) -> int:
        with self.database.read() as cursor:
            return int(cursor.execute(sql).fetchall()[0][0])

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read_window(self.database, Window("alerts")).rows.to_pylist()
        return found

    def status(self, name: str = "large") -> AlertStatus:
        return next(one for one in self.alerts.status() if one.name == name)

    def wait_delivered(self, count: int) -> None:
        def done() -> bool:
            rows = self.rows()
            return len(rows) == count and all(row["delivered"] != "waiting" for row in rows)

        wait_until(done, what=lambda: f"{count} events are delivered: {self.rows()}, {self.alerts.status()}")

    def close(self) -> None:
        self.alerts.stop()
        self.database.close()


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    running = Watched(folder)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as one:
        one.filling.swap(users=[user(1), user(2)])
        yield one


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed deliveries are tried again soon."""
    monkeypatch.setattr(alerts, "PAUSES_SECONDS", (0.01, 0.05))


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": "n", "email": None, "age": 1, **more}


def account(number: int, balance: float | None) -> dict[str, Any]:
    return {"userId": f"u{number}", "accountType": "gold", "balance": balance}


def alert(to: Any = "log", **more: Any) -> AlertSettings:
    return AlertSettings.model_validate({"table": "final_ui", "where": "balance > 1", "to": to, **more})


def hooked_alert(hook: Hook, **more: Any) -> AlertSettings:
    return alert({"webhook": hook.url, "private": True}, **more)


def test_log_has_a_line_for_each_event(running: Watched) -> None:
    running.start(large=alert())
    running.wait_begun()
    running.filling.batch(accounts=[account(1, 5.0)])
    running.filling.batch(accounts=[account(1, 0.0)])
    running.wait_delivered(2)
    [begun, entered, left] = running.said
    assert begun == ("INFO", "alert large watches final_ui where balance > 1")
    assert (entered[0], left[0]) == ("WARNING", "INFO")
    assert entered[1].startswith('alert large: u1 entered: {"userId": "u1"')
    status = running.status().model_dump()
    assert status.pop("lastDelivered") is not None
    assert status == {
        "name": "large",
        "table": "final_ui",
        "where": "balance > 1",
        "to": "log",
        "state": "watching",
        "error": None,
        "rows": 0,
        "waiting": 0,
        "events": 2,
        "delivered": 2,
        "dropped": 0,
    }


def test_many_events_at_once_are_few_lines(running: Watched) -> None:
    running.start(old=alert(table="users_ui", where="age > 50"))
    running.wait_begun()
    running.filling.batch(users=[user(number, age=60) for number in range(30)])
    running.wait_delivered(30)
    lines = [text for _, text in running.said]
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "alert old: 10 more events; see the table alerts"


def test_table_alerts_is_listed_and_read_as_all_tables_are(running: Watched) -> None:
    running.start(large=alert())
    running.wait_begun()
    running.filling.batch(accounts=[account(2, 5.0)])
    running.wait_delivered(1)
    [table] = [one for one in list_tables(running.database) if one.name == "alerts"]
    names = ["ts", "alert", "event", "key", "row", "delivered"]
    assert [column.name for column in table.columns] == names
    [row] = running.rows()
    assert (row["alert"], row["event"], row["key"], row["delivered"]) == ("large", "entered", "u2", "delivered")


def test_webhook_that_is_away_gets_everything_when_it_is_back(running: Watched, quick: None) -> None:
    with hooked() as hook:
        port = hook.port
    running.start(large=hooked_alert(hook))
    running.wait_begun()
    running.filling.batch(accounts=[account(1, 5.0), account(2, 6.0)])
    wait_until(lambda: running.status().error is not None, what="the failure is told")
    running.filling.batch(accounts=[account(1, 0.0)])
    wait_until(lambda: running.status().waiting == 3, what="all events wait")
    status = running.status().model_dump()
    assert status["state"] == "failing"
    assert "the webhook 127.0.0.1 cannot be reached" in status["error"]
    with hooked(port, hook=hook):
        running.wait_delivered(3)
    assert sorted(hook.events()[:2]) == [("entered", "u1"), ("entered", "u2")]
    assert hook.events()[2:] == [("left", "u1")]
    assert running.status().error is None
    assert [level for level, text in running.said if "not delivered" in text] == ["WARNING"], "said once"
    assert any("is delivered to its webhook 127.0.0.1 again" in text for _, text in running.said)


def test_target_that_is_away_does_not_hold_up_another_alert(running: Watched, quick: None) -> None:
    with hooked() as gone:
        pass
    with hooked() as hook:
        running.start(large=hooked_alert(gone), other=hooked_alert(hook))
        running.wait_begun()
        running.filling.batch(accounts=[account(1, 5.0)])
        wait_until(lambda: hook.events() == [("entered", "u1")], what="the event of the other alert")


def test_events_of_a_short_time_are_sent_together(running: Watched) -> None:
    with hooked() as hook:
        running.start(large=hooked_alert(hook, min_seconds=1.0))
        running.wait_begun()
        running.filling.batch(accounts=[account(1, 5.0)])
        wait_until(lambda: len(hook.bodies) == 1, what="the first delivery")
        running.filling.batch(accounts=[account(1, 0.0)])
        running.filling.batch(accounts=[account(1, 6.0)])
        running.wait_delivered(3)
        sizes = [len(body["events"]) for body in hook.bodies]
        assert sum(sizes) == 3
        assert len(sizes) <= 3
        assert hook.events() == [("entered", "u1"), ("left", "u1"), ("entered", "u1")]


def test_restart_goes_on_with_what_waits_and_tells_nothing_twice(tmp_path: Path, quick: None) -> None:
    with hooked() as hook:
        port = hook.port
    with watched(tmp_path) as running:
        running.filling.swap(users=[user(1), user(2)])
        running.start(large=hooked_alert(hook))
        running.wait_begun()
        running.filling.batch(accounts=[account(1, 5.0)])
        wait_until(lambda: running.status().waiting == 1, what="an event that waits")
    with watched(tmp_path) as running, hooked(port, hook=hook):
        running.start(large=hooked_alert(hook))
        running.wait_delivered(1)
        assert hook.events() == [("entered", "u1")]
        assert running.status().rows == 1
    with watched(tmp_path) as running, hooked(port, hook=hook):
        running.start(large=hooked_alert(hook))
        wait_until(lambda: running.status().rows == 1, what="the row is known")
        assert len(running.rows()) == 1
        assert not any("watches" in text for _, text in running.said), "it goes on"


def test_change_of_the_target_alone_keeps_the_rows(running: Watched) -> None:
    running.start(large=alert())
    running.wait_begun()
    running.filling.batch(accounts=[account(1, 5.0)])
    running.wait_delivered(1)
    with hooked() as hook:
        running.alerts.change({"large": hooked_alert(hook)})
        running.filling.batch(accounts=[account(2, 5.0)])
        running.wait_delivered(2)
        assert hook.events() == [("entered", "u2")]


def test_alert_that_is_removed_leaves_nothing_behind(running: Watched, quick: None) -> None:
    with hooked() as gone:
        pass
    running.start(large=hooked_alert(gone), other=alert())
    running.wait_begun()
    running.filling.batch(accounts=[account(1, 5.0)])
    wait_until(lambda: len(running.rows()) == 2, what="the events")
    running.alerts.change({"other": alert()})
    assert [one.name for one in running.alerts.status()] == ["other"]
    running.wait_delivered(2)
    assert {row["alert"]: row["delivered"] for row in running.rows()} == {"large": "dropped", "other": "delivered"}
    assert [one.table for own in running.database.sinks.of_tables().values() for one in own] == ["final_ui"]


def test_condition_that_the_shown_table_cannot_fulfil_is_told_and_made_up_for(running: Watched) -> None:
    running.start(large=alert(where="score > 1"))
    wait_until(lambda: running.status().error is not None, what="the error")
    assert "no column 'score'" in str(running.status().model_dump()["error"])
    assert [level for level, _ in running.said] == ["WARNING"]


def test_sample_arrives_or_says_why_not(running: Watched) -> None:
    with hooked() as hook:
        running.start(large=hooked_alert(hook))
        running.alerts.test("large")
        [body] = hook.bodies
        assert [(one["alert"], one["event"], one["row"]) for one in body["events"]] == [("large", "test", None)]
        hook.status = 500
        with pytest.raises(TurnoutError, match="answered 500") as caught:
            running.alerts.test("large")
        assert caught.value.status == 502
        assert running.rows() == [], "a sample is no event"
    with pytest.raises(TurnoutError, match="no alert 'larg'") as caught:
        running.alerts.test("larg")
    assert (caught.value.code, caught.value.hint) == ("unknown_alert", "did you mean large? alerts: large")
