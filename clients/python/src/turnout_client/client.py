"""A client of one Turnout server: calls of its HTTP API, and live subscriptions to its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload
from urllib.parse import quote

from turnout_client import DEFAULT_URL, display, frames
from turnout_client.changes import ChangesSubscription
from turnout_client.errors import TurnoutError
from turnout_client.events import (
    ChangeKind,
    Changes,
    Difference,
    DifferenceOptions,
    Json,
    LiveSummaryOptions,
    Rows,
    SqlRows,
    Summary,
    SummaryOptions,
    Texts,
    Where,
    Window,
    WindowOptions,
    difference_of,
    event_of,
)
from turnout_client.http import Http, query_of
from turnout_client.live import Live
from turnout_client.newest import DifferenceSubscription, SqlSubscription, SummarySubscription, WindowSubscription
from turnout_client.subscription import OnState, Subscription

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow

    from turnout_client.widgets import ChartWidget, TableWidget


def connect(url: str = DEFAULT_URL, token: str | None = None, *, name: str = "python") -> Client:
    """Return a client of the server at `url`, without sending anything yet. Use it in a `with` block, or close it.

    `name` identifies this client in the history of swaps: a short, plain word.
    """
    return Client(url, token, name)


class Client:
    """A client of one server, for any number of threads. Its subscriptions share one connection and one thread."""

    def __init__(self, url: str, token: str | None = None, name: str = "python") -> None:
        self._http = Http(url, token, name)
        self._live = Live(self._http.url, self._http.headers)
        self.url = self._http.url

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every subscription and connection, and wait until their threads have ended."""
        self._live.close()
        self._http.close()

    def table(self, name: str) -> Table:
        """Return a table by its name; NAME@7 is its generation 7.

        Nothing is sent yet, so the server need not be running. If the table does not exist, its first use raises an
        error that lists the known names.
        """
        return Table(self._http, self._live, name)

    def tables(self) -> list[Json]:
        """Return every table: name, columns with types, row count, generation, version."""
        found: list[Json] = self._http.get("/api/tables")["tables"]
        return found

    def rows(self, table: str, **window: Unpack[WindowOptions]) -> Rows:
        """Return a window of a table; terms of `where` are `column operator value`, `-` in `sort` means descending."""
        return self.table(table).rows(**window)

    def arrow(self, table: str, **window: Unpack[WindowOptions]) -> pyarrow.Table:
        """Return all rows of a table, or a window of them, as an Arrow table."""
        return self.table(table).to_arrow(**window)

    def me(self) -> Json:
        """Return the identity of this client on the server: name, role, and how it was authenticated."""
        return self._http.get("/api/me")

    def status(self) -> Json:
        """Return the status of the server, with progress and lag."""
        return self._http.get("/api/status")

    def swaps(self) -> list[Json]:
        """Return the history of swaps, oldest first."""
        found: list[Json] = self._http.get("/api/swaps")["rows"]
        return found

    def sql(self, text: str, *, limit: int = 1_000) -> SqlRows:
        """Return the rows of one SELECT, as of one moment; `complete` is False if `limit` cut the result."""
        return event_of(SqlRows, self._http.post("/api/sql", {"sql": text, "limit": limit}))

    def sql_file(self, text: str, form: Literal["csv", "arrow", "parquet"], *, limit: int = 10_000) -> bytes:
        """Return the rows of one SELECT as the bytes of a file."""
        return self._http.file("/api/sql", {"sql": text, "limit": limit, "format": form})

    def live_sql(self, text: str, *, limit: int = 1_000) -> SqlSubscription:
        """Subscribe to the rows of a SELECT: now, and again whenever one of its tables changes."""
        return self._live.add(SqlSubscription(self._live, text, {"limit": limit, "live": True}))

    def control(self, message: Mapping[str, Any], *, wait: bool = True) -> Json:
        """Send a control message and return its outcome; with `wait=False` only that the server accepted it."""
        return self._http.send("/api/control", message, wait)

    def rollback(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Go back to the previous plan; `message` may have `requestId` and `expectedGeneration`."""
        return self._http.send("/api/rollback", message or {}, wait)

    def cancel(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """End the current build; `message` may have `requestId` and `expectedGeneration`."""
        return self._http.send("/api/cancel", message or {}, wait)

    def test_alert(self, name: str) -> Json:
        """Send a sample event to the target of an alert, and wait until it is delivered."""
        return self._http.send(f"/api/alerts/{quote(name, safe='')}/test", {}, True)

    def publish(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Publish the candidate; `message` may have `requestId`, `force` and `expectedGeneration` (the candidate's)."""
        return self._http.send("/api/publish", message or {}, wait)

    def discard(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Remove the candidate; `message` may have `requestId` and `expectedGeneration` (the candidate's)."""
        return self._http.send("/api/discard", message or {}, wait)

    def config(self) -> str:
        """Return the current configuration as YAML; secrets are shown as ***."""
        return self._http.text("/api/config")

    def config_history(self) -> list[Json]:
        """Return the configurations so far, newest first: who applied each, when, and what changed."""
        found: list[Json] = self._http.get("/api/config/history")["history"]
        return found

    def apply(
        self,
        text: str,
        *,
        dry_run: bool = False,
        request_id: str | None = None,
        expected_generation: int | None = None,
        force: bool = False,
    ) -> Json:
        """Apply a configuration (YAML), or with `dry_run` only report what it would change.

        The answer has `outcome`, `generation` and `changes`; if the outcome is `rejected` or `failed`, also `error`.
        """
        given = {"requestId": request_id, "expectedGeneration": expected_generation}
        query = {name: value for name, value in given.items() if value is not None}
        flags = {name: "true" for name, value in {"dryRun": dry_run, "force": force}.items() if value}
        return self._http.put_yaml("/api/config", text, query | flags)


class Table:
    """A table by its name. It stores no data: every call queries the server."""

    def __init__(self, http: Http, live: Live, name: str) -> None:
        self._http = http
        self._live = live
        self._base = f"/api/tables/{quote(name, safe='@')}"
        self._path = f"{self._base}/rows"
        self.name = name

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _repr_html_(self) -> str:
        try:
            return self.rows(limit=display.SHOWN_ROWS)._repr_html_()
        except TurnoutError as error:
            return display.caption(self.name, str(error))

    # -- single answers

    def rows(self, **window: Unpack[WindowOptions]) -> Rows:
        """Return a window of the table, as of one moment; `limit` is 100 unless given."""
        return event_of(Rows, self._http.get(self._path, query_of(window, WindowOptions)))

    def summary(
        self, by: Texts = (), values: Texts = "count", where: Where = (), sort: Texts = (), limit: int = 100
    ) -> Summary:
        """Return groups of the rows, as of one moment: `by="accountType"`, `values="count,sum(balance)"`."""
        asked: SummaryOptions = {"by": by, "values": values, "where": where, "sort": sort, "limit": limit}
        return event_of(Summary, self._http.get(f"{self._base}/summary", query_of(asked, SummaryOptions)))

    def why(self, *, row: str | None = None, key: object = None, place: tuple[str, int, int] | None = None) -> Json:
        """Return the Kafka records of a row (by its id) or of the rows of a key, and the unused records of that key.

        For a row of `bad_records`, `place` is its topic, partition and offset.
        """
        names = ("row", "key", "topic", "partition", "offset")
        given = zip(names, (row, key, *(place or (None,) * 3)), strict=True)
        return self._http.get(f"{self._base}/why", [(name, str(value)) for name, value in given if value is not None])

    def difference(
        self,
        from_generation: int | None = None,
        to_generation: int | None = None,
        where: Where = (),
        sort: Texts = (),
        offset: int = 0,
        limit: int = 100,
        change: ChangeKind | None = None,
    ) -> Difference:
        """Return the differences of two generations, by default of the published one and the candidate."""
        between: DifferenceOptions = {"from": from_generation, "to": to_generation, "change": change}
        asked: DifferenceOptions = {**between, "where": where, "sort": sort, "offset": offset, "limit": limit}
        return difference_of(self._http.get(f"{self._base}/difference", query_of(asked, DifferenceOptions)))

    @property
    def schema(self) -> dict[str, str]:
        """The columns in order: each name with its type."""
        return {column["name"]: column["type"] for column in self.rows(limit=0).columns}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.schema)

    def to_arrow(self, **window: Unpack[WindowOptions]) -> pyarrow.Table:
        """Return all rows or a window, as of one moment. The schema's metadata has generation, version and total."""
        return self._http.arrow(self._path, query_of(window, WindowOptions))

    def file(self, form: Literal["csv", "arrow", "parquet"], **window: Unpack[WindowOptions]) -> Iterator[bytes]:
        """Yield the bytes of a file with all rows or a window, as of one moment, while they arrive."""
        return self._http.chunks(self._path, [*query_of(window, WindowOptions), ("format", form)])

    def to_pandas(self, **window: Unpack[WindowOptions]) -> pandas.DataFrame:
        """Return all rows or a window, as of one moment, as a pandas data frame."""
        return frames.to_pandas(self.to_arrow(**window))

    def to_polars(self, **window: Unpack[WindowOptions]) -> polars.DataFrame:
        """Return all rows or a window, as of one moment, as a polars data frame."""
        return frames.to_polars(self.to_arrow(**window))

    # -- subscriptions

    def window(
        self, columns: Texts = (), where: Where = (), sort: Texts = (), offset: int = 0, limit: int = 100
    ) -> WindowSubscription:
        """Subscribe to a window of the table: its rows now, and again whenever they change."""
        options: WindowOptions = {"columns": columns, "where": where, "sort": sort, "offset": offset, "limit": limit}
        return self._live.add(WindowSubscription(self._live, self.name, options))

    def live_summary(self, **options: Unpack[LiveSummaryOptions]) -> SummarySubscription:
        """Subscribe to a summary: now, and after each change; `history` is how many seconds of past values to keep."""
        return self._live.add(SummarySubscription(self._live, self.name, options))

    def live_difference(
        self,
        from_generation: int | None = None,
        to_generation: int | None = None,
        where: Where = (),
        sort: Texts = (),
        limit: int = 100,
        change: ChangeKind | None = None,
    ) -> DifferenceSubscription:
        """Subscribe to the differences of two generations: now, and after changes, at most once a second."""
        between: DifferenceOptions = {"from": from_generation, "to": to_generation, "change": change}
        asked: DifferenceOptions = {**between, "where": where, "sort": sort, "limit": limit}
        return self._live.add(DifferenceSubscription(self._live, self.name, asked))

    def widget(self, **window: Unpack[WindowOptions]) -> TableWidget:
        """Return a live table of these rows for a notebook. Needs `anywidget`."""
        frames.need("anywidget", "window()")
        from turnout_client.widgets import TableWidget

        follow = partial(self.window, **window)
        return TableWidget(follow, follow())

    def chart(self, **summary: Unpack[LiveSummaryOptions]) -> ChartWidget:
        """Return a live chart of a summary for a notebook: bars, and with `history` also lines. Needs `anywidget`."""
        frames.need("anywidget", "live_summary()")
        from turnout_client.widgets import ChartWidget

        follow = partial(self.live_summary, **summary)
        return ChartWidget(follow, follow())

    def changes(self, columns: Texts = ()) -> ChangesSubscription:
        """Subscribe to all rows now, then to every change; `mirror` of the subscription is the current table."""
        return self._live.add(ChangesSubscription(self._live, self.name, columns))

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
        """Call `callback` with every change, or with `window` whenever that changes, on a separate thread.

        `window` has the arguments of `window()`, such as `{"sort": "-age", "limit": 10}`. `on_state` is called with
        each state and its reason, on the same thread.
        """
        opened: Subscription[Any] = self.changes() if window is None else self.window(**window)
        return opened._call(callback, on_state)
