"""Why a row is there, as JSON: what the store knows of its records (`row_records.py`), with what Kafka still has.

Kafka is asked by a client of its own for each question, within a few seconds. Where it does not answer, the answer has
what the store knows, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow.compute as pc
from confluent_kafka import Message

from turnout.config.configuration import Configuration
from turnout.errors import TurnoutError
from turnout.kafka.topics import MOST_SEARCHED, Place, Topics, place_of
from turnout.plan.tables import Layout
from turnout.schemas.record_decoder import RecordDecoder, raw
from turnout.schemas.source_schemas import schemas_of
from turnout.store.database import Readable
from turnout.store.ledger import Ledger
from turnout.store.query.row_records import (
    MOST_OTHERS,
    Explanation,
    OlderSearch,
    Reason,
    WhyHeader,
    WhyQuestion,
    WhyRecord,
    explain,
    readable_text,
)
from turnout.swap.generations import Generation

KAFKA_SECONDS = 4.0
"""The records of rows, and the search for older ones, may take as long each."""
MOST_CHARACTERS = 10_000
_MOST_HEADERS = 50
_SPARE_BYTES = 4_000
"""So much more is searched for secrets than is shown: one that is cut would not be found."""

Contents = dict[Place, dict[str, Any] | str | None]
"""What records hold, None where Kafka has one no more, or why one was not read."""


@dataclass(slots=True)
class Explainer:
    """Explains rows of the living generations, on any thread."""

    _generations: Callable[[], Sequence[Generation]]
    _configuration: Configuration
    _ledger: Ledger

    def rows(self, store: Readable, question: WhyQuestion) -> Explanation:
        """The rows and the places of their records; reads the store only."""
        return explain(store, question, self._layout)

    def _layout(self, generation: int) -> Layout:
        for one in self._generations():
            if one.number == generation:
                return one.tables.layout
        message = f"generation {generation} is not ready yet, or is gone"
        raise TurnoutError("starting", message, "try again in some seconds")

    def answer(self, found: Explanation, *, raw_values: bool) -> dict[str, Any]:
        """The rows as JSON, with older records, and with `raw_values` what records hold; it may block for seconds."""
        contents: Contents = {}
        searches = dict.fromkeys(search for row in found.rows for search in row.searches)
        steps = [partial(self._add_older, found, search) for search in searches]
        if raw_values:
            steps.append(partial(self._read_contents, found, contents))
        else:
            found.notes.append("keys, headers and values of records are for operators")
        for step in steps:
            try:
                with closing(Topics(self._configuration.settings.kafka, KAFKA_SECONDS)) as topics:
                    step(topics)
            except TurnoutError as error:
                found.notes.append(f"not all records were read: {self._ledger.hide(str(error))}")
                if error.code == "kafka_unreachable":
                    break
        return self.as_json(found, contents)

    def as_json(self, found: Explanation, contents: Contents) -> dict[str, Any]:
        """The rows as JSON, with the contents of the records that were read."""
        rows = [
            row.model_copy(
                update={
                    "records": [_with_content(record, contents) for record in row.records[:MOST_OTHERS]],
                    "others": [_with_content(record, contents) for record in row.others],
                }
            )
            for row in found.rows
        ]
        return found.model_copy(update={"rows": rows}).model_dump()

    def _read_contents(self, found: Explanation, contents: Contents, topics: Topics) -> None:
        records = [record for row in found.rows for record in (*row.records, *row.others) if not record.deleted]
        moments = {record.place: record.timestamp_ms for record in records}

        def content(message: Message) -> dict[str, Any] | None:
            # Of another time is another record: its topic was deleted and created again.
            return self._content(message) if message.timestamp()[1] == moments[place_of(message)] else None

        contents |= topics.records(moments, content)
        for (topic, partition, offset), reason in contents.items():
            if isinstance(reason, str):
                found.notes.append(f"{topic}, partition {partition}, offset {offset}: {reason}")

    def _content(self, message: Message) -> dict[str, Any]:
        value, headers = message.value(), cast(list[tuple[str, bytes | None]], message.headers() or [])
        return {
            "key": self._text(message.key()),
            "headers": [
                WhyHeader(name=self._text(name.encode()) or "", value=self._text(data))
                for name, data in headers[:_MOST_HEADERS]
            ],
            "value": self._text(value),
            "bytes": len(value or b""),
            "clipped": len(value or b"") > MOST_CHARACTERS,
            "gone": False,
        }

    def _text(self, data: bytes | None) -> str | None:
        """What bytes say, without secrets; its beginning where they are many."""
        if data is None:
            return None
        text: str = self._ledger.hide(readable_text(data, MOST_CHARACTERS + _SPARE_BYTES))
        return text if len(data) <= MOST_CHARACTERS else text[:MOST_CHARACTERS]

    def _add_older(self, found: Explanation, search: OlderSearch, topics: Topics) -> None:
        """Add the records that `rows: latest` did not keep, as far as they are found."""
        older: list[WhyRecord] = []
        schemas = schemas_of(self._configuration.settings) if search.source.form != "json" else {}
        decoder = RecordDecoder([search.source], schemas)

        def look(messages: list[Message]) -> bool:
            older.extend(_matching(search, decoder, messages))
            return len(older) > MOST_OTHERS

        complete = topics.search_back(search.ends, look)
        if not complete and len(older) <= MOST_OTHERS:
            limits = f"{MOST_SEARCHED:,} records of a partition and {KAFKA_SECONDS:g} s are the limits"
            found.notes.append(f"the search for older records of '{search.source.topic}' was cut: {limits}")
        for row in found.rows:
            if search in row.searches:
                row.add_others(older, complete=complete)


def _matching(search: OlderSearch, decoder: RecordDecoder, messages: list[Message]) -> list[WhyRecord]:
    """The records of the key among others."""
    source = search.source
    values, keys = [message.value() for message in messages], [message.key() for message in messages]
    rows = decoder.decode(raw(values, keys=keys)).rows[0]
    key = rows[source.key]
    rows = rows.filter(pc.equal(key, search.key.cast(key.type)) if search.key.is_valid else pc.is_null(key))
    found = zip(rows["_id"].to_pylist(), rows["_deleted"].to_pylist(), strict=True)
    return [
        WhyRecord(
            source=source.source,
            **dict(zip(("topic", "partition", "offset"), place_of(messages[number]), strict=True)),
            timestamp_ms=messages[number].timestamp()[1],
            reason=Reason.TOMBSTONE if deleted else Reason.OLDER,
        )
        for number, deleted in found
    ]


def _with_content(record: WhyRecord, contents: Contents) -> WhyRecord:
    content = contents.get(record.place, "")
    if not isinstance(content, dict):
        content = {"gone": True if record.deleted or content is None else None}
    return record.model_copy(update=content)
