"""A look at the newest records of one topic: its format, its fields with their types, and what Kafka says of it.

Nothing is written or committed. Every look ends within its time, or with a TurnoutError that says what to do.
`decode/columns.py` alone decides which values fit a type; this module decides which of the fitting types is meant. A
number in quotes stays text. Up to 5 % of the values may be exceptions, which are null in their rows and stand in
`bad_records`. A field whose values are of several kinds is a string, which takes any value as its JSON text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from turnout.config import Format, Settings
from turnout.config.topic_rules import reserved, taken_topics
from turnout.decode import protobuf
from turnout.decode.columns import Day, Fraction, Moment, Structure, Whole, fit_of, json_of, key_of, text_of
from turnout.decode.exact_reader import HEADER, NULL_VALUE, reader_of, schema_id
from turnout.decode.shape import SourceShape
from turnout.errors import TurnoutError
from turnout.kafka.clients import is_compacted
from turnout.kafka.topics import TIMEOUT_SECONDS, Topics, TopicSample
from turnout.plan.control import clipped
from turnout.schemas.registry import RegisteredSchema, SchemaRegistry
from turnout.schemas.source_schemas import definition_of
from turnout_client.column_types import COLUMN_TYPES, ColumnType

MOST_RECORDS = 10_000
MOST_COLUMNS = 200
LONGEST_NAME = 200
_LEFT_OUT_SHOWN = 20
_POLICY_SECONDS = 3.0
_FORMS = {"AVRO": Format.AVRO, "PROTOBUF": Format.PROTOBUF}
_AVRO = {kind.avro: kind.name for kind in COLUMN_TYPES if kind.avro_logical is None}
_AVRO_LOGICAL = {
    "date": "date",
    **{f"{local}timestamp-{unit}": "timestamp" for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}
# By the C++ type of a field, which is the type that Python gets; those that are missing become strings.
_PROTOBUF = {1: "int32", 2: "int64", 3: "int64", 4: "decimal(20,0)", 5: "double", 6: "float", 7: "boolean"}
# Each takes the values of those before it.
_WIDER = (("int32", "int64", "decimal(20,0)", "double"), ("float", "double"), ("date", "timestamp"))
_WORDS: dict[type, str] = {
    bool: "flag",
    Whole: "whole number",
    int: "whole number",
    Fraction: "fraction",
    float: "fraction",
    Decimal: "fraction",
    str: "text",
    Day: "date",
    Moment: "time",
    bytes: "binary value",
    Structure: "object",
    dict: "object",
    list: "list",
}
_NUMBERS = frozenset({"whole number", "fraction"})
# Values of one family can have one type; those of two can only be strings.
_FAMILIES = (frozenset({"flag"}), _NUMBERS, frozenset({"text"}), frozenset({"date", "time"}))
_NEARLY_ALL = 0.95
_EXCEPTIONS_SHOWN = 3
_STRUCTURES = {"object", "list"}
# Stricter than what fits: a part number such as 1200-1-2 is no date to people.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DATE.pattern}(?:[Tt ][0-9]{{2}}:[0-9]{{2}}.*)?")
_DIGITS = 38
_TIME_NAME = re.compile(r"(?i)at$|time|date|^ts$|_ts$|stamp|since|until|created|updated|modified")
# From 2000 to 2100, in seconds.
_YEARS = (946_684_800, 4_102_444_800)
_LONGEST_SHOWN = 32


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A field of some records, the type for its column, and why."""

    name: str
    kind: str
    evidence: str
    records: int
    """How many were looked at."""
    present: int
    """How many have a value of it."""
    values: frozenset[str]
    """The values as texts."""
    nested: bool = False
    """Whether it has objects or lists."""
    exceptions: int = 0
    """How many of the values do not fit the type."""

    @property
    def exact(self) -> bool:
        """Whether its type can be a key's."""
        return ColumnType.parse(self.kind).exact


@dataclass(frozen=True, slots=True)
class TopicExample:
    """What the newest records of a topic say about it."""

    topic: str
    format: Format
    sample: TopicSample
    columns: tuple[InferredColumn, ...]
    left_out: Mapping[str, str]
    """Fields that cannot be columns, and why."""
    bad: Mapping[str, int]
    """Records that are no rows: the reason, and how many. Tombstones are among them."""
    keyed_by: tuple[str, ...] = ()
    """Columns that are Kafka's key, in all records with a key."""
    compacted: bool | None = None
    """None where Kafka did not say."""

    @property
    def tombstones(self) -> int:
        return self.bad.get(NULL_VALUE, 0)


