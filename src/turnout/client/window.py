"""A subscription to a window of a table: a slow consumer gets only the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from turnout.client.events import Json, Window, WindowOptions
from turnout.client.subscription import Subscription
from turnout.client.wire import checked_options

if TYPE_CHECKING:
    from turnout.client.live import Live


class WindowSubscription(Subscription[Window]):
    """A window of a table: an event is the whole window; a slow consumer gets only the newest."""

    _kind = "window"

    def __init__(self, live: Live, table: str, options: WindowOptions) -> None:
        super().__init__(live, table, options)
        self._newest: Json | None = None
        self._collected = False

    @property
    def latest(self) -> Window | None:
        """The window as it was last known, whether or not a consumer has seen it."""
        newest = self._newest
        return None if newest is None else _window(newest, swapped=False)

    def move(self, **options: Unpack[WindowOptions]) -> None:
        """Look at other rows by the same subscription: any of columns, where, sort, offset, limit."""
        with self._changed:
            self._options = checked_options(self._kind, self.table, {**self._options, **options})
            self._resumable = False
        self._live.ask_again(self)

    def _position(self) -> tuple[int, int]:
        assert self._newest is not None
        return self._newest["generation"], self._newest["version"]

    def _apply(self, message: Json) -> bool:
        if message["type"] == "rows":
            self._newest, self._collected = message, False
            return True
        # `current` before the first rows would show nothing for ever.
        return message["type"] == "current" and self._newest is not None

    def _collect(self) -> Callable[[], Window] | None:
        message = self._newest
        if message is None or self._collected:
            return None
        self._collected, swapped = True, self._swapped(message["generation"])
        return lambda: _window(message, swapped)


def _window(message: Json, swapped: bool) -> Window:
    names = [column["name"] for column in message["columns"]]
    return Window(
        table=message["table"],
        generation=message["generation"],
        version=message["version"],
        total=message["total"],
        columns=tuple(message["columns"]),
        rows=tuple(dict(zip(names, row, strict=True)) for row in message["rows"]),
        ids=tuple(message["ids"]),
        offset=message["offset"],
        swapped=swapped,
    )
