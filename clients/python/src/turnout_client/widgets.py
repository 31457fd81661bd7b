"""A live table and a live chart for notebooks, based on the client's subscriptions.

Only this module needs `anywidget`; `Table.widget` and `Table.chart` import it. `widget.js` draws the values that this
module sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anywidget
import traitlets

from turnout_client import display
from turnout_client.events import Columns, HistoryPoint, Json, Row, State, Summary, Window
from turnout_client.newest import NewestSubscription

if TYPE_CHECKING:
    from turnout_client import SummarySubscription, WindowSubscription

E = TypeVar("E", Window, Summary)

# The maximum number of lines that can be told apart; `widget.css` has a colour for each.
_LINES = 8


class LiveWidget(anywidget.AnyWidget, Generic[E]):
    """A widget that shows the newest event of a subscription, which runs while a view of the widget is shown.

    Running a cell again creates a new widget and removes the view of the old one, but does not close the old one. So
    its subscription ends with its last view.
    """

    _esm = Path(__file__).with_name("widget.js")
    _css = Path(__file__).with_name("widget.css")

    # Values are texts, so that no digit of a number is lost in the browser.
    _shown = traitlets.Dict().tag(sync=True)
    _state = traitlets.Dict().tag(sync=True)

    def __init__(self, follow: Callable[[], NewestSubscription[E]], live: NewestSubscription[E]) -> None:
        """Show the events of `live`; `follow` opens the same subscription again when the widget is shown again."""
        self._follow: Callable[[], NewestSubscription[E]] = follow
        self.live: NewestSubscription[E] = live
        self._views = 0
        self._paused = False
        super().__init__(_state=_state(live.state, ""))
        self.on_msg(self._count_views)
        self._start()

    def close(self) -> None:
        """End the subscription and remove the views."""
        self._paused = False
        self.live.close()
        super().close()

    def _start(self) -> None:
        self.live._call(self._show, self._show_state)

    def _show(self, event: E) -> None:
        self._shown = self._drawing(event)

    def _show_state(self, state: State, reason: str) -> None:
        self._state = _state("paused" if self._paused else state, str(self.live.error or reason))

    def _count_views(self, _: object, message: Mapping[str, Any], __: object) -> None:
        self._views = max(0, self._views + message.get("views", 0))
        if self._views == 0 and not self.live.state.over:
            self._paused = True
            self.live.close()
        elif self._views > 0 and self._paused:
            self._paused = False
            self.live = self._follow()
            self._start()

    def _drawing(self, event: E) -> Json:
        raise NotImplementedError


class TableWidget(LiveWidget[Window]):
    """A widget that shows a window of a table."""

    live: WindowSubscription

    def _drawing(self, event: Window) -> Json:
        rows = _texts(event.columns, event.rows)
        return {**_facts(event, "row"), "offset": event.offset, "ids": list(event.ids), "rows": rows}


class ChartWidget(LiveWidget[Summary]):
    """A widget that shows a summary of a table: a bar for each group, and with `history` also a line."""

    live: SummarySubscription

    def _drawing(self, event: Summary) -> Json:
        by = len(event.by)
        ids = [_id(group, by) for group in event.groups]
        return {
            **_facts(event, "group"),
            "by": by,
            "offset": 0,
            "ids": ids,
            "rows": _texts(event.columns, event.groups),
            "points": [{"time": point.time, "groups": _lines(event, point, ids[:_LINES])} for point in event.history],
            "swaps": [{"time": swap.time, "generation": swap.generation} for swap in event.swaps],
        }


def _facts(event: Window | Summary, one: str) -> Json:
    names = ("table", "generation", "total", "columns")
    return {**{name: getattr(event, name) for name in names}, "one": one}


def _state(state: str, reason: str) -> Json:
    return {"state": str(state), "reason": reason}


def _texts(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> list[list[str | None]]:
    names = [column["name"] for column in columns]
    return [[None if row[name] is None else display.text(row[name]) for name in names] for row in rows]


def _lines(event: Summary, point: HistoryPoint, ids: list[str]) -> list[list[str | None] | None]:
    """Return the values of these groups at a point of the history; None for a group that did not exist."""
    by = len(event.by)
    known = {_id(group, by): group for group in point.groups}
    return [_texts(event.columns[by:], [known[one]])[0] if one in known else None for one in ids]


def _id(group: Row, by: int) -> str:
    """Return the identity of a group: its full `by` values, which may be shown cut."""
    return repr(list(group.values())[:by])