def look_at(topic: str, settings: Settings, records: int, timeout_seconds: float = TIMEOUT_SECONDS) -> TopicExample:
    """Look at the newest `records` records of a topic of the data's cluster."""
    taken = taken_topics(settings)
    if why := reserved(topic, taken):
        raise TurnoutError("bad_example", f"topic {topic!r} {why}", "name a topic that holds records of a source")
    with closing(Topics(settings.kafka, timeout_seconds, taken)) as topics:
        sample = topics.look(topic, records)
    compacted = is_compacted(settings.kafka, topic, min(_POLICY_SECONDS, timeout_seconds))
    return example_of(topic, sample, settings, compacted=compacted)


def example_of(topic: str, sample: TopicSample, settings: Settings, *, compacted: bool | None = None) -> TopicExample:
    """What a sample says; the schema registry of the settings is asked where records name schemas."""
    if not any(value is not None for _, value in sample.records):
        only = "only tombstones" if sample.records else "no records"
        why = f" ({sample.unreadable[0]})" if sample.unreadable else ""
        raise TurnoutError("bad_example", f"topic {topic!r} has {only}{why}", "write records to it first")
    ids = [schema_id(value) for _, value in sample.records if value is not None]
    framed = {number for number in ids if number is not None}
    declared: dict[str, str] = {}
    if ids.count(None) * 2 < len(ids):
        shape, declared = _registered(topic, framed, sample, settings)
    else:
        shape = SourceShape("example", 0, "", {}, tombstones=False)
    read = reader_of(shape)
    found = [NULL_VALUE if value is None else read(value) for _, value in sample.records]
    rows = [row for row in found if not isinstance(row, str)]
    bad = Counter(reason for reason in found if isinstance(reason, str))
    names = list(declared) or list(dict.fromkeys(name for row in rows for name in row))
    usable, left_out = _usable(names, rows)
    if not usable:
        raise _useless(topic, len(sample.records) - bad[NULL_VALUE], rows, bad)
    columns = tuple(infer(name, [row.get(name) for row in rows], len(rows), declared.get(name)) for name in usable)
    keys = [key for (key, _), row in zip(sample.records, found, strict=True) if not isinstance(row, str)]
    keyed_by = tuple(column.name for column in columns if _is_key(column, keys, rows))
    return TopicExample(topic, Format(shape.form), sample, columns, left_out, bad, keyed_by, compacted)


def _registered(
    topic: str, numbers: set[int], sample: TopicSample, settings: Settings
) -> tuple[SourceShape, dict[str, str]]:
    """How records of registered schemas are read, and the columns of these schemas."""
    if settings.schema_registry is None:
        raise TurnoutError(
            "bad_example",
            f"records of topic {topic!r} begin with the id of a schema, and no registry is known",
            "add schema_registry: {url: ...} to the file",
        )
    with closing(SchemaRegistry(settings.schema_registry)) as registry:
        schemas = {number: registry.schema(number) for number in sorted(numbers)}
    kinds = {schema.kind for schema in schemas.values() if schema is not None}
    form = next((_FORMS[kind] for kind in sorted(kinds) if kind in _FORMS), None)
    if form is None:
        what = f"are {' and '.join(sorted(kinds))}" if kinds else "are not in the registry"
        ids = ", ".join(map(str, sorted(numbers)[:5]))
        raise TurnoutError(
            "bad_example",
            f"the schemas of topic {topic!r} (ids {ids}) {what}",
            "Turnout reads plain JSON, and Avro and Protobuf of the registry; name another topic",
        )
    usable, unusable = {}, {}
    for number, schema in schemas.items():
        try:
            usable[number] = definition_of(form, number, schema)
        except ValueError as error:
            unusable[number] = str(error)
    if form is Format.AVRO:
        columns = merged(_avro_columns(one) for number, one in schemas.items() if one is not None and number in usable)
    else:
        columns = merged(_messages(usable, sample))
    shape = SourceShape("example", 0, "", columns, False, form.value, usable, framed=True, unusable=unusable)
    return shape, columns


def _messages(definitions: Mapping[int, Any], sample: TopicSample) -> Iterator[dict[str, str]]:
    """The columns of each record's message: a file has several, and the record says which."""
    for _, value in sample.records:
        number = schema_id(value or b"")
        if number is not None and number in definitions:
            try:
                fields = protobuf.fields_of(definitions[number], (value or b"")[HEADER:])
            except (ValueError, IndexError):
                continue  # no record, which its reader says, too
            yield {field.name: _protobuf(field) for field in fields}


