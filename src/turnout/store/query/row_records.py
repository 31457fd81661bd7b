"""Why a row is there: the records that it is made of, and those of the same key that were not chosen, with the reason.

All of it is of one moment, and only what the store holds. What is in a record, and older records of a source with
`rows: latest`, only Kafka has: `swap/explainer.py` adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, cast

import pyarrow as pa
from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer

from turnout.decode.exact_reader import BINARY, shown
from turnout.errors import TurnoutError
from turnout.plan.answers import Answer
from turnout.plan.filter_values import parse_value, show
from turnout.plan.joins import Join
from turnout.plan.offsets import LIFE_BITS, OFFSET_BITS
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, Layout, SourceTable, ViewTable
from turnout.plan.where import ROW
from turnout.store.batch_rows import hash_sql
from turnout.store.database import Readable, arrow_table
from turnout.store.identity import ties
from turnout.store.query.windows import Snapshot, open_snapshot, split_name
from turnout_client.column_types import ColumnType
from turnout_client.iso_times import iso_text, parse_moment

Parameters = tuple[object, ...]
_Milliseconds = Annotated[
    int,
    BeforeValidator(lambda given: parse_moment(given) // 1000 if isinstance(given, str) else given),
    PlainSerializer(iso_text, return_type=str),
]
"""Milliseconds since 1970, which are a text in JSON."""

MOST_ROWS = 10
"""As many rows of a key are explained."""
MOST_OTHERS = 20
"""As many records that were not chosen are told of each row."""

_BAD = "bad_records"
_PARTITION_MASK = (1 << LIFE_BITS - OFFSET_BITS) - 1
_OF_ROW = f"{ROW} = CAST(? AS VARCHAR)"
_MADE = "outcome IN ('applied', 'rolled_back', 'candidate')"
_FIRST = "ORDER BY _id LIMIT 1"


class Reason(StrEnum):
    """Why a record is in no row."""

    OLDER = "older"
    OTHER_PARTITION = "other partition is newer"
    TOMBSTONE = "tombstone"
    NO_MATCH = "no match"


@dataclass(frozen=True, slots=True)
class WhyQuestion:
    """Which rows of a table are meant: one by its id, those of a key, or bad records by the place of their record."""

    table: str
    row: str | None = None
    key: str | None = None
    place: tuple[str, int, int] | None = None


class WhyHeader(Answer):
    name: str
    value: str | None


class WhyRecord(Answer, json_schema_serialization_defaults_required=True):
    """A record. `key`, `headers` and `value` are null where they were not read: viewers do not get them."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: _Milliseconds = Field(validation_alias="timestamp", serialization_alias="timestamp")
    reason: Reason | None = None
    """Why it is in no row; null where it is in one."""
    deleted: bool = Field(default=False, exclude=True)
    """Whether its topic was deleted since: what is at its place now is another record."""
    key: str | None = None
    headers: list[WhyHeader] | None = None
    value: str | None = None
    """As text, or as `base64:...` where it is none; the first 10,000 characters."""
    bytes: int | None = None
    """The size of the value."""
    clipped: bool = False
    """Whether the value is longer."""
    gone: bool | None = None
    """Whether the record is gone from Kafka; null where Kafka was not asked."""

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True, eq=False)
class OlderSearch:
    """What the store does not keep: the records of a key before the stored one of each partition."""

    source: SourceTable
    key: pa.Scalar
    ends: dict[tuple[str, int], int]


class WhyRow(Answer, frozen=False, json_schema_serialization_defaults_required=True):
    """A row and its records; `row` is null for a key that has no row."""

    row: str | None
    records: list[WhyRecord] = Field(default_factory=list)
    others: list[WhyRecord] = Field(default_factory=list)
    complete: bool = True
    """Whether `others` has all records of the key that were not chosen."""
    searches: list[InstanceOf[OlderSearch]] = Field(default_factory=list, exclude=True)

    def add_others(self, records: Sequence[WhyRecord], *, complete: bool) -> None:
        """Add records that were not chosen; the newest of all are told."""
        found = sorted([*self.others, *records], key=lambda record: (record.timestamp_ms, record.place), reverse=True)
        self.others = found[:MOST_OTHERS]
        self.complete = self.complete and complete and len(found) <= MOST_OTHERS


class WhyMessage(Answer):
    """A control message; its `requester` is `configuration` where the file alone made the generation."""

    requester: str
    request_id: str | None
    ts: datetime
    partition: int | None
    offset: int | None
    raw: str | None


