"""Records one by one, whatever their format -> rows and faults: the exact function, and its collector."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from turnout.decode import avro, json_exact, protobuf
from turnout.decode.columns import fit_of, json_of, key_of
from turnout.decode.shape import FAULTS, Definition, SourceShape

NULL_VALUE = "null value"
NO_SCHEMA_ID = "no schema id: the first byte is not 0"
BINARY = "base64:"
"""Stands before the value of a bad record that is no text."""
HEADER = 5
_SHOWN_IN_REASON = 80
_SHOWN_AGAIN = 10_000
"""Characters of a record's value that its further faults have: hundreds of its fields may have one."""
_CUT = "... (cut; the row before has all of it)"
_ALWAYS_FIT = {"string": str, "boolean": bool}
"""Values of these types need no look."""

Read = Callable[[bytes], Mapping[str, Any] | str]
"""A record's fields, or why it has none."""
Record = tuple[int, int, bytes | None, bytes | None]
"""`_id`, `_ts`, key and value."""


def schema_id(value: bytes) -> int | None:
    """The id of a record in the wire format of schema registries: a zero, four bytes of id, the payload."""
    return int.from_bytes(value[1:HEADER], "big") if len(value) >= HEADER and value[0] == 0 else None


def open_reader(form: str, definition: Definition, columns: Sequence[str]) -> Read:
    """What reads payloads of one schema; ValueError where the schema cannot be used. The reader may raise."""
    return (avro.reader if form == "avro" else protobuf.reader)(definition, columns)


def reader_of(source: SourceShape) -> Read:
    """What reads the records of a source; it does not raise."""
    columns = list(source.columns)
    if source.form == "json":
        return json_exact.reader(columns)
    name = source.form.capitalize()
    opened = {number: open_reader(source.form, one, columns) for number, one in source.schemas.items()}
    if not source.framed:
        return _safe(opened[0], f"not valid {name}")
    known: dict[int, Read | str] = {**source.unusable}
    known |= {number: _safe(read, f"not valid {name} of schema {number}") for number, read in opened.items()}

    def read(value: bytes) -> Mapping[str, Any] | str:
        number = schema_id(value)
        if number is None:
            return NO_SCHEMA_ID
        found = known.get(number, f"schema {number} is not known")
        return found if isinstance(found, str) else found(value[HEADER:])

    return read


def _safe(read: Read, reason: str) -> Read:
    def read_or_reason(payload: bytes) -> Mapping[str, Any] | str:
        try:
            return read(payload)
        except Exception:  # libraries raise anything for bytes that are no record
            return reason

    return read_or_reason


class Faults:
    """Collects the faults of records, over the sources of a batch."""

    def __init__(self) -> None:
        self._found: list[tuple[Any, ...]] = []

    def add(self, source: int, record: Record, field: str | None, reason: str, text: str | None) -> None:
        number, time, key, value = record
        kept = (key, value) if field is None else (None, None)
        self._found.append((source, number, time, field, reason, text, field is None, *kept))

    def table(self) -> pa.Table | None:
        if not self._found:
            return None
        columns = zip(*self._found, strict=True)
        return pa.table([pa.array(items, of.type) for items, of in zip(columns, FAULTS, strict=True)], schema=FAULTS)


class ExactReader:
    """Reads the records of one source one by one, exactly."""

    def __init__(self, number: int, source: SourceShape) -> None:
        self._number = number
        self._source = source
        self._read = reader_of(source)
        self._key = key_of(source.columns[source.key])
        self._fits = [(name, kind, _ALWAYS_FIT.get(kind), fit_of(kind)) for name, kind in source.columns.items()]

    def read(self, records: Iterable[Record], faults: Faults) -> pa.Table | None:
        """The rows of these records; None where there are none."""
        ids: list[int] = []
        times: list[int] = []
        deleted: list[bool] = []
        lists: dict[str, list[Any]] = {name: [] for name in self._source.columns}
        columns = [(*fit, lists[fit[0]]) for fit in self._fits]
        for record in records:
            number, time, key, value = record
            if value is None:
                removed = self._removed(key)
                if removed is None:
                    faults.add(self._number, record, None, NULL_VALUE, None)
                    continue
                for name, values in lists.items():
                    values.append(removed if name == self._source.key else None)
            else:
                found = self._read(value)
                if isinstance(found, str):
                    faults.add(self._number, record, None, found, self._shown(value))
                    continue
                text: str | None = None
                for name, kind, own, fit, values in columns:
                    given = found.get(name)
                    if given is None or type(given) is own:
                        values.append(given)
                        continue
                    fitting = fit(given)
                    values.append(fitting)
                    if fitting is None:
                        text = self._shown(value) if text is None else _clipped(text)
                        reason = f"expected {kind}, got {json_of(given)[:_SHOWN_IN_REASON]}"
                        faults.add(self._number, record, name, reason, text)
            ids.append(number)
            times.append(time)
            deleted.append(value is None)
        if not ids:
            return None
        columns_found = [*lists.values(), ids, times, *([deleted] if self._source.tombstones else [])]
        schema = self._source.schema
        return pa.table([pa.array(v, f.type) for v, f in zip(columns_found, schema, strict=True)], schema=schema)

    def _removed(self, key: bytes | None) -> Any:
        """The key of the row that a tombstone removes; None where it removes none."""
        if not self._source.tombstones or key is None:
            return None
        try:
            return self._key(key.decode())
        except UnicodeDecodeError:
            return None

    def _shown(self, value: bytes) -> str:
        return value.decode(errors="replace") if self._source.form == "json" else shown(value)


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN_AGAIN + len(_CUT) else text[:_SHOWN_AGAIN] + _CUT


def shown(value: bytes) -> str:
    """A bad record for people: as text where it is one, else as base64."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    readable = text and all(c.isprintable() or c in "\t\r\n" for c in text)
    return text if readable else BINARY + base64.b64encode(value).decode()
