"""A subscription to a window of a table: a slow consumer gets only the newest."""

from __future__ import annotations

from typing import Unpack

from turnout.client.events import Json, Window, WindowOptions, named_rows
from turnout.client.newest import NewestSubscription
from turnout.client.wire import checked_options


class WindowSubscription(NewestSubscription[Window]):
    """A window of a table: an event is the whole window; a slow consumer gets only the newest."""

    _kind = "window"
    _answer = "rows"

    def move(self, **options: Unpack[WindowOptions]) -> None:
        """Look at other rows by the same subscription: any of columns, where, sort, offset, limit."""
        with self._changed:
            self._options = checked_options(self._kind, self._subject, {**self._options, **options})
            self._resumable = False
        self._live.ask_again(self)

    def _event(self, message: Json, swapped: bool) -> Window:
        return Window(
            table=message["table"],
            generation=message["generation"],
            version=message["version"],
            total=message["total"],
            columns=tuple(message["columns"]),
            rows=named_rows(message["columns"], message["rows"]),
            ids=tuple(message["ids"]),
            offset=message["offset"],
            swapped=swapped,
        )