def _usable(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], dict[str, str]]:
    """The names that columns can have, and why others cannot; of too many the most frequent."""
    left_out: dict[str, str] = {}
    counts = Counter(name for row in rows for name in row)
    taken: dict[str, str] = {}
    for name in sorted(names, key=lambda name: -counts[name]):
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            left_out[name[:LONGEST_NAME]] = "is not a column name"
        elif name.startswith("_"):
            left_out[name] = "names with _ in front are Turnout's own"
        elif name.lower() in taken:
            left_out[name] = f"differs from {taken[name.lower()]} only in case"
        elif len(taken) == MOST_COLUMNS:
            left_out[name] = f"only the {MOST_COLUMNS} most frequent fields become columns"
        else:
            taken[name.lower()] = name
    kept = set(taken.values())
    # Where names are data, there may be as many as records.
    shown = dict(itertools.islice(left_out.items(), _LEFT_OUT_SHOWN))
    if more := len(left_out) - len(shown):
        shown[f"{more:,} others"] = f"for the same reasons, or beyond the {MOST_COLUMNS} most frequent fields"
    return [name for name in names if name in kept], shown


def _is_key(column: InferredColumn, keys: Sequence[bytes | None], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether Kafka's key of each record is the text of this column: only then tombstones remove its rows."""
    if not column.exact or not any(key is not None for key in keys):
        return False
    kind = "string" if column.exceptions else column.kind
    read, fit = key_of(kind), fit_of(kind)
    for key, row in zip(keys, rows, strict=True):
        value = row.get(column.name)
        if key is None:
            continue
        try:
            wanted = read(key.decode())
        except UnicodeDecodeError:
            return False
        if wanted is None or value is None or fit(value) != wanted:
            return False
    return True


def _useless(topic: str, records: int, rows: Sequence[Any], bad: Mapping[str, int]) -> TurnoutError:
    if rows:
        return TurnoutError("bad_example", f"no record of topic {topic!r} has a field", "write records with fields")
    reasons = ", ".join(f"{reason} ({count}x)" for reason, count in bad.items() if reason != NULL_VALUE)
    return TurnoutError(
        "bad_example",
        f"none of the newest {records} records of topic {topic!r} can be read: {reasons}",
        "name a topic of JSON objects, or give the registry of Avro and Protobuf (schema_registry:) by -c",
    )


def _avro_columns(schema: RegisteredSchema) -> dict[str, str]:
    """The columns of an Avro schema; none where it describes no record."""
    described: Any = json.loads(schema.text)
    is_record = isinstance(described, dict) and described.get("type") == "record"
    return {field["name"]: _avro(field["type"]) for field in described["fields"]} if is_record else {}


def _avro(kind: Any) -> str:
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        return _avro(branches[0]) if len(branches) == 1 else "string"
    if isinstance(kind, str):
        return _AVRO.get(kind, "string")
    logical, plain = kind.get("logicalType"), kind.get("type")
    if logical == "decimal" and plain in ("bytes", "fixed"):
        digits, scale = kind.get("precision"), kind.get("scale", 0)
        usable = isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits <= _DIGITS
        return f"decimal({digits},{scale})" if usable and digits else "string"
    if logical in _AVRO_LOGICAL and plain in ("int", "long"):
        return _AVRO_LOGICAL[logical]
    if logical in ("time-millis", "time-micros"):
        return "string"
    return _avro(plain) if isinstance(plain, (str, dict, list)) else "string"


def _protobuf(field: Any) -> str:
    if field.is_repeated or field.enum_type is not None:
        return "string"
    message = field.message_type
    if message is None:
        return _PROTOBUF.get(field.cpp_type, "string")
    if message.full_name == protobuf.TIMESTAMP:
        return "timestamp"
    return _protobuf(message.fields_by_name["value"]) if message.full_name in protobuf.WRAPPERS else "string"


def merged(schemas: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The columns of several schemas of one topic, with types that take the values of each."""
    found: dict[str, str] = {}
    for columns in schemas:
        for name, kind in columns.items():
            found[name] = _both(found.get(name, kind), kind)
    return found


def _both(one: str, other: str) -> str:
    for chain in _WIDER:
        if one in chain and other in chain:
            return max(one, other, key=chain.index)
    return one if one == other else "double" if {one, other} <= {"int32", "int64", "float", "double"} else "string"


def infer(name: str, values: Sequence[Any], records: int, declared: str | None = None) -> InferredColumn:
    """The column of a field whose values in `records` records are these; `declared` is its type by a schema."""
    given = [value for value in values if value is not None]
    words = Counter(_word(value) for value in given)
    kind = declared or _chosen(given, words)
    texts = frozenset(map(text_of, given))
    fit = fit_of(kind)
    fitting = _fitting(kind, given)
    exceptions = [value for value in given if fit(value) is None]
    evidence = [f"{len(given):,} of {records:,} records", *_noted(name, kind, fitting, words, len(texts))]
    if exceptions:
        evidence.append(_excepted(exceptions))
    nested = bool(words.keys() & _STRUCTURES)
    return InferredColumn(name, kind, ", ".join(evidence), records, len(given), texts, nested, len(exceptions))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def different(values: int) -> str:
    return "1 value" if values == 1 else f"{values:,} different values"


def _word(value: Any) -> str:
    return _WORDS.get(type(value), "other value")


def _fitting(kind: str, values: Sequence[Any]) -> list[Any]:
    """The values that fit a type."""
    fit = fit_of(kind)
    return [value for value in values if fit(value) is not None]


def _chosen(values: Sequence[Any], words: Counter[str]) -> str:
    """The type of nearly all values; a string where nearly all have none in common."""
    least = _NEARLY_ALL * len(values)
    for family in _FAMILIES:
        members = [value for value in values if _word(value) in family]
        if members and len(members) >= least:
            kind = _of_family(members, set(words) & family, least)
            return kind if len(_fitting(kind, members)) >= least else "string"
    return "string"


def _of_family(values: Sequence[Any], words: set[str], least: float) -> str:
    """The type of values that are all flags, numbers, texts or times; `least` is how many must fit."""
    if words == {"flag"}:
        return "boolean"
    if words <= _NUMBERS:
        return _number(values, words, least)
    if words == {"text"}:
        return _text(values, least)
    return "date" if words == {"date"} and len(_fitting("date", values)) == len(values) else "timestamp"


def _number(values: Sequence[Any], words: set[str], least: float) -> str:
    if words == {"whole number"}:
        kinds = ("int64", f"decimal({_DIGITS},0)")
        whole = next((kind for kind in kinds if len(_fitting(kind, values)) == len(values)), None)
        return whole or next((kind for kind in kinds if len(_fitting(kind, values)) >= least), "string")
    values = _fitting("double", values)
    if all(map(_keeps_digits, values)):
        return "double"
    scale = max(map(_scale, values))
    exact = f"decimal({_DIGITS},{scale})"
    return exact if 0 <= scale <= _DIGITS and _fitting(exact, values) == values else "double"


def _keeps_digits(value: Any) -> bool:
    """Whether a double shows the number as it was sent."""
    try:
        return Decimal(repr(float(value))) == Decimal(value)
    except ArithmeticError:
        return False


def _scale(value: Any) -> int:
    """How many digits after the point matter."""
    try:
        _, digits, exponent = Decimal(value).as_tuple()
    except ArithmeticError:
        return -1
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, -exponent - zeros) if isinstance(exponent, int) else -1


def _text(values: Sequence[str], least: float) -> str:
    dates = [value for value in values if _DATE.fullmatch(value)]
    if len(_fitting("date", dates)) >= least:
        return "date"
    moments = [value for value in values if _MOMENT.fullmatch(value)]
    return "timestamp" if len(_fitting("timestamp", moments)) >= least else "string"


def _noted(name: str, kind: str, given: Sequence[Any], words: Counter[str], distinct: int) -> list[str]:
    if not given:
        return ["never a value: its type is a guess"]
    if kind == "boolean":
        return []
    known = ColumnType.parse(kind)
    if known.number or known.time:
        return [_range(kind, given), *_hint(name, kind, given)]
    if kind == "string" and (len(words) > 1 or words.keys() - {"text", "binary value"}):
        kinds = ", ".join(counted(count, word) for word, count in words.most_common())
        return [f"{kinds}: kept as JSON text"]
    return [different(distinct)]


def _excepted(values: Sequence[Any]) -> str:
    """How many values are exceptions, and the most frequent of them."""
    frequent = Counter(clipped(json_of(value), _LONGEST_SHOWN) for value in values).most_common(_EXCEPTIONS_SHOWN)
    more = ", ..." if sum(times for _, times in frequent) < len(values) else ""
    shown = ", ".join(text if times == 1 else f"{text} ({times:,}x)" for text, times in frequent)
    return f"{len(values):,} do not fit: {shown}{more}"


def _range(kind: str, given: Sequence[Any]) -> str:
    fit = fit_of(kind)
    least, most = (clipped(text_of(chosen(given, key=fit)), _LONGEST_SHOWN) for chosen in (min, max))
    return least if least == most else f"{least} to {most}"


def _hint(name: str, kind: str, given: Sequence[Any]) -> list[str]:
    if kind != "int64" or not _TIME_NAME.search(name):
        return []
    if all(_YEARS[0] <= int(value) < _YEARS[1] for value in given):
        return ["seconds since 1970? then timestamp shows them as times"]
    if all(_YEARS[0] <= int(value) // 1000 < _YEARS[1] for value in given):
        return ["milliseconds since 1970? timestamp takes seconds, or texts such as 2026-01-31T12:00:00Z"]
    return []
