"""The mirror and its changes against a model of the server's table, through everything that can happen on the way."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lengths import MIRROR_EXAMPLES
from turnout_client.changes import MAX_EVENTS, MAX_ROWS, ChangesSubscription, Delta
from turnout_client.events import Changes
from turnout_client.live import Live
from turnout_client.messages import Snapshot, server_message

COLUMNS = [{"name": "n", "type": "int64"}]
IDS = [f"r{n}" for n in range(8)]

Rows = dict[str, list[int]]


class Table:
    """A server's table: how it is, how it was at every position, and what led from each position to the next."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.generation, self.version = 1, 1
        self.past: dict[tuple[int, int], Rows] = {(1, 1): {}}
        self.log: dict[tuple[int, int], dict[str, Any]] = {}

    def change(self, edits: dict[str, int | None]) -> dict[str, Any]:
        insert = {i: [n] for i, n in edits.items() if n is not None and i not in self.rows}
        update = {i: [n] for i, n in edits.items() if n is not None and i in self.rows}
        delete = [i for i, n in edits.items() if n is None and i in self.rows]
        self.rows = {i: row for i, row in {**self.rows, **insert, **update}.items() if i not in delete}
        since, self.version = self.version, self.version + 1
        parts = {"insert": _listed(insert), "update": _listed(update), "delete": delete}
        message = self._message("changes") | {"since": since} | parts
        self.log[self.generation, since] = message
        return self._kept(message)

    def swap(self, rows: Rows) -> None:
        self.rows, self.generation, self.version = rows, self.generation + 1, 1
        self._kept(self._message("current"))

    def snapshot(self, cuts: int) -> list[dict[str, Any]]:
        """All rows in parts."""
        size = max(1, len(self.rows) // (cuts + 1) or 1)
        ids = list(self.rows)
        slices = [ids[start : start + size] for start in range(0, len(ids), size)] or [[]]
        head = self._message("snapshot") | {"reason": "behind", "columns": COLUMNS}
        parts = [_listed({i: self.rows[i] for i in part}) for part in slices]
        return [head | part | {"last": part is parts[-1]} for part in parts]

    def answer(self, resume: dict[str, int] | None) -> list[dict[str, Any]]:
        """What the server says to a request."""
        if resume is None or resume["generation"] != self.generation:
            return self.snapshot(2)
        later = [self.log[self.generation, since] for since in range(resume["version"], self.version)]
        return later or [self._message("current")]

    def _message(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "id": "1", "table": "t", "generation": self.generation, "version": self.version}

    def _kept(self, message: dict[str, Any]) -> dict[str, Any]:
        self.past[self.generation, self.version] = dict(self.rows)
        return message


def not_connected(events: int = MAX_EVENTS, rows: int = MAX_ROWS) -> ChangesSubscription:
    changes = ChangesSubscription(Live("http://127.0.0.1:9", {}), "t")
    changes._max_events, changes._max_rows = events, rows
    return changes


class Viewer:
    """A subscription that is not connected, its consumer, and what must be true of both at every moment."""

    def __init__(self, table: Table, events: int = MAX_EVENTS, rows: int = MAX_ROWS) -> None:
        self.table = table
        self.changes = not_connected(events, rows)
        self.copy: Rows = {}
        self.ask()

    def ask(self) -> None:
        self.hear(self.table.answer(self.changes._request().get("resume")))

    def hear(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            server_message.validate_python(message)
            fits = self.changes._receive(message)
            self.check_mirror()
            if not fits:
                self.ask()
                return

    def check_mirror(self) -> None:
        assert self.changes._pending_rows == sum(len(change) for change in self.changes._pending)
        now = self.changes.mirror.snapshot()
        if now.generation:
            assert dict(now._values) == self.table.past[now.generation, now.version]

    def collect(self) -> bool:
        make = self.changes._collect()
        if make is None:
            return False
        event = make()
        self.apply(event)
        assert self.copy == self.table.past[event.generation, event.version]
        return True

    def apply(self, event: Changes) -> None:
        if event.snapshot:
            self.copy = {}
        assert not event.inserted.keys() & self.copy.keys()
        assert event.updated.keys() <= self.copy.keys()
        assert event.deleted <= self.copy.keys()
        self.copy |= {i: [row["n"]] for i, row in {**event.inserted, **event.updated}.items()}
        self.copy = {i: row for i, row in self.copy.items() if i not in event.deleted}


def _listed(rows: Rows) -> dict[str, Any]:
    return {"ids": list(rows), "rows": list(rows.values())}


EDITS = st.dictionaries(st.sampled_from(IDS), st.none() | st.integers(0, 3), max_size=4)
ROWS = st.dictionaries(st.sampled_from(IDS), st.lists(st.integers(0, 3), min_size=1, max_size=1))
STEPS = st.one_of(
    st.tuples(st.just("change"), EDITS),
    st.tuples(st.just("lost"), EDITS),
    st.tuples(st.just("again"), st.integers(1, 3)),
    st.tuples(st.just("behind"), st.integers(0, 3)),
    st.tuples(st.just("broken off"), st.integers(0, 3)),
    st.tuples(st.just("swap"), ROWS),
    st.tuples(st.just("reconnect"), st.none()),
    st.tuples(st.just("collect"), st.integers(1, 5)),
)


def step(viewer: Viewer, sent: list[dict[str, Any]], kind: str, given: Any) -> list[dict[str, Any]]:
    """One thing that happens; gives what the server sent so far."""
    table = viewer.table
    if kind in ("change", "lost"):
        new = [table.change(given)]
    elif kind == "again":
        new = sent[-given:]
    elif kind == "behind":
        new = table.snapshot(given)
    elif kind == "broken off":
        new = table.snapshot(given)[:-1]
    elif kind == "swap":
        table.swap(given)
        new = table.snapshot(1)
    elif kind == "reconnect":
        viewer.ask()
        return []
    else:
        for _ in range(given):
            viewer.collect()
        return sent
    if kind != "lost":
        viewer.hear(new)
    return [*sent, *(message for message in new if message["type"] == "changes")]


@settings(deadline=None, max_examples=MIRROR_EXAMPLES)
@given(st.lists(STEPS, max_size=40), st.integers(1, 4), st.integers(1, 12))
def test_mirror_and_consumer_have_exactly_the_servers_table(steps: list[Any], events: int, rows: int) -> None:
    viewer = Viewer(Table(), events, rows)
    sent: list[dict[str, Any]] = []
    for kind, what in steps:
        sent = step(viewer, sent, kind, what)
    viewer.ask()
    assert dict(viewer.changes.mirror.snapshot()._values) == viewer.table.rows
    while viewer.collect():
        pass
    assert viewer.copy == viewer.table.rows


@given(st.lists(EDITS, min_size=1, max_size=6), ROWS)
def test_changes_that_are_merged_lead_to_the_same_table(edits: list[Any], start: Rows) -> None:
    table = Table()
    table.swap(dict(start))
    merged, *later = [Delta.of(table.change(one)) for one in edits]
    for one in later:
        merged.absorb(one)
    rows = {i: row for i, row in start.items() if i not in merged.deleted}
    assert not merged.inserted.keys() & start.keys()
    assert merged.updated.keys() | merged.deleted <= start.keys()
    assert not merged.updated.keys() & merged.deleted
    assert rows | merged.inserted | merged.updated == table.rows


def test_events_wait_one_by_one_within_the_bounds_and_become_one_beyond() -> None:
    viewer = Viewer(Table(), events=2, rows=100)
    viewer.collect()
    viewer.hear([viewer.table.change({"r1": 1}), viewer.table.change({"r1": 2})])
    assert [viewer.collect(), viewer.collect(), viewer.collect()] == [True, True, False]
    viewer.hear([viewer.table.change({"r2": n}) for n in range(4)])
    make = viewer.changes._collect()
    assert make is not None
    # The first three became one: the row that came and changed has come, once.
    assert (make().version, make().inserted, make().updated) == (6, {"r2": {"n": 2}}, {})
    assert viewer.changes._collect() is not None
    assert viewer.changes._collect() is None


def test_change_with_more_rows_than_the_table_is_told_as_all_rows() -> None:
    viewer = Viewer(Table(), events=1, rows=2)
    viewer.hear([viewer.table.change(dict.fromkeys(IDS, 1))])
    viewer.collect()
    viewer.hear([viewer.table.change({i: None}) for i in IDS[:6]])
    make = viewer.changes._collect()
    assert make is not None and make().snapshot and list(make().inserted) == IDS[6:]


def test_consumer_that_never_looks_costs_no_memory_for_changes() -> None:
    viewer = Viewer(Table())
    viewer.hear([viewer.table.change({"r1": n}) for n in range(50)])
    assert not viewer.changes._pending
    assert viewer.collect() and not viewer.collect()


def test_parts_from_before_a_reconnect_are_not_mixed_with_those_after() -> None:
    before, after = Table(), Table()
    before.change({"r1": 1, "r2": 2})
    after.change({"r3": 3})  # another store, at the same position
    changes = not_connected()
    changes._receive(before.snapshot(1)[0])
    changes._forget_position()
    assert "resume" not in changes._request()
    changes._receive(after.snapshot(0)[0])
    assert changes.mirror.rows == {"r3": {"n": 3}}


def test_snapshot_of_the_tests_is_one_of_the_protocol() -> None:
    assert isinstance(server_message.validate_python(Table().snapshot(0)[0]), Snapshot)
