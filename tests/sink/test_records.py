"""What a sink has to write, in a real store and without Kafka: its records bring the topic to what is shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filled_store import Filling
from lengths import FOLD_EXAMPLES
from sink_reader import bag
from store_histories import LATEST, account, histories, user
from turnout.config import Settings
from turnout.plan.joins import Join
from turnout.plan.position import NOTHING
from turnout.serve.responses import json_rows
from turnout.sink.records import kept_changes, lag, make_records, published_table
from turnout.sink.topic_channel import FINGERPRINT, _record, _table
from turnout.sink.topic_state import TopicState
from turnout.store.database import Database
from turnout.store.outgoing import BOOK, SinkPosition, relation
from turnout.store.query.windows import Window, read_window

TOPIC = ("out", "1")


class Topic:
    """Stands for a topic: takes the records of a sink, and folds them."""

    def __init__(self, database: Database, table: str, *, limit: int = 1000) -> None:
        self._database = database
        self._state = TopicState(database, "out", table)
        self.written, _ = self._state.open(*TOPIC)
        self._position = SinkPosition(table, limit)
        self.table: dict[str, dict[str, Any]] = {}
        self._note()

    def _note(self) -> None:
        now = self.written
        self._database.sinks.put("out", replace(self._position, written=now))

    def step(self) -> list[tuple[str, str | None]] | None:
        """Write what waits, as a sink does; the records, or None where nothing waits."""
        with self._database.cursor() as cursor:
            cursor.execute("BEGIN")
            shown = published_table(cursor, self._position.table)
            if shown is None or shown.position == self.written:
                cursor.execute("COMMIT")
                return None
            made = make_records(cursor, shown, self.written, self._state.relation, "json")
            cursor.execute("COMMIT")
            records = [(key, value) for key, value, _ in made.rows()]
            assert len(records) == made.count == len({key for key, _ in records})
            self._state.written(made, shown.position, None)
        self.written = shown.position
        self._note()
        for key, value in records:
            if value is None:
                del self.table[key]
            else:
                assert self.table.get(key) != json.loads(value), "a record that changes nothing"
                self.table[key] = json.loads(value)
        return records

    def lag(self) -> tuple[int, int]:
        with self._database.read() as cursor:
            return lag(cursor, self._position.table, self.written)

    def keeps_up(self) -> bool:
        with self._database.read() as cursor:
            shown = published_table(cursor, self._position.table)
            return shown is not None and kept_changes(shown, self.written) is not None

    def rows(self) -> Counter[str]:
        return bag(self.table.values())


def shown(database: Database, table: str) -> Counter[str]:
    return bag(json.loads(json_rows(read_window(database, Window(table)).rows)))


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    yield Filling(database)
    database.close()


def test_batch_gives_its_changed_rows_only(filling: Filling) -> None:
    topic = Topic(filling.database, "final_ui")
    filling.swap(users=[user(1), user(2), user(None)])
    assert len(topic.step() or ()) == 3
    assert topic.step() is None
    filling.batch(accounts=[account(1, 1.0)])
    assert topic.keeps_up()
    assert topic.lag() == (1, 1)
    [(key, value)] = topic.step() or []
    assert json.loads(key)["key"] == "u1"
    assert json.loads(value or "")["balance"] == 1.0
    # Its rows are replaced by the same ones.
    filling.batch(accounts=[account(1, 1.0)])
    assert topic.step() == []
    assert topic.rows() == shown(filling.database, "final_ui")
    assert topic.lag() == (0, 0)


def test_several_batches_are_one_step_with_the_last_value_of_each_row(filling: Filling) -> None:
    topic = Topic(filling.database, "final_ui")
    filling.swap(users=[user(1), user(2)])
    topic.step()
    for balance in (1.0, 2.0, 3.0):
        filling.batch(accounts=[account(1, balance)])
    assert topic.lag()[0] == 3
    [(_, value)] = topic.step() or []
    assert json.loads(value or "")["balance"] == 3.0


def test_row_that_went_and_came_again_is_written_though_the_topic_seems_to_have_it(tmp_path: Path) -> None:
    """Its tombstone may have been committed by a process that was killed then, and compacted away since."""
    database = Database.open(tmp_path)
    filling = Filling(database, Settings().model_copy(update={"sources": LATEST}))
    state = TopicState(database, "out", "users_ui")
    state.open(*TOPIC)
    database.sinks.put("out", SinkPosition("users_ui", 1000))
    filling.swap(users=[user(1)])
    with database.cursor() as cursor:
        first = published_table(cursor, "users_ui")
        assert first is not None
        made = make_records(cursor, first, NOTHING, state.relation, "json")
        assert made.count == 1
        state.written(made, first.position, None)
        with database.transaction() as writing:  # as a tombstone and the record after it would leave it
            rows = relation("g1", "users_ui")
            columns = 'userId VARCHAR, "name" VARCHAR, email VARCHAR, age BIGINT'
            writing.execute(
                f"CREATE TABLE IF NOT EXISTS {rows} (_version BIGINT, _gone BOOLEAN, _row VARCHAR, {columns})"
            )
            writing.execute(f"DELETE FROM {rows}")
            writing.execute(f"INSERT INTO {rows} SELECT 2, true, _row, userId, NULL, NULL, NULL FROM main.users_ui")
            writing.execute(f"INSERT INTO {rows} SELECT 3, false, _row, userId, name, email, age FROM main.users_ui")
            writing.execute("UPDATE g1.versions SET version = 3 WHERE name = 'users_ui'")
            writing.execute(f"UPDATE g1.{BOOK} SET since = 1, upto = 3 WHERE name = 'users_ui'")
        now = published_table(cursor, "users_ui")
        assert now is not None
        assert make_records(cursor, now, first.position, state.relation, "json").count == 1
    database.close()


def test_swap_gives_the_difference(filling: Filling) -> None:
    topic = Topic(filling.database, "accounts_ui")
    filling.swap(accounts=[account(1, 1.0), account(2, 2.0)])
    assert len(topic.step() or ()) == 2
    filling.generation(Join.INNER)
    # The same places as before in another generation, as a rollback or another join has them.
    filling._offset = 0
    filling.batch(accounts=[account(1, 1.0), account(2, 2.5), account(3, 3.0)])
    assert topic.step() is None, "it is not published"
    filling.publish()
    assert not topic.keeps_up()
    assert topic.lag() == (1, 3)
    changed = topic.step() or ()
    assert sorted(json.loads(key)["key"] for key, _ in changed) == ["u2", "u3"]
    assert topic.rows() == shown(filling.database, "accounts_ui")


def test_more_changed_rows_than_may_wait_give_the_difference(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui", limit=3)
    filling.swap(users=[user(1)])
    topic.step()
    for number in range(2, 5):
        filling.batch(users=[user(number)])
    assert topic.keeps_up()
    filling.batch(users=[user(5)])
    assert not topic.keeps_up()
    with filling.database.read() as cursor:
        assert cursor.execute(f"SELECT count(*) FROM {relation('g1', 'users_ui')}").fetchall() == [(0,)]
    assert len(topic.step() or ()) == 4
    filling.batch(users=[user(6)])
    assert topic.keeps_up()
    assert len(topic.step() or ()) == 1


def test_changes_while_there_was_no_sink_are_not_missed(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui")
    filling.swap(users=[user(1)])
    topic.step()
    filling.batch(users=[user(2)])
    topic.step()
    filling.database.sinks.remove("out")
    filling.batch(users=[user(3)])
    topic._note()
    filling.batch(users=[user(4)])
    assert not topic.keeps_up()
    assert len(topic.step() or ()) == 2
    assert topic.rows() == shown(filling.database, "users_ui")


def test_written_rows_are_removed(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui", limit=100_000)
    filling.swap(users=[user(1)])
    topic.step()
    filling.batch(users=[user(number) for number in range(1500)])
    topic.step()
    filling.batch(users=[user(2000)])
    with filling.database.read() as cursor:
        assert cursor.execute(f"SELECT count(*) FROM {relation('g1', 'users_ui')}").fetchall() == [(1,)]
    assert len(topic.step() or ()) == 1


def test_nothing_is_written_before_the_first_generation(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui")
    filling.generation()
    filling.batch(users=[user(1)])
    assert topic.step() is None
    assert topic.lag() == (0, 0)


def test_state_of_a_topic_that_was_made_anew_is_forgotten(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui")
    filling.swap(users=[user(1)])
    topic.step()
    state = TopicState(filling.database, "out", "users_ui")
    assert state.open(*TOPIC) == (topic.written, {})
    assert state.open("out", "2") == (NOTHING, {})
    with filling.database.read() as cursor:
        assert cursor.execute(f"SELECT count(*) FROM {state.relation}").fetchall() == [(0,)]


class Written:
    """A record of a topic, as the client hands it over."""

    def __init__(self, key: str, value: bytes, fingerprint: bytes | None) -> None:
        self._content = {"key": key.encode(), "value": value, "headers": [(FINGERPRINT, fingerprint)]}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._content[name]


@pytest.mark.parametrize("odd", [b"abc", b"", None, b"-1", b"1e3", b"\xff", b"9" * 39, b"9" * 5000, "\u0663".encode()])
def test_fingerprint_that_is_none_is_taken_for_that_of_the_value(filling: Filling, odd: bytes | None) -> None:
    """Somebody else can write any into the topic: the sink failed with each start."""
    state = TopicState(filling.database, "out", "users_ui")
    state.open(*TOPIC)
    known = 2**128 - 1
    records = [_record(Written("a", b"{}", odd)), _record(Written("b", b"{}", str(known).encode()))]  # type: ignore[arg-type]
    state.fold(_table([one for some in records for one in some]), {0: 2})
    with filling.database.read() as cursor:
        rows = cursor.execute(f"SELECT record, fingerprint FROM {state.relation} ORDER BY record").fetchall()
    assert rows == [("a", int.from_bytes(md5(b"{}").digest(), "little")), ("b", known)]


def test_position_means_nothing_once_something_else_is_written(filling: Filling) -> None:
    topic = Topic(filling.database, "users_ui")
    filling.swap(users=[user(1)])
    topic.step()
    assert TopicState(filling.database, "out", "accounts_ui").open(*TOPIC) == (NOTHING, {})


@settings(max_examples=FOLD_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=histories(), rows=st.sampled_from(["all", "latest"]), table=st.sampled_from(["final_ui", "users_ui"]))
def test_records_fold_to_what_is_shown_through_batches_swaps_and_rollbacks(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, Any]], rows: str, table: str
) -> None:
    database = Database.open(tmp_path_factory.mktemp("waiting"))
    sources = LATEST if rows == "latest" else Settings().sources
    filling = Filling(database, Settings().model_copy(update={"sources": sources}))
    filling.swap(users=[user(1)], accounts=[account(1, 1.0)])
    before, topic = filling.tables, Topic(database, table, limit=6)
    assert before is not None
    for number, (kind, value) in enumerate(operations):
        if kind == "users":
            filling.batch(users=[user(one, age=number) for one in value])
        elif kind == "accounts":
            filling.batch(accounts=[account(one, float(number % 3)) for one in value])
        elif kind == "swap":
            before = filling.tables
            assert before is not None
            filling.swap(value, users=[user(number % 6)], accounts=[account(1, 1.0)])
        elif kind == "back":  # a lingering generation is published again
            with database.write() as cursor:
                before.publish(cursor)
        elif kind == "restart":
            held, topic = topic.table, Topic(database, table, limit=6)
            topic.table = held
        topic.step() if kind == "step" else None
        if kind == "back" and filling.tables is not None:
            topic.step()
            assert topic.rows() == shown(database, table)
            filling.publish()
    topic.step()
    assert topic.step() is None
    assert topic.rows() == shown(database, table)
    database.close()
