"""Sources and views for topics that were sampled, each with its evidence.

Pure: it gets examples and the sources that are there already, and decides. `by_example.py` writes it down. Of the
columns that can be the key, one that other topics have too comes first, since views join sources by their keys; then
the column that is Kafka's key; then names and values that look like those of a key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from turnout.config import SourceSettings
from turnout.example.topic_example import InferredColumn, TopicExample, counted, different
from turnout.plan.joins import Join, key_steps, view_columns

FIRST_VIEW = "final_ui"
MOST_READ_FROM_START = 20_000_000
"""Records in all topics; with more, reading them all takes minutes, and is left to the reader."""
_ID_NAME = re.compile(r"(?i:(?:^|[_\-. ])(?:id|key|uuid|guid|code))$|[a-z0-9](?:Id|ID|Key|Uuid|UUID|Guid|Code)$")
_UNLIKELY_KINDS = ("boolean", "date", "timestamp")
_LONG_TEXT = 64
_NEARLY_ALL = 0.9
_SHARED, _SHARED_NAME, _KAFKAS, _ID, _IN_ALL, _OF_TOPIC, _UNLIKELY = 6.0, 2.5, 4.0, 2.0, 1.0, 0.5, 6.0


KnownSources = Mapping[str, SourceSettings]
"""The sources of the file that is there: a topic that shares the key of one can be joined with it."""


def likely_key(example: TopicExample, others: Mapping[str, TopicExample], known: KnownSources) -> InferredColumn:
    """The likely key of a topic, with the evidence for that; `others` are the topics of the other sources, by name."""
    candidates = [column for column in example.columns if column.exact] or list(example.columns)
    ordered = sorted(candidates, key=lambda column: -_score(column, example, others, known))
    first, *rest = ordered
    return replace(first, evidence=", ".join(_evidence(first, rest, example, others, known)))


def shared(column: InferredColumn, others: Mapping[str, TopicExample]) -> Iterator[tuple[str, InferredColumn, int]]:
    """The other topics that have a field of this name, that column of theirs, and how many of its values are here."""
    for name, other in others.items():
        for theirs in other.columns:
            if theirs.name == column.name and theirs.exact and not theirs.nested:
                yield name, theirs, len(column.values & theirs.values)


def _score(
    column: InferredColumn, example: TopicExample, others: Mapping[str, TopicExample], known: KnownSources
) -> float:
    like_an_id = _is_id(column.name, example.topic)
    points = _ID * like_an_id + _uniqueness(column)
    points += _IN_ALL * (column.present == column.records) + _OF_TOPIC * _named_after(column.name, example.topic)
    points += _KAFKAS * (column.name in example.keyed_by)
    found = list(shared(column, others))
    if like_an_id or max(_uniqueness(one) for one in (column, *(theirs for _, theirs, _ in found))) >= _NEARLY_ALL:
        if any(overlap for *_, overlap in found) or any(one.key == column.name for one in known.values()):
            points += _SHARED
        elif found and like_an_id:
            points += _SHARED_NAME
    unlikely = column.kind in _UNLIKELY_KINDS or column.nested or not column.present
    return points - _UNLIKELY * unlikely - any(len(value) > _LONG_TEXT for value in column.values)


def _uniqueness(column: InferredColumn) -> float:
    return len(column.values) / column.present if column.present else 0.0


def _is_id(name: str, topic: str) -> bool:
    return bool(_ID_NAME.search(name)) or (_named_after(name, topic) and name.lower().endswith("id"))


def _named_after(name: str, topic: str) -> bool:
    """Whether a word of the topic begins the name, as `users` does `userId`."""
    words = [word.lower().removesuffix("s") for word in re.findall(r"[A-Za-z]{3,}", topic)]
    return any(name.lower().startswith(word) for word in words)


def _evidence(
    column: InferredColumn,
    rest: Sequence[InferredColumn],
    example: TopicExample,
    others: Mapping[str, TopicExample],
    known: KnownSources,
) -> Iterator[str]:
    whole = column.present == column.records
    yield "in all records" if whole else f"in {column.present:,} of {column.records:,} records"
    yield different(len(column.values))
    for name, _, overlap in shared(column, others):
        yield f"{overlap:,} of them also in {name}" if overlap else f"none of them in {name}"
    if same := [name for name, source in known.items() if source.key == column.name]:
        yield f"also the key of {' and '.join(same)}"
    if column.name in example.keyed_by:
        yield "Kafka's key"
    if not column.exact:
        yield "no field is exact enough for a key, so this one is used as text"
    near = [one.name for one in rest if _is_id(one.name, example.topic) or one.name in example.keyed_by]
    if near:
        yield f"or: {', '.join(near[:3])}"


@dataclass(frozen=True, slots=True)
class Source:
    """A source for a topic. `key` is one of its columns, and `rows` what is kept, each with the evidence for that."""

    name: str
    table: str
    example: TopicExample
    columns: tuple[InferredColumn, ...]
    key: InferredColumn
    rows: tuple[str, str]


@dataclass(frozen=True, slots=True)
class View:
    """A left join of sources that share a key."""

    name: str
    left: str
    right: tuple[str, ...]
    on: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    sources: tuple[Source, ...]
    views: tuple[View, ...]

    @property
    def alone(self) -> list[Source]:
        """Sources that no view has."""
        joined = {name for view in self.views for name in (view.left, *view.right)}
        return [source for source in self.sources if source.name not in joined]

    @property
    def start(self) -> tuple[str, str]:
        """The start of reading, and the reason for it."""
        records = sum(source.example.sample.offsets for source in self.sources)
        if records > MOST_READ_FROM_START:
            return "latest", f"only records that arrive from now on; earliest: all {records:,} records of the topics"
        return "earliest", f"all {records:,} records of the topics; latest: only records that arrive from now on"


def suggest(
    examples: Sequence[TopicExample],
    known: KnownSources = MappingProxyType({}),
    tables: Collection[str] = (),
) -> Suggestion:
    """Sources for the topics, and views over those that share a key; `known` and `tables` are there already."""
    named = dict(zip(source_names([example.topic for example in examples], known), examples, strict=True))
    keys = {
        name: likely_key(example, {other: one for other, one in named.items() if other != name}, known)
        for name, example in named.items()
    }
    taken = {table.lower() for table in tables}
    sources = []
    for name, example in named.items():
        table = _free(f"{name}_ui", taken)
        key = replace(keys[name], kind=_kind_of_key(name, keys, known))
        columns = tuple(_retyped(one, key.kind) if one.name == key.name else one for one in example.columns)
        sources.append(Source(name, table, example, columns, key, _rows(example, key.name)))
    return Suggestion(tuple(sources), tuple(_views(sources, known, taken)))


def source_names(topics: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Names of sources for topics, without what all the topics have in common: `users`, `accounts` for `users-north`,
    `accounts-north`. A source is read from one topic today and from another tomorrow.
    """
    words = [re.findall(r"[A-Za-z0-9]+", topic) or ["topic"] for topic in topics]
    for end in (-1, 0):
        while len(words) > 1 and min(map(len, words)) > 1 and len({one[end] for one in words}) == 1:
            for one in words:
                del one[end]
    taken = {name.lower() for name in known}
    return [_free(re.sub("^(?=[0-9])", "topic_", "_".join(one)), taken) for one in words]


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; taken from now on."""
    free, number = name, 2
    while free.lower() in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free.lower())
    return free


def _kind_of_key(name: str, keys: Mapping[str, InferredColumn], known: KnownSources) -> str:
    """The type of a source's key: one that all sources with this key can have, so that views can join them."""
    own = keys[name]
    same = [key for other, key in keys.items() if key.name == own.name and other != name]
    fixed = {one.columns[one.key].name for one in known.values() if one.key == own.name}
    if not fixed and any(column.exceptions for column in (own, *same)):
        return "string"  # a key that does not fit its type is null, and a null key matches nothing
    kinds = {own.kind, *(column.kind for column in same), *fixed}
    if len(kinds) == 1 and own.exact:
        return own.kind
    if kinds <= {"int32", "int64"} and fixed <= {"int64"}:
        return "int64"
    meets = bool(fixed) or any(own.values & column.values for column in same)
    # A number in a string column is its text, so that both meet.
    return "string" if not own.exact or (meets and fixed <= {"string"}) else own.kind


