"""The column of a topic that is probably its key, and the evidence for it.

A key that other topics have too comes first, since views join sources by their keys; then the column that is Kafka's
key; then names and values that look like those of a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turnout.example.inference import InferredColumn
from turnout.example.topic_example import TopicExample

_ID_NAME = re.compile(r"(?i:(?:^|[_\-. ])(?:id|key|uuid|guid|code))$|[a-z0-9](?:Id|ID|Key|Uuid|UUID|Guid|Code)$")
_UNLIKELY_KINDS = ("boolean", "date", "timestamp")
_LONG_TEXT = 64
_NEARLY_ALL = 0.9
_SHARED, _SHARED_NAME, _KAFKAS, _ID, _IN_ALL, _OF_TOPIC, _UNLIKELY = 6.0, 2.5, 4.0, 2.0, 1.0, 0.5, 6.0


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source of the file that is there: a topic that shares its key can be joined with it."""

    key: str
    kind: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """The likely key of a topic."""

    column: InferredColumn
    evidence: str


def likely_key(example: TopicExample, others: Mapping[str, TopicExample], known: Mapping[str, KnownSource]) -> Key:
    """The column with the most evidence; `others` are the other topics by the names of their sources."""
    candidates = [column for column in example.columns if column.exact] or list(example.columns)
    ordered = sorted(candidates, key=lambda column: -_score(column, example, others, known))
    first, *rest = ordered
    return Key(first, ", ".join(_evidence(first, rest, example, others, known)))


def shared(column: InferredColumn, others: Mapping[str, TopicExample]) -> Iterator[tuple[str, InferredColumn, int]]:
    """The other topics that have a field of this name, that column of theirs, and how many of its values are here."""
    for name, other in others.items():
        for theirs in other.columns:
            if theirs.name == column.name and theirs.exact and not theirs.nested:
                yield name, theirs, len(column.values & theirs.values)


def _score(
    column: InferredColumn, example: TopicExample, others: Mapping[str, TopicExample], known: Mapping[str, KnownSource]
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
    known: Mapping[str, KnownSource],
) -> Iterator[str]:
    whole = column.present == column.records
    yield "in all records" if whole else f"in {column.present:,} of {column.records:,} records"
    yield f"{len(column.values):,} values in {column.present:,}"
    for name, _, overlap in shared(column, others):
        yield f"also in {name} ({overlap:,} of them)" if overlap else f"also in {name} (none of these values)"
    if same := [name for name, source in known.items() if source.key == column.name]:
        yield f"also the key of {' and '.join(same)}"
    if column.name in example.keyed_by:
        yield "Kafka's key"
    if not column.exact:
        yield "no field is exact enough for a key, so this one is used as text"
    near = [one.name for one in rest if _is_id(one.name, example.topic) or one.name in example.keyed_by]
    if near:
        yield f"or: {', '.join(near[:3])}"
