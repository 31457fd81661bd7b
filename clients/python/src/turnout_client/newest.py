"""Live windows, summaries, differences and SELECTs: each event is the whole, so slow consumers get the newest only."""

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
    """Keeps the newest message of the server."""

    _answer: ClassVar[str]
    """The type of the messages that the server sends."""

    _newest: Json | None = None
    _collected = False

    @property
    def latest(self) -> E | None:
        """The newest, whether or not a consumer has seen it; None before the first."""
        newest = self._newest
        return None if newest is None else self._event(newest, swapped=False)

    def _position(self) -> tuple[int, int]:
        assert self._newest is not None
        return self._newest["generation"], self._newest["version"]

    def _apply(self, message: Json) -> bool:
        if message["type"] == self._answer:
            self._newest, self._collected = message, False
            return True
        # `current` before the first rows would show nothing for ever.
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
        """The event that a consumer gets for a message."""


class WindowSubscription(NewestSubscription[Window]):
    """A window of a table."""

    _kind = "window"
    _answer = "rows"

    def move(self, **options: Unpack[WindowOptions]) -> None:
        """Look at other rows by the same subscription: any of columns, where, sort, offset, limit."""
        self._move(options)

    def _event(self, message: Json, swapped: bool) -> Window:
        return event_of(Window, message, rows=named_rows(message["columns"], message["rows"]), swapped=swapped)


class SummarySubscription(NewestSubscription[Summary]):
    """A summary of a table, with its history where the client asked for one."""

    _kind = _answer = "summary"
    _resumes = False

    def __init__(self, live: Live, table: str, options: LiveSummaryOptions) -> None:
        super().__init__(live, table, options)
        self._points: dict[int, HistoryPoint] = {}

    def move(self, options: LiveSummaryOptions) -> None:
        """Ask for another summary by the same subscription; what is not given stays."""
        self._move(options)

    def _apply(self, message: Json) -> bool:
        if (history := message.get("history")) is not None:
            self._add(history, message["columns"])
        return super()._apply(message)

    def _add(self, history: Json, columns: list[Json]) -> None:
        """Points come once; the last one comes again while it changes."""
        known = {} if history["whole"] else dict(self._points)
        for point in history["points"]:
            known[point["time"]] = HistoryPoint(
                point["time"], point["generation"], named_rows(columns, point["groups"])
            )
        begin = max(known, default=0) - history["seconds"] * 1000
        older = [time for time in sorted(known) if time < begin]
        # The last value before the beginning is that of the beginning.
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
    """What differs in a table between two generations, again when that changed."""

    _kind = _answer = "difference"
    _resumes = False

    def _event(self, message: Json, swapped: bool) -> Difference:
        return difference_of(message)


class SqlSubscription(NewestSubscription[SqlRows]):
    """The rows of a SELECT, again whenever a table that it names changed."""

    _kind = "sql"
    _answer = "rows"
    _resumes = False

    def __init__(self, live: Live, text: str, options: SqlOptions) -> None:
        super().__init__(live, "sql", options, {"sql": text})

    def _event(self, message: Json, swapped: bool) -> SqlRows:
        return event_of(SqlRows, message, rows=named_rows(message["columns"], message["rows"]))