def _retyped(column: InferredColumn, kind: str) -> InferredColumn:
    if column.kind == kind:
        return column
    if column.exceptions:
        return replace(column, kind=kind, exceptions=0, evidence=f"{column.evidence} as {column.kind}, all as text")
    why = f"{column.kind} by its values, {kind} as the key of other sources"
    return replace(column, kind=kind, evidence=f"{column.evidence}, {why if column.exact else 'as text'}")


def _rows(example: TopicExample, key: str) -> tuple[str, str]:
    """Whether every record is a row, or the newest of each key."""
    if key in example.keyed_by:
        compacted = "the topic is compacted, and " if example.compacted else ""
        return "latest", f"{compacted}Kafka's key is {key}; all: every record is a row"
    if example.compacted and not example.keyed_by:
        return "latest", f"the topic is compacted; Kafka's key is not {key}, so tombstones remove nothing"
    gone = f" ({counted(example.tombstones, 'tombstone')} would be bad)" if example.tombstones else ""
    return "all", f"every record is a row{gone}; latest: the newest of each {key}"


def _views(sources: Sequence[Source], known: KnownSources, taken: set[str]) -> Iterator[View]:
    groups: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        groups.setdefault((source.key.name, source.key.kind), []).append(source)
    joinable: dict[tuple[str, str], list[str]] = {place: [] for place in groups}
    for name, one in known.items():
        joinable.get((one.key, one.columns[one.key].name), []).append(name)
    found = [(place, group) for place, group in groups.items() if len(group) + len(joinable[place]) > 1]
    for place, (left, *rights) in found:
        columns = {right.name: tuple(column.name for column in right.columns) for right in rights}
        columns |= {name: tuple(known[name].columns) for name in joinable[place]}
        on = place[0]
        while columns and _clash(left, columns, on):
            columns.popitem()
        if columns:
            names = tuple(columns)
            only = len(found) == 1 and FIRST_VIEW not in taken
            name = _free(FIRST_VIEW if only else f"{left.name}_{names[0]}_ui", taken)
            yield View(name, left.name, names, on, _matches(left, [one for one in rights if one.name in columns]))


def _clash(left: Source, rights: Mapping[str, tuple[str, ...]], on: str) -> bool:
    """Whether the view would have two columns of one name."""
    columns = {left.name: [column.name for column in left.columns], **rights}
    names = view_columns(columns, key_steps(rights, on, Join.LEFT))
    return len({name.lower() for name in names}) < len(names)


def _matches(left: Source, rights: Sequence[Source]) -> str:
    ours = left.key.values
    parts = [f"{len(ours & right.key.values):,} are in {right.name}" for right in rights]
    return f"of the {counted(len(ours), 'value')} in {left.name}, {', '.join(parts)}" if parts else ""
