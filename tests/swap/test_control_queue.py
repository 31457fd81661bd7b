"""The control queue takes over every control record: any time, any bytes, any length; only the store can hold it up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.config import Settings
from turnout.errors import TurnoutError
from turnout.kafka.control_topic import ControlRecord
from turnout.plan.control import MAX_MESSAGE_BYTES, ApplyRequest, ControlMessage, ControlRejected, Outcome
from turnout.store.database import Database
from turnout.store.ledger import Ledger, MessageRecord
from turnout.store.query.windows import Window, read_window
from turnout.swap.control_queue import ControlQueue, QueuedMessage, Reply
from turnout.swap.health import Health, Subject

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:9"}})
GOOD = b'{"usersTopic": "users2"}'
TIMES = [0, -1, -(2**63), 2**63 - 1, 1_794_787_200_000_000, 253_402_300_800_000, -62_135_596_800_001, 10**17, -(10**17)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path)
    yield opened
    opened.close()


def queue_of(database: Database, ledger: Ledger | None = None) -> ControlQueue:
    return ControlQueue(SETTINGS, ledger or Ledger(database, list(SETTINGS.sources)), lambda level, text: None)


def records(*values: bytes | None, first: int = 0, timestamp_ms: int = 0) -> list[ControlRecord]:
    return [ControlRecord(0, first + place, timestamp_ms, value) for place, value in enumerate(values)]


def kept(database: Database, columns: str) -> list[tuple[Any, ...]]:
    with database.read() as cursor:
        return cursor.execute(f"SELECT {columns} FROM turnout.control_raw ORDER BY _id").fetchall()


def test_records_of_any_time_are_taken_once_and_in_order(database: Database) -> None:
    queue = queue_of(database)
    of_any_time = [ControlRecord(0, place, moment, GOOD) for place, moment in enumerate(TIMES)]
    queue.deliver(of_any_time)
    queue.deliver(of_any_time)
    assert [message.record.offset for message in queue.waiting()] == list(range(len(TIMES)))
    assert all(isinstance(message.parsed, ControlMessage) for message in queue.waiting())
    shown = read_window(database, Window("control_raw", columns=("ts", "offset")))
    assert shown.total == len(TIMES)


def test_outcome_names_the_fields_that_were_ignored(database: Database) -> None:
    queue = queue_of(database)
    sent = [queue.submit(text, "test") for text in ('{"ordersTopic": "o", "zzz": 1}', GOOD)]
    queue.settle({sent[0]: Reply(Outcome.UNCHANGED, "no change", 1), sent[1]: Reply(Outcome.APPLIED, "", 2)})
    told, plain = (message.answer.detail for message in sent if message.answer)
    assert told.startswith("no change; unknown field 'ordersTopic' is ignored (did you mean usersTopic?)")
    assert "unknown field 'zzz' is ignored (known: usersTopic, accountsTopic, " in told
    assert plain == ""
    assert kept(database, "detail") == [(told,), ("",)]


def test_a_topic_made_anew_is_told_apart_by_times_that_no_clock_has(database: Database) -> None:
    queue = queue_of(database)
    queue.deliver(records(GOOD, timestamp_ms=2**63 - 1))
    queue.deliver(records(GOOD, timestamp_ms=2**63 - 2))
    assert len(queue.waiting()) == 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{" + b"x" * 27_000_000, "the message has 27000001 bytes"),
        (GOOD + b" " * MAX_MESSAGE_BYTES, "more than the 262144 allowed"),
        (b"\xff" * MAX_MESSAGE_BYTES, "not UTF-8 at byte 0"),
        (b'{"requestId": "\xff"}', "not UTF-8 at byte 15"),
        ("\N{SNOWMAN}".encode() * 100_000, "the message has 300000 bytes"),
        (b'{"usersTopic": "\x00"}', "not valid JSON"),
    ],
)
def test_what_is_no_message_is_kept_within_the_limit_and_rejected_after_a_restart_too(
    database: Database, value: bytes, reason: str
) -> None:
    first = queue_of(database)
    first.deliver(records(value, GOOD))
    [(raw,), _] = kept(database, "raw")
    assert len(raw.encode()) <= MAX_MESSAGE_BYTES
    second = queue_of(database)
    second.open()
    try:
        for queue in (first, second):
            bad, good = queue.waiting()
            assert isinstance(bad.parsed, ControlRejected)
            assert reason in bad.parsed.message
            assert isinstance(good.parsed, ControlMessage)
    finally:
        second.close()


def test_control_message_that_looks_like_an_apply_is_none_after_a_restart_either(database: Database) -> None:
    forged = json.dumps({"action": "apply", "config": "server: {max_viewers: 1}"})
    queue_of(database).submit(forged, "http")
    again = queue_of(database)
    again.open()
    try:
        [message] = again.waiting()
        assert isinstance(message.parsed, ControlRejected) and "'apply' is not known" in message.parsed.message
    finally:
        again.close()


APPLIED = ApplyRequest("store: {log_rows: 5}\n", "r1", 4, dry_run=True)


def waiting_after_a_restart(database: Database) -> list[QueuedMessage]:
    queue = queue_of(database)
    queue.open()
    try:
        return queue.waiting()
    finally:
        queue.close()


def test_apply_is_kept_with_its_file_until_it_has_its_outcome(database: Database) -> None:
    record = MessageRecord('{"action": "apply"}', "ops", apply=APPLIED)
    message = queue_of(database).submit_record(record, APPLIED)
    [again] = waiting_after_a_restart(database)
    assert (again.parsed, again.record.number) == (APPLIED, message.record.number)
    queue = queue_of(database)
    queue.open()
    queue.settle(dict.fromkeys(queue.waiting(), Reply(Outcome.APPLIED, "done", 5)))
    queue.close()
    assert waiting_after_a_restart(database) == []
    with database.read() as cursor:
        assert cursor.execute("FROM turnout.applies").fetchall() == []


def test_file_that_is_refused_stays_so_after_a_restart(database: Database) -> None:
    record = MessageRecord('{"action": "apply"}', "ops", refused="kafka: wrong", apply=ApplyRequest(""))
    queue_of(database).submit_record(record, ControlRejected("kafka: wrong"))
    [again] = waiting_after_a_restart(database)
    assert isinstance(again.parsed, ControlRejected) and again.parsed.message == "kafka: wrong"


def test_a_record_that_cannot_be_read_is_kept_with_its_offset_and_rejected_after_a_restart_too(
    database: Database,
) -> None:
    queue = queue_of(database)
    queue.deliver([ControlRecord(0, 7, 1, None, "it cannot be unpacked"), *records(GOOD, first=8)])
    assert kept(database, 'raw, "offset", detail')[0] == (None, 7, "it cannot be unpacked")
    again = queue_of(database)
    again.open()
    try:
        bad, good = again.waiting()
        assert isinstance(bad.parsed, ControlRejected)
        assert bad.parsed.message == "it cannot be unpacked"
        assert isinstance(good.parsed, ControlMessage)
    finally:
        again.close()


def test_known_secrets_are_masked_in_answers_and_rows(database: Database) -> None:
    ledger = Ledger(database, list(SETTINGS.sources), {"hunter2"})
    queue = queue_of(database, ledger)
    message = queue.submit('{"usersTopic": "x-hunter2"}', "http")
    assert isinstance(message.parsed, ControlMessage) and message.parsed.topics == {"users": "x-hunter2"}
    error = ControlRejected("no topic x-hunter2", "name another than hunter2", code="unknown_topic")
    report = {"changes": [{"path": "a", "to": ["hunter2"]}], "records": 3}
    queue.settle({message: Reply(Outcome.REJECTED, str(error), 1, error, report)})
    ledger.log("ERROR", "no topic x-hunter2")
    answer = message.answer
    assert answer is not None and answer.error is not None and "hunter2" not in f"{answer} {answer.error.as_json()}"
    assert (answer.error.code, answer.error.status) == ("unknown_topic", 422)
    assert answer.report == {"changes": [{"path": "a", "to": ["********"]}], "records": 3}
    assert kept(database, "raw, outcome") == [('{"usersTopic": "x-********"}', "rejected")]
    with database.read() as cursor:
        for table in ("control_raw", "orchestrator_logs"):
            assert "hunter2" not in str(cursor.execute(f"FROM turnout.{table}").fetchall())
    assert "hunter2" not in str(ledger.unacknowledged())


class FussyLedger(Ledger):
    """A store that cannot hold one text."""

    def add_messages(self, messages: Sequence[MessageRecord]) -> list[MessageRecord | None]:
        if any(message.raw == "odd" for message in messages):
            raise ValueError("year 58844 is out of range")
        return super().add_messages(messages)


def test_a_record_that_the_store_cannot_hold_blocks_no_other(database: Database) -> None:
    ledger = FussyLedger(database, list(SETTINGS.sources))
    queue = queue_of(database, ledger)
    queue.deliver(records(GOOD, b"odd", GOOD))
    assert [type(message.parsed) for message in queue.waiting()] == [ControlMessage, ControlRejected, ControlMessage]
    assert kept(database, '"offset", detail')[1] == (1, "it cannot be stored (year 58844 is out of range)")
    assert ledger.control_positions() == {0: 3}


def test_a_store_in_trouble_is_no_fault_of_a_record(database: Database) -> None:
    queue = queue_of(database)
    database.close()
    with pytest.raises(TurnoutError, match="the store failed"):
        queue.deliver(records(GOOD))
    assert queue.waiting() == []


def test_trouble_of_the_control_topic_is_the_least_telling_reason_and_said_by_who_noticed() -> None:
    said: list[str] = []
    health = Health(lambda level, text: said.append(text), "starting")
    health.good(Subject.START)
    health.bad(Subject.CONTROL, "2 control record(s) could not be taken over", said=True)
    trouble = health.trouble()
    assert trouble is not None
    assert (trouble.ready, trouble.code) == (False, "control_not_read")
    health.bad(Subject.READING, "generation 1 stopped reading")
    trouble = health.trouble()
    assert trouble is not None
    assert trouble.code == "not_reading"
    assert said == ["generation 1 stopped reading"]
