"""The tables of the store that no generation owns: status row, log lines, control messages, swaps, and their plans.

Each method is one short transaction, or takes the cursor of one that publishes several things together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import duckdb

from turnout.config.secrets import hidden
from turnout.plan.control import ApplyRequest
from turnout.plan.plan import Plan
from turnout.plan.sql_text import quoted
from turnout.plan.times import moment_sql, now_milliseconds
from turnout.store.database import Database, arrow_table, first_row, next_version, scalar
from turnout_client.control_fields import topic_field

T = TypeVar("T")

_ADD_MESSAGE = f"""
INSERT INTO turnout.control_raw (
    _id, ts, "partition", "offset", requester, raw, detail, _milliseconds, _arrived)
SELECT coalesce(max(_id), 0) + 1, {moment_sql("CAST($moment AS BIGINT)")}, $partition, $offset, $requester, $raw,
    $refused, $moment, now()
FROM turnout.control_raw
HAVING count(*) FILTER (
    coalesce(_milliseconds, epoch_ms(ts)) = $moment AND "partition" = $partition AND "offset" = $offset) = 0
AND NOT EXISTS (
    FROM turnout.control_places WHERE milliseconds = $moment AND "partition" = $partition AND "offset" = $offset)
RETURNING _id
"""


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """What a restart needs to know of a generation."""

    generation: int
    plan: Plan
    layout: str
    """A text that changes when the columns, keys or row modes of the configuration do."""
    start_offsets: str
    target_offsets: str


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """The generation that waits to be published, and since when."""

    generation: int
    since_ms: int
    """Milliseconds since 1970."""
    config: str | None = None
    """The file that is put in force with it, if an apply made it."""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A control message as it came: from a topic with partition and offset, or from a surface without them."""

    raw: str | None
    requester: str
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    refused: str | None = None
    """Why it cannot be followed, where that is not to be seen in `raw`."""
    number: int = 0
    """Its own, once the store has it."""
    apply: ApplyRequest | None = None
    """The apply that it is, with the file as the store keeps it: without secrets, and empty where it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRecord:
    """One row of the history, in the order of its columns."""

    generation: int
    before: str
    after: str
    requester: str
    request_id: str | None
    control_offset: int | None
    source_offsets: str = "{}"
    build_seconds: float = 0.0
    catch_up_seconds: float = 0.0
    publish_seconds: float = 0.0
    outcome: str
    detail: str = ""
    sources: str = "{}"
    """For each source how many rows were kept and how many records were read, as JSON."""


class Ledger:
    """The shared tables of the store. None of their texts has one of the `secrets`."""

    def __init__(self, database: Database, sources: Sequence[str], secrets: Collection[str] = ()) -> None:
        self.database = database
        self._secrets = secrets
        with database.write() as cursor:
            self.make_status(cursor, sources)

    def hide(self, tree: T) -> T:
        """A text, or a tree of JSON, with the secrets masked."""
        masked: T = hidden(tree, self._secrets) if self._secrets else tree
        return masked

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        with self.database.read() as cursor:
            return cursor.execute(sql).fetchall()

    def make_status(self, cursor: duckdb.DuckDBPyConnection, sources: Iterable[str]) -> None:
        """The status row has a column for each source, so it is made anew when the sources have changed."""
        topics = [topic_field(source) for source in sources]
        wanted = [*topics, "joinType", "lastApplied", "generation", "state", "lag", "requestId"]
        known = cursor.execute(
            "SELECT column_name FROM duckdb_columns() WHERE schema_name = 'turnout' "
            "AND table_name = 'orchestrator_status' AND column_name <> '_id' ORDER BY column_index"
        ).fetchall()
        if [name for (name,) in known] != wanted:
            texts = ", ".join(f"{quoted(name)} VARCHAR" for name in [*topics, "joinType", "lastApplied"])
            cursor.execute(
                f"CREATE OR REPLACE TABLE turnout.orchestrator_status (_id BIGINT, {texts}, "
                "generation INTEGER, state VARCHAR, lag BIGINT, requestId VARCHAR)"
            )
            cursor.execute("INSERT INTO turnout.orchestrator_status (_id, generation, state) VALUES (0, 0, 'starting')")
        cursor.execute("CREATE OR REPLACE VIEW main.orchestrator_status AS FROM turnout.orchestrator_status")

    def log(self, level: str, message: str) -> None:
        with self.database.write() as cursor:
            cursor.execute(
                "INSERT INTO turnout.orchestrator_logs "
                "SELECT coalesce(max(_id), 0) + 1, ?, ?, ? FROM turnout.orchestrator_logs",
                [datetime.now(UTC), level, self.hide(message)],
            )
            next_version(cursor, "turnout", "orchestrator_logs")

    def set_status(self, cursor: duckdb.DuckDBPyConnection | None = None, **values: Any) -> None:
        """Change fields of the status row in place."""
        changes = ", ".join(f"{quoted(name)} = ?" for name in values)
        with nullcontext(cursor) if cursor else self.database.write() as writing:
            writing.execute(f"UPDATE turnout.orchestrator_status SET {changes}", list(values.values()))
            next_version(writing, "turnout", "orchestrator_status")

    def status(self) -> dict[str, Any]:
        with self.database.read() as cursor:
            rows = arrow_table(cursor, "SELECT * EXCLUDE (_id) FROM turnout.orchestrator_status")
        row: dict[str, Any] = rows.to_pylist()[0]
        return row

    def plan_values(self, plan: Plan) -> dict[str, Any]:
        """The fields of the status row that tell a plan."""
        topics = {topic_field(source): topic for source, topic in plan.topics.items()}
        joins = dict.fromkeys(join.value for join in plan.joins.values())
        return {**topics, "joinType": ", ".join(joins)}

    def add_messages(self, messages: Sequence[MessageRecord]) -> list[MessageRecord | None]:
        """Keep messages before anything is done with them; None for one that was there already."""
        with self.database.write() as cursor:
            kept = [self._add_message(cursor, message) for message in messages]
            next_version(cursor, "turnout", "control_raw")
        return kept

    def _add_message(self, cursor: duckdb.DuckDBPyConnection, message: MessageRecord) -> MessageRecord | None:
        # The time is part of its identity: a control topic that was made anew counts its offsets from 0 again.
        moment = now_milliseconds() if message.timestamp_ms is None else message.timestamp_ms
        identity: dict[str, object] = {"moment": moment, "partition": message.partition, "offset": message.offset}
        given = {"requester": message.requester, "raw": message.raw, "refused": self.hide(message.refused)}
        row = first_row(cursor, _ADD_MESSAGE, {**identity, **given})
        if row and message.apply is not None:
            cursor.execute("INSERT INTO turnout.applies VALUES (?, ?, ?, ?, ?, ?)", [row[0], *astuple(message.apply)])
        return replace(message, number=row[0]) if row else None

    def open_messages(self) -> list[MessageRecord]:
        """Messages without an outcome, oldest first."""
        rows = self._read(
            'SELECT raw, requester, "partition", "offset", _milliseconds, detail, _id, config, request_id, '
            "expected_generation, dry_run, force FROM turnout.control_raw LEFT JOIN turnout.applies ON message = _id "
            "WHERE outcome IS NULL ORDER BY _id"
        )
        applies = [None if row[7] is None else ApplyRequest(*row[7:]) for row in rows]
        return [replace(MessageRecord(*row[:7]), apply=apply) for row, apply in zip(rows, applies, strict=True)]

    def control_positions(self) -> dict[int, int]:
        """The next offset to read of each partition of the control topic."""
        rows = self._read(
            'SELECT "partition", max("offset") + 1 FROM (SELECT "partition", "offset" FROM turnout.control_raw '
            'UNION ALL SELECT "partition", "offset" FROM turnout.control_places) '
            'WHERE "partition" IS NOT NULL GROUP BY 1'
        )
        return dict(rows)

    def settle(
        self, cursor: duckdb.DuckDBPyConnection, message: int, request_id: str | None, outcome: str, detail: str
    ) -> None:
        """Give a message its one outcome. From now on it is only looked at, so secrets are masked in it."""
        settled = first_row(
            cursor,
            "UPDATE turnout.control_raw SET outcome = ?, detail = ?, requestId = ? "
            "WHERE _id = ? AND outcome IS NULL RETURNING raw",
            [outcome, self.hide(detail), request_id, message],
        )
        assert settled is not None, f"message {message} has an outcome already"
        cursor.execute("DELETE FROM turnout.applies WHERE message = ?", [message])
        if (raw := self.hide(settled[0])) != settled[0]:
            cursor.execute("UPDATE turnout.control_raw SET raw = ? WHERE _id = ?", [raw, message])
        next_version(cursor, "turnout", "control_raw")

    def unacknowledged(self) -> list[tuple[int, dict[str, Any]]]:
        """Outcomes that were not sent yet: id, and what to send."""
        names = ("requestId", "outcome", "detail", "requester", "partition", "offset")
        rows = self._read(
            f"SELECT _id, {', '.join(map(quoted, names))} FROM turnout.control_raw "
            "WHERE outcome IS NOT NULL AND _acknowledged IS NULL ORDER BY _id"
        )
        return [(row[0], dict(zip(names, row[1:], strict=True))) for row in rows]

    def acknowledged(self, messages: Sequence[int]) -> None:
        with self.database.write() as cursor:
            cursor.execute(
                "UPDATE turnout.control_raw SET _acknowledged = true WHERE _id IN (SELECT unnest(?::BIGINT[]))",
                [list(messages)],
            )

    def add_swap(self, cursor: duckdb.DuckDBPyConnection, swap: SwapRecord) -> None:
        cursor.execute(
            "INSERT INTO turnout.swaps SELECT coalesce(max(_id), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? "
            "FROM turnout.swaps",
            [datetime.now(UTC), *map(self.hide, astuple(swap))],
        )
        next_version(cursor, "turnout", "swaps")

    def add_generation(self, cursor: duckdb.DuckDBPyConnection, record: GenerationRecord) -> None:
        plan, offsets = json.dumps(record.plan.to_json()), (record.start_offsets, record.target_offsets)
        values = [record.generation, plan, record.layout, *offsets, record.plan.sections]
        cursor.execute("INSERT INTO turnout.generations VALUES (?, ?, ?, ?, ?, ?)", values)

    def remove_generation(self, cursor: duckdb.DuckDBPyConnection, generation: int) -> None:
        cursor.execute("DELETE FROM turnout.generations WHERE generation = ?", [generation])

    def generations(self) -> dict[int, GenerationRecord]:
        rows = self._read(
            "SELECT generation, plan, sections, layout, start_offsets, target_offsets FROM turnout.generations"
        )
        return {row[0]: GenerationRecord(row[0], _plan(*row[1:3]), *row[3:]) for row in rows}

    def next_generation(self, cursor: duckdb.DuckDBPyConnection) -> int:
        """A number that no generation had, also none that failed."""
        return scalar(cursor, "UPDATE turnout.counter SET generation = generation + 1 RETURNING generation")

    def upcoming_generation(self) -> int:
        """The number that `next_generation` will give."""
        [(last,)] = self._read("SELECT generation FROM turnout.counter")
        return int(last) + 1

    def published(self) -> tuple[int, Plan | None]:
        """The published generation, and the plan that was published before it."""
        [(generation, *previous)] = self._read("SELECT generation, previous, previous_sections FROM turnout.published")
        return generation, _plan(*previous) if previous[0] else None

    def set_previous(self, cursor: duckdb.DuckDBPyConnection, plan: Plan | None) -> None:
        values = [json.dumps(plan.to_json()), plan.sections] if plan else [None, None]
        cursor.execute("UPDATE turnout.published SET previous = ?, previous_sections = ?", values)

    def candidate(self) -> CandidateRecord | None:
        [row] = self._read("SELECT candidate, candidate_since, candidate_config FROM turnout.published")
        return CandidateRecord(*row) if row[0] is not None else None

    def set_candidate(self, cursor: duckdb.DuckDBPyConnection, record: CandidateRecord | None) -> None:
        values = astuple(record) if record else (None, None, None)
        cursor.execute("UPDATE turnout.published SET candidate = ?, candidate_since = ?, candidate_config = ?", values)


def _plan(text: str, sections: str | None) -> Plan:
    return replace(Plan.from_json(json.loads(text)), sections=sections or "")
