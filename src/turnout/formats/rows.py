"""Records of a format -> rows and faults, many at a time: on the driver as Python lists, in workers as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.formats.avro import reader as avro_reader
from turnout.formats.protobuf import reader as protobuf_reader
from turnout.formats.values import arrow_type, fit_of, text_of

LEFT_OVER = -1
_SHOWN_IN_REASON = 80
_ALWAYS_FIT = {"string": str, "boolean": bool}
"""Values of these types need no look."""
_HEADER = 5

NO_SCHEMA_ID = "no schema id: the first byte is not 0"
NAMES = {"avro": "Avro", "protobuf": "Protobuf"}

Fault = tuple[str | None, str]
"""The field, or None for the whole record, and the reason."""
Read = Callable[[bytes], Mapping[str, Any] | str]
"""A record's fields, or why it has none; it may raise."""
Definition = Any
"""What a schema is to the reader of its format; it can be pickled."""


@dataclass(slots=True)
class Rows:
    """One entry for each record: the values of each column, whether it is a row, and what is wrong with it."""

    columns: dict[str, list[Any]]
    whole: list[bool] = field(default_factory=list)
    faults: list[list[Fault] | None] = field(default_factory=list)

    def table(self, kinds: Mapping[str, str]) -> pa.Table:
        """The rows as Arrow, those that are none as nulls."""
        return pa.table({name: pa.array(self.columns[name], arrow_type(kind)) for name, kind in kinds.items()})


def schema_id(value: bytes) -> int | None:
    """The id of a record in the wire format of schema registries: a zero, four bytes of id, the payload."""
    return int.from_bytes(value[1:_HEADER], "big") if len(value) >= _HEADER and value[0] == 0 else None


def open_reader(form: str, definition: Definition, columns: Sequence[str]) -> Read:
    """What reads payloads of one schema; ValueError where the schema is of no use."""
    return (avro_reader if form == "avro" else protobuf_reader)(definition, columns)


def plain(form: str, read: Read) -> Read:
    """Reads records that are payloads and nothing else."""
    return _told(read, f"not valid {NAMES[form]}")


def framed(form: str, readers: Mapping[int, Read | str]) -> Read:
    """Reads records in the wire format, by the readers of their ids; in place of one, why it cannot be had."""
    told = {
        number: read if isinstance(read, str) else _told(read, f"not valid {NAMES[form]} of schema {number}")
        for number, read in readers.items()
    }

    def read(value: bytes) -> Mapping[str, Any] | str:
        number = schema_id(value)
        if number is None:
            return NO_SCHEMA_ID
        found = told.get(number, f"schema {number} is not known")
        return found if isinstance(found, str) else found(value[_HEADER:])

    return read


def _told(read: Read, reason: str) -> Read:
    def tell(payload: bytes) -> Mapping[str, Any] | str:
        try:
            return read(payload)
        except Exception:  # whatever a library says of bytes that are no record
            return reason

    return tell


def read_all(values: Iterable[bytes], kinds: Mapping[str, str], read: Read) -> Rows:
    """Each record as a row, with nulls where a field is missing or does not fit its column."""
    rows = Rows({name: [] for name in kinds})
    columns = [(name, kind, _ALWAYS_FIT.get(kind), fit_of(kind), rows.columns[name]) for name, kind in kinds.items()]
    for value in values:
        record = read(value)
        if isinstance(record, str):
            for column in rows.columns.values():
                column.append(None)
            rows.whole.append(False)
            rows.faults.append([(None, record)])
            continue
        wrong: list[Fault] | None = None
        for name, kind, own, fit, column in columns:
            given = record.get(name)
            if given is None or type(given) is own:
                column.append(given)
                continue
            fitting = fit(given)
            column.append(fitting)
            if fitting is None:
                reason = f"expected {kind}, got {text_of(given)[:_SHOWN_IN_REASON]}"
                wrong = [*(wrong or ()), (name, reason)]
        rows.whole.append(True)
        rows.faults.append(wrong)
    return rows


@dataclass(frozen=True)
class Wanted:
    """A source in workers: its number, the types of its columns, and the schemas that are known by now."""

    number: int
    form: str
    kinds: Mapping[str, str]
    schemas: Mapping[int, Definition]
    framed: bool


def opened(sources: Sequence[Wanted]) -> Callable[[pa.RecordBatch], dict[int, pa.Table | pa.RecordBatch]]:
    """For a worker: the rows of each source of a topic with `_id` and `_ts`; records that are odd as LEFT_OVER."""
    readers = []
    for source in sources:
        reads = {i: open_reader(source.form, found, list(source.kinds)) for i, found in source.schemas.items()}
        readers.append((source, framed(source.form, reads) if source.framed else plain(source.form, reads[0])))

    def read(records: pa.RecordBatch) -> dict[int, pa.Table | pa.RecordBatch]:
        values = records["value"].to_pylist()
        good = np.array([value is not None for value in values], dtype=bool)
        there = [value for value in values if value is not None]
        found: dict[int, pa.Table] = {}
        places = np.flatnonzero(good)
        for source, reader in readers:
            rows = read_all(there, source.kinds, reader)
            good[places] &= np.array([not fault for fault in rows.faults], dtype=bool)
            found[source.number] = rows.table(source.kinds)
        kept = pa.array(good)
        times = {name: records[name].filter(kept) for name in ("_id", "_ts")}
        parts: dict[int, pa.Table | pa.RecordBatch] = {LEFT_OVER: records.filter(pa.array(~good))}
        for number, table in found.items():
            part = table.filter(pa.array(good[places]))
            parts[number] = part.append_column("_id", times["_id"]).append_column("_ts", times["_ts"])
        return parts

    return read
