"""One table of a server: its rows now, as JSON, Arrow or a data frame, and its rows live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from turnout.client import frames, html
from turnout.client.events import Changes, Rows, Texts, Where, Window, WindowOptions
from turnout.client.subscription import ChangesSubscription, OnState, Subscription, WindowSubscription
from turnout.client.wire import changes_options, window_options
from turnout.errors import TurnoutError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow

    from turnout.client.live import Live


class Reader(Protocol):
    """What a table asks of its client."""

    def rows(self, table: str, **window: Unpack[WindowOptions]) -> Rows: ...

    def arrow(self, table: str, **window: Unpack[WindowOptions]) -> pyarrow.Table: ...


class Table:
    """A table by its name. It holds no data: every call asks the server."""

    def __init__(self, client: Reader, live: Live, name: str) -> None:
        self._client = client
        self._live = live
        self.name = name

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _repr_html_(self) -> str:
        try:
            shown = self.rows(limit=html.SHOWN_ROWS)
        except TurnoutError as error:
            return html.problem(self.name, str(error))
        return shown._repr_html_()

    # -- now

    def rows(self, **window: Unpack[WindowOptions]) -> Rows:
        """A window, of one moment; 100 rows unless `limit` is given."""
        return self._client.rows(self.name, **window)

    @property
    def schema(self) -> dict[str, str]:
        """The type of each column, by its name, in order."""
        return {column["name"]: column["type"] for column in self.rows(limit=0).columns}

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema)

    def to_arrow(self, **window: Unpack[WindowOptions]) -> pyarrow.Table:
        """All rows, or a window of them, of one moment. The schema's metadata has generation, version and total."""
        return self._client.arrow(self.name, **window)

    def to_pandas(self, **window: Unpack[WindowOptions]) -> pandas.DataFrame:
        return frames.to_pandas(self.to_arrow(**window))

    def to_polars(self, **window: Unpack[WindowOptions]) -> polars.DataFrame:
        return frames.to_polars(self.to_arrow(**window))

    # -- live

    def window(
        self, columns: Texts = (), where: Where = (), sort: Texts = (), offset: int = 0, limit: int = 100
    ) -> WindowSubscription:
        """These rows now, and again whenever they change."""
        given = {"columns": columns, "where": where, "sort": sort, "offset": offset, "limit": limit}
        return WindowSubscription(self._live, self.name, window_options(self.name, given))

    def changes(self, columns: Texts = ()) -> ChangesSubscription:
        """All rows now, then every change; its `mirror` is the table as it is."""
        return ChangesSubscription(self._live, self.name, changes_options(self.name, columns))

    @overload
    def subscribe(
        self, callback: Callable[[Changes], object], *, window: None = None, on_state: OnState | None = None
    ) -> ChangesSubscription: ...

    @overload
    def subscribe(
        self, callback: Callable[[Window], object], *, window: WindowOptions, on_state: OnState | None = None
    ) -> WindowSubscription: ...

    def subscribe(
        self, callback: Callable[[Any], object], *, window: WindowOptions | None = None, on_state: OnState | None = None
    ) -> Subscription[Any]:
        """Call `callback` with every change, or with a window whenever that changes, on a thread of its own.

        `window` has what `window()` takes, such as `{"sort": "-age", "limit": 10}`. `on_state` is called with the state
        and the reason for it, on the same thread.
        """
        opened: Subscription[Any] = self.changes() if window is None else self.window(**window)
        return opened._call(callback, on_state)
