"""Protobuf: a record's bytes -> its fields, by the files that describe its messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnout.decode.columns import Moment
from turnout_client.iso_times import SECOND

Definition = tuple[bytes, str, tuple[int, ...] | None]
"""A set of file descriptors, the file that has the message, and where in it; None where records say that themselves."""

WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that stand for their one value."""
TIMESTAMP = "google.protobuf.Timestamp"
_LONGEST_VARINT = 10
_MOST_INDEXES = 100
"""A message can be nested no deeper than this."""


def reader(definition: Definition, columns: Sequence[str]) -> Callable[[bytes], Mapping[str, Any] | str]:
    """What reads records of these messages; ValueError where the files cannot be used."""
    main, indexes = _file(definition), definition[2]
    of_message = functools.cache(functools.partial(_message, main, tuple(columns)))

    def read(payload: bytes) -> Mapping[str, Any] | str:
        place, start = (indexes, 0) if indexes is not None else message_indexes(payload)
        message, fields = of_message(place)
        found = message.FromString(payload[start:])
        return {column: value(found) for column, value in fields}

    return read


def fields_of(definition: Definition, payload: bytes) -> list[Any]:
    """The descriptors of the fields of a record's message; it raises as a reader does."""
    indexes = definition[2]
    return list(_descriptor(_file(definition), message_indexes(payload)[0] if indexes is None else indexes).fields)


def _file(definition: Definition) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    described, name, _ = definition
    try:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
            pool.Add(file)
        return pool.FindFileByName(name)
    except Exception as error:  # what the library says of files that are none
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Read which message of its file a record is, and where its bytes begin: varints, a lone 0 for the first message.

    IndexError where the payload ends before they do, ValueError where they are none.
    """
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError("no such message")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag, and where the next begins."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise ValueError("a number of more than 64 bits")


def _message(main: Any, columns: tuple[str, ...], indexes: tuple[int, ...]) -> tuple[Any, list[tuple[str, Any]]]:
    """The class of a message, and how each column is taken from it; a column without a field is left out."""
    from google.protobuf import message_factory

    found = _descriptor(main, indexes)
    names = {field.camelcase_name: field for field in found.fields} | {field.name: field for field in found.fields}
    fields = [(column, _value(names[column])) for column in columns if column in names]
    return message_factory.GetMessageClass(found), fields


def _descriptor(main: Any, indexes: tuple[int, ...]) -> Any:
    if min(indexes) < 0:
        raise IndexError("no such message")
    found = list(main.message_types_by_name.values())[indexes[0]]
    for index in indexes[1:]:
        found = found.nested_types[index]
    return found


def _value(field: Any) -> Callable[[Any], Any]:
    """How a field is taken from its message; None where it has presence and is not there."""
    single = _single(field)
    name = field.name
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            item = _single(field.message_type.fields_by_name["value"])
            return lambda message: {key: item(value) for key, value in getattr(message, name).items()}
        return lambda message: [single(item) for item in getattr(message, name)]
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _single(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name in WRAPPERS:
        return lambda message: message.value
    return _moment if field.message_type.full_name == TIMESTAMP else _structure


def _moment(message: Any) -> Any:
    if 0 <= message.nanos < 1_000_000_000:
        return Moment(message.seconds * SECOND + message.nanos // 1000)
    return f"{message.seconds} s {message.nanos} ns"


def _structure(message: Any) -> Any:
    from google.protobuf import json_format, text_format

    try:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except Exception:  # a time beyond the year 9999, an Any of an unknown type: there is no JSON of it
        return text_format.MessageToString(message, as_one_line=True)
