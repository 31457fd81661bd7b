"""How summaries were in the last hour: bounded rings of points, with the moments of swaps among them.

`Histories` keeps one for each summary that somebody looks at, and for an hour after the last viewer left, for all
clients together. `summaries.py` fills those that nobody looks at, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import orjson

from turnout.plan.position import Position
from turnout.serve.responses import json_object, to_json
from turnout.store.query.summary import DEFAULT_LIMIT, Summary
from turnout_client.messages import MAX_HISTORY_SECONDS

MAX_POINTS = 300
MAX_POINT_GROUPS = 50
"""The most groups of a point: the first of its summary."""

MAX_LEFT = 32
MAX_LEFT_BY_CLIENT = 8
MAX_LEFT_BYTES = 16_000_000
"""Bounds of the histories that nobody looks at, for all clients together; the one left first goes first."""

_LEAST_STEP_MS = 1_000


def now_ms() -> int:
    """The time as points have it: milliseconds since 1970."""
    return int(time.time() * 1000)


def _step_ms(seconds: int) -> int:
    """The time between two points of a history of so many seconds."""
    return max(_LEAST_STEP_MS, -(-seconds * 1000 // MAX_POINTS))


@dataclass(frozen=True, slots=True)
class _Point:
    time: int
    generation: int
    groups: bytes

    @property
    def body(self) -> bytes:
        return json_object({"time": self.time, "generation": self.generation}, groups=self.groups)


class LastHour:
    """The last hour of a summary: the newest five minutes by the second, what is older by twelve seconds.

    It has a point for each step of time in which the summary changed, with its last value, which holds until the next.
    """

    def __init__(self) -> None:
        self.size = 0
        self._old: deque[_Point] = deque()
        self._new: deque[_Point] = deque()
        self._swaps: deque[tuple[int, int]] = deque()
        self._generation: int | None = None

    def add(self, now_ms: int, generation: int, groups: bytes) -> None:
        """Note that the summary has these groups, as JSON, from now on."""
        if self._new and (self._generation, self._new[-1].groups) == (generation, groups):
            return
        # A clock that is set back must not mix up the order.
        now_ms = max(now_ms, self._new[-1].time if self._new else 0)
        if self._generation not in (None, generation):
            self._swaps.append((now_ms, generation))
        self._generation = generation
        self._put(self._new, _Point(now_ms, generation, groups), _LEAST_STEP_MS)
        # The last value before the beginning is that of the beginning.
        while len(self._new) > 1 and self._new[1].time <= now_ms - _LEAST_STEP_MS * MAX_POINTS:
            self._put(self._old, self._take(self._new.popleft()), _step_ms(MAX_HISTORY_SECONDS))
        first = now_ms - MAX_HISTORY_SECONDS * 1000
        while len(self._old) > 1 and self._old[1].time <= first:
            self._take(self._old.popleft())
        while self._swaps and self._swaps[0][0] < first:
            self._swaps.popleft()

    def _put(self, points: deque[_Point], point: _Point, step_ms: int) -> None:
        """Add a point, in place of an earlier one of its step."""
        begin = point.time - point.time % step_ms
        if points and points[-1].time >= begin:
            begin = self._take(points.pop()).time
        points.append(replace(point, time=begin))
        self.size += len(point.groups)

    def _take(self, point: _Point) -> _Point:
        self.size -= len(point.groups)
        return point

    def body(self, seconds: int, now_ms: int, since: int | None) -> tuple[bytes, int | None]:
        """JSON of the last `seconds`, and the time of the newest point.

        Only of the points from `since` on, whose last value may be another now; None: of all.
        """
        begin = now_ms - seconds * 1000
        points = self._points(_step_ms(seconds))
        while len(points) > 1 and points[1].time <= begin:
            points.pop(0)
        bodies = [point.body for point in points if since is None or point.time >= since]
        swaps = [{"time": at, "generation": generation} for at, generation in self._swaps if at >= begin]
        fields = {"seconds": seconds, "whole": since is None}
        made = json_object(fields, points=b"[%s]" % b",".join(bodies), swaps=to_json(swaps))
        return made, points[-1].time if points else None

    def first_groups(self, limit: int) -> LastHour:
        """A history of the first groups alone, for a summary that has fewer of them."""
        made = LastHour()
        made._swaps, made._generation = self._swaps.copy(), self._generation
        for mine, points in ((made._old, self._old), (made._new, self._new)):
            mine.extend(replace(point, groups=to_json(orjson.loads(point.groups)[:limit])) for point in points)
        made.size = sum(len(point.groups) for point in (*made._old, *made._new))
        return made

    def _points(self, step_ms: int) -> list[_Point]:
        """All points, the newest at least `step_ms` apart."""
        points = {point.time: point for point in self._old}
        first = max(points, default=0)
        for point in self._new:
            begin = max(first, point.time - point.time % step_ms)
            points[begin] = replace(point, time=begin)
        return list(points.values())


@dataclass(slots=True)
class KeptHistory:
    """The history of a summary, and who looks at it; `left_at` is when the last viewer left."""

    summary: Summary
    history: LastHour = field(default_factory=LastHour)
    always: bool = False
    """Whether it goes on without viewers for as long as its table is there: a row count."""
    viewers: int = 0
    client: str = ""
    left_at: float = 0.0
    position: Position | None = None
    """Where the table was when it was sampled last; None where somebody looked since."""


class Histories:
    """The histories of all summaries that somebody looks at, or has looked at. Used on one event loop."""

    def __init__(self) -> None:
        # By their texts: values that people give may be equal and mean different things, such as 1 and 1.0.
        self._kept: dict[str, KeptHistory] = {}

    def enter(self, summary: Summary) -> LastHour:
        """The history of a summary that somebody looks at from now on."""
        kept = self._open(summary)
        kept.viewers += 1
        return kept.history

    def leave(self, summary: Summary, client: str, now: float) -> None:
        """Count one viewer less. After the last the history is kept, within the bounds."""
        key = _key(summary)
        kept = self._kept.pop(key)
        kept.viewers -= 1
        kept.client, kept.left_at, kept.position = client, now, None
        self._kept[key] = kept  # at the end: what was left first goes first
        self.forget_some(now)

    def left(self) -> list[KeptHistory]:
        """The histories that nobody looks at, the first left first; not those that go on always."""
        return [kept for kept in self._kept.values() if not kept.viewers and not kept.always]

    def row_counts(self, tables: Collection[str]) -> list[KeptHistory]:
        """The histories of the row counts of these tables, which go on always; and of no others."""
        for kept in self._kept.values():
            kept.always = False
        counts = [self._open(Summary(table)) for table in tables]
        for kept in counts:
            kept.always = True
        return counts

    def forget(self, kept: KeptHistory) -> None:
        self._kept.pop(_key(kept.summary), None)

    def forget_some(self, now: float) -> None:
        """Forget what was left an hour ago or never had a value, and the first left of what is too much."""
        for kept in (left := self.left()):
            mine = sum(other.client == kept.client for other in left)
            if (
                not kept.history.size
                or now - kept.left_at > MAX_HISTORY_SECONDS
                or len(left) > MAX_LEFT
                or mine > MAX_LEFT_BY_CLIENT
                or sum(other.history.size for other in left) > MAX_LEFT_BYTES
            ):
                self.forget(kept)
                left = [other for other in left if other is not kept]

    def _open(self, summary: Summary) -> KeptHistory:
        key = _key(summary)
        if key not in self._kept:
            self._kept[key] = KeptHistory(summary, self._of_more_groups(summary))
        return self._kept[key]

    def _of_more_groups(self, summary: Summary) -> LastHour:
        """The history of an equal summary with a higher limit, cut: bars and lines of a page differ in it."""
        for kept in self._kept.values():
            higher = replace(summary, limit=kept.summary.limit)
            if kept.summary.limit > summary.limit and _key(higher) == _key(kept.summary):
                return kept.history.first_groups(summary.limit)
        return LastHour()


def _key(summary: Summary) -> str:
    """The text of a summary. One without groups has one row, whatever its order and its limit are."""
    return repr(summary if summary.by or not summary.limit else replace(summary, sort=(), limit=DEFAULT_LIMIT))
