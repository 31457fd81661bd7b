"""Offsets of topics: for each topic, partition -> the offset of the next record to read.

Plain values with Spark's JSON form, and the sums and comparisons that show progress and loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

EARLIEST = -2
"""Stands for the first offset of a partition in Spark's JSON."""

OFFSET_BITS = 44
"""A row's `_id` is `partition << OFFSET_BITS | offset`: 17 trillion offsets in each of 16,384 partitions."""

LIFE_BITS = 58
"""Above them stands which life of the partition it is: one more for each time that its topic was deleted."""

MOST_LIVES = 31

Partitions = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Next offset of each (topic, partition)."""

    next: Partitions

    @classmethod
    def from_json(cls, text: str) -> Offsets:
        found = json.loads(text)
        return cls({(topic, int(p)): int(o) for topic, parts in found.items() for p, o in parts.items()})

    @classmethod
    def kept(cls, text: str, start: Offsets) -> Offsets:
        """The offsets that the store keeps of a generation; `start` if nothing was read yet."""
        return cls.from_json(text) if text != "{}" else start

    def to_json(self) -> str:
        """The form of Spark's `startingOffsets`."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.next.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(topics)

    def reached(self, target: Offsets) -> bool:
        """Whether nothing before `target` is left to read; a deleted partition has nothing left."""
        return all(self.next.get(place, offset) >= offset for place, offset in target.next.items())

    def behind(self, target: Offsets) -> int:
        """How many offsets are left before `target`."""
        return sum(self.lags(target).values())

    def lags(self, target: Offsets) -> Partitions:
        """How many offsets are left before `target` in each of its partitions."""
        return {place: max(0, offset - self.next.get(place, 0)) for place, offset in target.next.items()}

    def made_anew(self, end: Offsets) -> Offsets | None:
        """The partitions of `end` that end before the offset read: their topic was deleted and created again."""
        found = {place: offset for place, offset in end.next.items() if offset < self.next.get(place, 0)}
        return Offsets(found) if found else None

    def keeping(self, before: Offsets, denied: Callable[[str, Offsets], bool]) -> Offsets:
        """These offsets, and those of `before` for topics that are missing because Kafka hides them (`denied`)."""
        missing = before.next.keys() - self.next.keys()
        hidden = {topic for topic in {topic for topic, _ in missing} if denied(topic, before)}
        kept = {place: before.next[place] for place in missing if place[0] in hidden}
        return Offsets({**self.next, **kept}) if kept else self

    def for_start(self, ends: Offsets) -> Offsets:
        """These offsets for exactly the partitions of `ends`, as Spark wants them: where to begin a new stream.

        A new partition is read from its first record; one that was created again from its end, since its records are
        then read separately.
        """
        return Offsets({place: min(self.next.get(place, 0), end) for place, end in ends.next.items()})

    def up_to(self, end: Offsets) -> Offsets:
        """Where to continue up to `end`, for partitions with records left; new ones from their first record."""
        found = {place: self.next.get(place, EARLIEST) for place in end.next}
        return Offsets({place: offset for place, offset in found.items() if offset < end.next[place]})

    def __or__(self, others: Offsets) -> Offsets:
        """These offsets with `others`, which win."""
        return Offsets({**self.next, **others.next})

    def topic(self, name: str) -> Offsets:
        return Offsets({place: offset for place, offset in self.next.items() if place[0] == name})


Gap = tuple[str, int, int, int]
"""Topic, partition, and the offsets from the first to the second, not with it, that no record was read of."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Records of one partition that were gone before they could be read: from `start` up to, not with, `end`."""

    topic: str
    partition: int
    start: int
    end: int | None

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted, and perhaps made anew; otherwise retention removed the records."""
        return self.end is None or self.end < self.start

    def __str__(self) -> str:
        place = f"topic '{self.topic}' partition {self.partition}"
        if self.end is None:
            return (
                f"{place} is gone (deleted); it was read up to offset {self.start}, "
                f"records after that are lost; reading continues"
            )
        if self.end < self.start:
            return (
                f"{place} was deleted and created again: it was read up to offset {self.start}, and now ends at "
                f"{self.end}; records after offset {self.start - 1} that were not read are lost; "
                f"it is read again from its start"
            )
        return (
            f"{place} lost offsets {self.start} to {self.end - 1} before they were read (retention); "
            f"reading continues at {self.end}; raise the topic's retention to prevent this"
        )
