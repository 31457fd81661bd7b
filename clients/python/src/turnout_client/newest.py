"""Live windows, summaries, differences and SELECTs. Each event is complete, so slow consumers skip to the newest."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, Unpack

from turnout_client.events import (
    Difference,
    HistoryPoint,
    Json,
    LiveSummaryOptions,
    SqlOptions,
    SqlRows,
    Summary,
    SwapMoment,
    Window,
    WindowOptions,
    difference_of,
    event_of,
    named_rows,
)
from turnout_client.live import Live
from turnout_client.subscription import Subscription
from turnout_client.wire import checked_options

E = TypeVar("E")


class NewestSubscription(Subscription[E]):
    """A subscription that keeps only the newest message of the server."""

    _answer: ClassVar[str]
    """The type of the data messages of the server."""

    _newest: Json | None = None
    _collected = False

    @property
    def latest(self) -> E | None:
        """The newest event, also if it was consumed already; None before the first."""
        newest = self._newest
        return None if newest is None else self._event(newest, swapped=False)

    def _position(self) -> tuple[int, int]:
        assert self._newest is not None
        return self._newest["generation"], self._newest["version"]

    def _apply(self, message: Json) -> bool:
        if message["type"] == self._answer:
            self._newest, self._collected = message, False
            return True
        # `current` means unchanged data; it is valid only if there is data.
        return message["type"] == "current" and self._newest is not None

    def _collect(self) -> Callable[[], E] | None:
        message = self._newest
        if message is None or self._collected:
            return None
        self._collected, swapped = True, self._swapped((message.get("to") or message)["generation"])
        return lambda: self._event(message, swapped)

    def _move(self, options: Any) -> None:
        with self._changed:
            self._options = checked_options(self._kind, self._subject, {**self._options, **options})
            self._resumable = False
        self._live.ask_again(self)

    @abstractmethod
    def _event(self, message: Json, swapped: bool) -> E:
        """Return the consumer's event for a message."""


class WindowSubscription(NewestSubscription[Window]):
    """A subscription to a window of a table."""

    _kind = "window"
    _answer = "rows"

    def move(self, **options: Unpack[WindowOptions]) -> None:
        """Change the window of this subscription: any of columns, where, sort, offset and limit."""
        self._move(options)

    def _event(self, message: Json, swapped: bool) -> Window:
        return event_of(Window, message, rows=named_rows(message["columns"], message["rows"]), swapped=swapped)


class SummarySubscription(NewestSubscription[Summary]):
    """A subscription to a summary of a table, with its history if requested."""

    _kind = _answer = "summary"
    _resumes = False

    def __init__(self, live: Live, table: str, options: LiveSummaryOptions) -> None:
        super().__init__(live, table, options)
        self._points: dict[int, HistoryPoint] = {}

    def move(self, options: LiveSummaryOptions) -> None:
        """Change the summary of this subscription; omitted options keep their value."""
        self._move(options)

    def _apply(self, message: Json) -> bool:
        if (history := message.get("history")) is not None:
            self._add(history, message["columns"])
        return super()._apply(message)

    def _add(self, history: Json, columns: list[Json]) -> None:
        """Add points of the history. The server sends each point once, and the last one again while it changes."""
        known = {} if history["whole"] else dict(self._points)
        for point in history["points"]:
            known[point["time"]] = HistoryPoint(
                point["time"], point["generation"], named_rows(columns, point["groups"])
            )
        begin = max(known, default=0) - history["seconds"] * 1000
        older = [time for time in sorted(known) if time < begin]
        # Keep the last point before the beginning: its values still apply at the beginning.
        self._points = {time: known[time] for time in sorted(known) if time not in older[:-1]}

    def _event(self, message: Json, swapped: bool) -> Summary:
        history = message.get("history")
        return event_of(
            Summary,
            message,
            groups=named_rows(message["columns"], message["groups"]),
            history=tuple(self._points.values()) if history else (),
            swaps=tuple(SwapMoment(swap["time"], swap["generation"]) for swap in history["swaps"]) if history else (),
            swapped=swapped,
        )


class DifferenceSubscription(NewestSubscription[Difference]):
    """A subscription to the differences of a table between two generations."""

    _kind = _answer = "difference"
    _resumes = False

    def _event(self, message: Json, swapped: bool) -> Difference:
        return difference_of(message)


class SqlSubscription(NewestSubscription[SqlRows]):
    """A subscription to the rows of a SELECT, which are sent again whenever one of its tables changes."""

    _kind = "sql"
    _answer = "rows"
    _resumes = False

    def __init__(self, live: Live, text: str, options: SqlOptions) -> None:
        super().__init__(live, "sql", options, {"sql": text})

    def _event(self, message: Json, swapped: bool) -> SqlRows:
        return event_of(SqlRows, message, rows=named_rows(message["columns"], message["rows"]))