class Explanation(Answer):
    """Rows with their records; `total` counts all rows of the key, `notes` say what is missing."""

    table: str
    generation: int
    version: int
    key: str | None
    """The column of the key; null for `bad_records`."""
    message: WhyMessage | None
    """The control message that made the generation; null where it is no longer stored."""
    total: int
    rows: list[WhyRow]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Side:
    """A source of a row: the SQL of the value that its records have in a column, and the `_id` of the one chosen."""

    source: SourceTable
    column: str
    value: str
    parameters: Parameters = ()
    chosen: int | None = None
    ids: str = ""
    """The SQL of the ids that rows of a view have; empty where all records that are shown are in rows."""
    takes_newest: bool = True
    every: bool = False
    """Whether the row may be made of all records that are shown."""


def explain(store: Readable, question: WhyQuestion, layout_of: Callable[[int], Layout]) -> Explanation:
    """The records of the rows; `layout_of` has the tables of a generation. TurnoutError where there is no such row."""
    with open_snapshot(store) as snapshot:
        return _Explaining(snapshot, question, layout_of).answer()


class _Explaining:
    """One question, over one snapshot."""

    def __init__(self, snapshot: Snapshot, question: WhyQuestion, layout_of: Callable[[int], Layout]) -> None:
        self._snapshot = snapshot
        self._question = question
        self._table = snapshot.table(question.table)
        self._layout = layout_of(self._table.generation)
        self._notes: list[str] = []
        self._searches: dict[tuple[object, ...], OlderSearch | None] = {}
        self._lives: dict[tuple[str, int], int] = {}

    def answer(self) -> Explanation:
        name, known = split_name(self._table.name)[0], [one for one in self._layout.tables if one != "join_quality"]
        if name not in known:
            message = f"the rows of {show(name)} are not made of records of topics"
            raise TurnoutError("unknown_table", message, f"tables: {', '.join(known)}")
        lives = self._rows(f'SELECT topic, "partition", life FROM {self._table.schema}.lives')
        self._lives = {(topic, partition): life for topic, partition, life in lives}
        kind = None if name == _BAD else self._layout.of(name)
        total, rows = self._explained(kind) if kind else self._bad()
        return Explanation(
            table=self._table.name,
            **self._snapshot.position(self._table).as_json(),
            key=kind.key if kind else None,
            message=self._message(),
            total=total,
            rows=rows,
            notes=self._notes,
        )

    # -- rows

    def _found(self, columns: Sequence[str], condition: str, parameters: Sequence[object]) -> tuple[int, list[Any]]:
        names, order = ", ".join([*columns, ROW]), ", ".join(ties(self._table.hidden))
        found = f"SELECT {names} FROM {self._table.source} WHERE {condition} ORDER BY {order} LIMIT {MOST_ROWS}"
        return self._snapshot.count(self._table, condition, list(parameters)), self._rows(found, parameters)

    def _explained(self, kind: SourceTable | ViewTable) -> tuple[int, list[WhyRow]]:
        asked, key, value, parameters = self._question, quoted(kind.key), "", cast(Parameters, ())
        ids = ("_id",) if isinstance(kind, SourceTable) else kind.ids
        if asked.row is not None:
            total, found = self._found(["_rowid", *ids], _OF_ROW, (asked.row,))
            value = f"(SELECT {key} FROM {self._table.source} WHERE _rowid = {found[0][0]})" if found else ""
        else:
            column = self._table.columns[kind.key]
            value, parameters = f"CAST(? AS {column.duckdb})", (_key_value(asked, kind.key, column),)
            total, found = self._found(["_rowid", *ids], f"{key} = {value}", parameters)
        rows = [self._row(row, self._sides(kind, of_row, value, parameters)) for _, *of_row, row in found]
        if not rows and asked.row is None:
            rows = [self._row(None, self._sides(kind, None, value, parameters))]
        if not any(row.records or row.others for row in rows):
            raise self._unknown()
        return total, rows

    def _bad(self) -> tuple[int, list[WhyRow]]:
        asked = self._question
        condition, parameters = _OF_ROW, cast(Parameters, (asked.row,))
        if asked.place is not None:
            condition, parameters = 'topic = ? AND "partition" = ? AND "offset" = ?', asked.place
        elif asked.row is None:
            raise _bad_question(f"{_BAD} has no key", "give row, or topic, partition and offset")
        total, found = self._found(("_id", "topic", "epoch_ms(ts)"), condition, parameters)
        if not found:
            raise self._unknown()
        sources = {source.topic: source for source in reversed(self._layout.sources)}
        records = [(row, self._record(sources[topic], number, moment)) for number, topic, moment, row in found]
        return total, [WhyRow(row=row, records=[record]) for row, record in records]

    def _unknown(self) -> TurnoutError:
        asked, table = self._question, self._table.name
        what = f"row {show(asked.row)}" if asked.row is not None else f"row and no record of the key {show(asked.key)}"
        if asked.place:
            what = "record of topic {}, partition {}, offset {}".format(*map(show, asked.place))
        hint = "it may have changed or gone since; read the table again"
        return TurnoutError("unknown_row", f"{table} has no {what}", hint)

    # -- the sources of a row

    def _sides(
        self, kind: SourceTable | ViewTable, ids: Sequence[int | None] | None, value: str, parameters: Parameters
    ) -> list[_Side]:
        """The sources of a row with these ids; of a key without a row (None), those that have the key."""
        if isinstance(kind, SourceTable):
            return [_Side(kind, kind.key, value, parameters, ids[0] if ids else None)]
        if kind.own_sql:
            self._note(f"{kind.table} has its own SQL: a row may depend on any of the records of its key")
            return [_Side(source, kind.key, value, parameters, every=True) for source in kind.sources]
        view, sides = f"{self._table.schema}.{quoted(kind.table)}", []
        for number, (source, name) in enumerate(zip(kind.sources, kind.ids, strict=True)):
            chosen = ids[number] if ids else None
            column, takes_newest, may_hide = kind.key, number > 0 and not kind.pairs, number > 0
            if isinstance(kind, ChainView) and number:
                step = kind.chain.steps[number - 1]
                column, takes_newest, may_hide = step.right_on, not step.pairs, step.join is Join.SEMI
                if ids is not None:
                    value, parameters = self._met(kind, number, ids), ()
                elif not (step.fills and step.left_on == kind.key):
                    continue  # the key is not that of its records
            side = _Side(source, column, value, parameters, chosen, f"SELECT {name} FROM {view}", takes_newest)
            if ids and chosen is None and may_hide:
                # A semi join hides the record that it matches. Under other joins, a row without one has none to match.
                hidden = self._rows(f"{self._ranked(side)} SELECT _id FROM ranked WHERE shown AND rank = 1", parameters)
                side = replace(side, chosen=hidden[0][0], takes_newest=True) if hidden else side
            if number:
                self._note_left_out(kind.table if kind.by_key else f"{kind.table}.{source.source}", side)
            sides.append(side)
        return sides

    def _met(self, view: ChainView, number: int, ids: Sequence[int | None]) -> str:
        """The SQL of the value that the right rows of a step have for this row."""
        own = (number, view.chain.steps[number - 1].right_on)
        found = [
            f"(SELECT {quoted(column)} FROM {self._stored(view.sources[at])} WHERE _id = {ids[at]})"
            for at, column in ([own] if ids[number] is not None else view.chain.origins[number - 1])
            if ids[at] is not None
        ]
        return f"CAST(coalesce({', '.join([*found, 'NULL', 'NULL'])}) AS {view.sources[number].columns[own[1]].duckdb})"

    def _note_left_out(self, name: str, side: _Side) -> None:
        left_out = (
            f"SELECT key FROM {self._table.schema}.left_out WHERE name = ? AND key = CAST({side.value} AS VARCHAR)"
        )
        for (key,) in self._rows(left_out, (name, *side.parameters)):
            self._note(f"{name} leaves {show(key)} out: it has more rows than max_rows_per_key allows")

    def _note(self, text: str) -> None:
        self._notes += [] if text in self._notes else [text]

    # -- the records of a source

    def _row(self, row: str | None, sides: Sequence[_Side]) -> WhyRow:
        made, others = WhyRow(row=row), list[WhyRecord]()
        for side in sides:
            same = "SELECT _id FROM same"
            in_rows = f"_id IN (SELECT * FROM ({side.ids}) AS ids(_id) WHERE _id IN ({same}))" if side.ids else "shown"
            of_row = "shown" if side.every else f"_id = {-1 if side.chosen is None else side.chosen}"
            made.records += [record.model_copy(update={"reason": None}) for record in self._records(side, of_row)]
            others += self._records(side, f"NOT ({in_rows} OR {of_row})")
            if (search := self._search(side)) is not None:
                made.searches.append(search)
        made.add_others(others, complete=len(made.records) <= MOST_OTHERS)
        return made

    def _ranked(self, side: _Side) -> str:
        """The SQL of the stored records of a side's value: `rank` 1 is the newest of those that are shown."""
        source = side.source
        deleted, shown = ("_deleted", "_shown") if source.latest else ("false", "true")
        equals = "=" if side.chosen is None else "IS NOT DISTINCT FROM"
        return f"""
            WITH wanted AS (SELECT {side.value} AS value),
            same AS (SELECT _id, _ts, {deleted} AS deleted, {shown} AS shown FROM {self._stored(source)}, wanted
                WHERE {source.hash_name(side.column)} = {hash_sql("value")} AND {quoted(side.column)} {equals} value),
            placed AS (SELECT *, _id < max(_id) OVER (PARTITION BY shown, _id >> {OFFSET_BITS}) AS below FROM same),
            ranked AS (SELECT *, row_number() OVER (PARTITION BY shown ORDER BY below, _ts DESC, _id DESC) AS rank
                FROM placed)"""

    def _records(self, side: _Side, condition: str) -> list[WhyRecord]:
        """The records of a side under a condition, newest first, and one more than are told."""
        no_match = "rank = 1" if side.takes_newest else "true"
        reason = f"""CASE WHEN deleted THEN '{Reason.TOMBSTONE}' WHEN NOT shown THEN '{Reason.OTHER_PARTITION}'
            WHEN {no_match} THEN '{Reason.NO_MATCH}' WHEN below THEN '{Reason.OLDER}'
            ELSE '{Reason.OTHER_PARTITION}' END"""
        found = f"SELECT _id, _ts, {reason} FROM ranked WHERE {condition} ORDER BY _ts DESC, _id DESC"
        rows = self._rows(f"{self._ranked(side)} {found} LIMIT {MOST_OTHERS + 1}", side.parameters)
        return [self._record(side.source, number, moment, Reason(why)) for number, moment, why in rows]

    def _record(self, source: SourceTable, number: int, moment: int, reason: Reason | None = None) -> WhyRecord:
        partition, offset = number >> OFFSET_BITS & _PARTITION_MASK, number & (1 << OFFSET_BITS) - 1
        deleted = number >> LIFE_BITS < self._lives.get((source.topic, partition), 0)
        if deleted and reason is Reason.OTHER_PARTITION:
            reason = Reason.OLDER
        return WhyRecord(
            source=source.source,
            topic=source.topic,
            partition=partition,
            offset=offset,
            timestamp_ms=moment,
            reason=reason,
            deleted=deleted,
        )

    def _search(self, side: _Side) -> OlderSearch | None:
        """What is left to look for in Kafka: a table with `rows: latest` keeps one record of each partition."""
        source, asked = side.source, (side.source.source, side.value, side.parameters)
        if not source.latest or side.column != source.key:
            return None
        if asked not in self._searches:
            stored = self._rows(f"{self._ranked(side)} SELECT _id, _ts FROM same", side.parameters)
            places = [self._record(source, number, moment) for number, moment in stored]
            ends = {(one.topic, one.partition): one.offset for one in places if not one.deleted}
            key = arrow_table(self._snapshot.cursor, f"SELECT {side.value} AS value", side.parameters)
            self._searches[asked] = OlderSearch(source, key["value"][0], ends) if ends else None
        return self._searches[asked]

    def _message(self) -> WhyMessage | None:
        """The control message that made the generation: as it came, or what the history has of it."""
        number = self._table.generation
        raw = 'SELECT requester, requestId, ts, "partition", "offset", raw FROM turnout.control_raw'
        swap = "SELECT requester, requestId, ts, NULL, controlOffset, NULL FROM turnout.swaps"
        found = self._rows(f"{raw} WHERE {_MADE} AND regexp_matches(detail, '^generation {number}\\b') {_FIRST}")
        found = found or self._rows(f"{swap} WHERE {_MADE} AND generation = {number} {_FIRST}")
        return WhyMessage(**dict(zip(WhyMessage.model_fields, found[0], strict=True))) if found else None

    def _stored(self, source: SourceTable) -> str:
        return f"{self._table.schema}.{quoted(source.table)}"

    def _rows(self, text: str, parameters: Sequence[object] = ()) -> list[Any]:
        return self._snapshot.cursor.execute(text, list(parameters)).fetchall()


def _key_value(question: WhyQuestion, name: str, column: ColumnType) -> object:
    if question.key is None:
        raise _bad_question(f"topic, partition and offset are for {_BAD}", "give row or key")
    try:
        return parse_value(question.key, column, f"key: {name}")
    except TurnoutError as error:
        raise _bad_question(error.message, f"{name} is {column.described}") from None


def _bad_question(message: str, hint: str) -> TurnoutError:
    return TurnoutError("bad_parameter", message, hint)


def readable_text(data: bytes, most: int) -> str:
    """The first bytes of a record as `bad_records` has them; a character that is cut is left out."""
    cuts = range(4) if len(data) > most else range(1)
    texts = [shown(data[: most - cut]) for cut in cuts] if data else [""]
    return next((text for text in texts if not text.startswith(BINARY)), texts[0])
