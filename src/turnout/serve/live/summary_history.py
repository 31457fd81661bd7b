"""The values of a summary over the last seconds: a bounded ring of points, and the moments of swaps among them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from turnout.serve.formats import json_object, to_json

MAX_POINTS = 300
MAX_POINT_GROUPS = 50
"""Of a summary with more groups, the points have the first."""

_LEAST_STEP_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Point:
    time: int
    body: bytes


class SummaryHistory:
    """A point for each step of time in which the summary changed, with its last value, which holds until the next."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._step = max(_LEAST_STEP_MS, -(-seconds * 1000 // MAX_POINTS))
        self._points: deque[_Point] = deque()
        self._swaps: deque[tuple[int, int]] = deque()
        self._generation: int | None = None

    @property
    def newest(self) -> int | None:
        return self._points[-1].time if self._points else None

    @property
    def size(self) -> int:
        return sum(len(point.body) for point in self._points)

    def add(self, now_ms: int, generation: int, groups: bytes) -> None:
        """The summary has these groups, as JSON, from now on."""
        # A clock that is set back must not mix up the order.
        now_ms = max(now_ms, self.newest or 0)
        time = now_ms - now_ms % self._step
        if self._generation not in (None, generation):
            self._swaps.append((now_ms, generation))
        self._generation = generation
        if self.newest is not None and self.newest >= time:
            time = self._points.pop().time
        self._points.append(_Point(time, json_object({"time": time, "generation": generation}, groups=groups)))
        begin = now_ms - self._seconds * 1000
        # The last value before the beginning is that of the beginning.
        while len(self._points) > 1 and (self._points[1].time <= begin or len(self._points) > MAX_POINTS + 1):
            self._points.popleft()
        while self._swaps and self._swaps[0][0] < begin:
            self._swaps.popleft()

    def body(self, since: int | None) -> bytes:
        """JSON of the points from `since` on, whose last value may be another now; None: of all."""
        points = [point.body for point in self._points if since is None or point.time >= since]
        swaps = [{"time": time, "generation": generation} for time, generation in self._swaps]
        fields = {"seconds": self._seconds, "whole": since is None}
        return json_object(fields, points=b"[%s]" % b",".join(points), swaps=to_json(swaps))
