"""A running Turnout server and its tables: the calls of its HTTP API, and the way to live data."""

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
    """A client of the server at `url`; nothing is sent yet. Use it in a `with` block, or close it.

    `name` is how the history of swaps names this client: a plain, short word.
    """
    return Client(url, token, name)


class Client:
    """One server; safe to use from several threads. All live subscriptions share one connection and one thread."""

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
        """End every subscription and connection; their threads are gone when this returns."""
        self._live.close()
        self._http.close()

    def table(self, name: str) -> Table:
        """A table by its name; NAME@7 is its generation 7.

        Nothing is sent yet, so that a table can be named before its server is there: the first use of a table that
        does not exist says so, with the names that there are.
        """
        return Table(self._http, self._live, name)

    def tables(self) -> list[Json]:
        """Every table: name, columns with types, row count, generation, version."""
        found: list[Json] = self._http.get("/api/tables")["tables"]
        return found

    def rows(self, table: str, **window: Unpack[WindowOptions]) -> Rows:
        """A window of a table; `where` are `column operator value` terms, `sort` are columns, `-` before descending."""
        return self.table(table).rows(**window)

    def arrow(self, table: str, **window: Unpack[WindowOptions]) -> pyarrow.Table:
        """Rows of a table as an Arrow table, all of them unless `limit` is given."""
        return self.table(table).to_arrow(**window)

    def me(self) -> Json:
        """Who the server takes the client for: name, role, and by what."""
        return self._http.get("/api/me")

    def status(self) -> Json:
        """The status row, with progress and lag."""
        return self._http.get("/api/status")

    def swaps(self) -> list[Json]:
        """The history of swaps, oldest first."""
        found: list[Json] = self._http.get("/api/swaps")["rows"]
        return found

    def sql(self, text: str, *, limit: int = 1_000) -> SqlRows:
        """The rows of one SELECT over the tables, of one moment; `complete` is False where there are more."""
        return event_of(SqlRows, self._http.post("/api/sql", {"sql": text, "limit": limit}))

    def sql_file(self, text: str, form: Literal["csv", "arrow", "parquet"], *, limit: int = 10_000) -> bytes:
        """The rows of one SELECT as the bytes of a file."""
        return self._http.file("/api/sql", {"sql": text, "limit": limit, "format": form})

    def live_sql(self, text: str, *, limit: int = 1_000) -> SqlSubscription:
        """The rows of a SELECT now, and again whenever a table that it names changed."""
        return self._live.add(SqlSubscription(self._live, text, {"limit": limit, "live": True}))

    def control(self, message: Mapping[str, Any], *, wait: bool = True) -> Json:
        """Send a control message; its outcome, or with `wait=False` only that it was taken."""
        return self._http.send("/api/control", message, wait)

    def rollback(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Back to the previous plan; `message` may have `requestId` and `expectedGeneration`."""
        return self._http.send("/api/rollback", message or {}, wait)

    def cancel(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """End the build under way; `message` may have `requestId` and `expectedGeneration`."""
        return self._http.send("/api/cancel", message or {}, wait)

    def test_alert(self, name: str) -> Json:
        """Send a sample event to the target of an alert, and wait until it has arrived."""
        return self._http.send(f"/api/alerts/{quote(name, safe='')}/test", {}, True)

    def publish(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Publish the candidate; `message` may have `requestId`, `force` and `expectedGeneration`, the candidate's."""
        return self._http.send("/api/publish", message or {}, wait)

    def discard(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Remove the candidate; `message` may have `requestId` and `expectedGeneration`, which is the candidate's."""
        return self._http.send("/api/discard", message or {}, wait)

    def config(self) -> str:
        """The configuration in force, as YAML; secrets are ***."""
        return self._http.text("/api/config")

    def config_history(self) -> list[Json]:
        """The configurations that were in force, newest first: who, when, and what differed."""
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
        """Put another configuration (YAML) in force, or say what it would change.

        The answer has `outcome`, `generation` and `changes`; where that is `rejected` or `failed`, also the `error`.
        """
        given = {"requestId": request_id, "expectedGeneration": expected_generation}
        query = {name: value for name, value in given.items() if value is not None}
        flags = {name: "true" for name, value in {"dryRun": dry_run, "force": force}.items() if value}
        return self._http.put_yaml("/api/config", text, query | flags)


class Table:
    """A table by its name. It holds no data: every call asks the server."""

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

    # -- now

    def rows(self, **window: Unpack[WindowOptions]) -> Rows:
        """A window, of one moment; 100 rows unless `limit` is given."""
        return event_of(Rows, self._http.get(self._path, query_of(window, WindowOptions)))

    def summary(
        self, by: Texts = (), values: Texts = "count", where: Where = (), sort: Texts = (), limit: int = 100
    ) -> Summary:
        """Groups of the rows, of one moment: `by="accountType"`, `values="count,sum(balance)"`."""
        asked: SummaryOptions = {"by": by, "values": values, "where": where, "sort": sort, "limit": limit}
        return event_of(Summary, self._http.get(f"{self._base}/summary", query_of(asked, SummaryOptions)))

    def why(self, *, row: str | None = None, key: object = None, place: tuple[str, int, int] | None = None) -> Json:
        """The records that a row is made of (`row` is its id), or the rows of a key, and those that were not chosen.

        `place` is topic, partition and offset of a row of `bad_records`.
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
        """What differs between two generations, of one moment: by default, between what is shown and the candidate."""
        between: DifferenceOptions = {"from": from_generation, "to": to_generation, "change": change}
        asked: DifferenceOptions = {**between, "where": where, "sort": sort, "offset": offset, "limit": limit}
        return difference_of(self._http.get(f"{self._base}/difference", query_of(asked, DifferenceOptions)))

    @property
    def schema(self) -> dict[str, str]:
        """The type of each column, by its name, in order."""
        return {column["name"]: column["type"] for column in self.rows(limit=0).columns}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.schema)

    def to_arrow(self, **window: Unpack[WindowOptions]) -> pyarrow.Table:
        """All rows, or a window of them, of one moment. The schema's metadata has generation, version and total."""
        return self._http.arrow(self._path, query_of(window, WindowOptions))

    def file(self, form: Literal["csv", "arrow", "parquet"], **window: Unpack[WindowOptions]) -> Iterator[bytes]:
        """The rows as a file, all of them or a window, of one moment: its bytes as they arrive."""
        return self._http.chunks(self._path, [*query_of(window, WindowOptions), ("format", form)])

    def to_pandas(self, **window: Unpack[WindowOptions]) -> pandas.DataFrame:
        """All rows, or a window of them, of one moment, as a data frame of pandas."""
        return frames.to_pandas(self.to_arrow(**window))

    def to_polars(self, **window: Unpack[WindowOptions]) -> polars.DataFrame:
        """All rows, or a window of them, of one moment, as a data frame of polars."""
        return frames.to_polars(self.to_arrow(**window))

    # -- live

    def window(
        self, columns: Texts = (), where: Where = (), sort: Texts = (), offset: int = 0, limit: int = 100
    ) -> WindowSubscription:
        """These rows now, and again whenever they change."""
        options: WindowOptions = {"columns": columns, "where": where, "sort": sort, "offset": offset, "limit": limit}
        return self._live.add(WindowSubscription(self._live, self.name, options))

    def live_summary(self, **options: Unpack[LiveSummaryOptions]) -> SummarySubscription:
        """A summary now, and again whenever it changes; `history` also has how it was in the last seconds."""
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
        """What differs between two generations now, and again when it changed, at most once a second."""
        between: DifferenceOptions = {"from": from_generation, "to": to_generation, "change": change}
        asked: DifferenceOptions = {**between, "where": where, "sort": sort, "limit": limit}
        return self._live.add(DifferenceSubscription(self._live, self.name, asked))

    def widget(self, **window: Unpack[WindowOptions]) -> TableWidget:
        """These rows in a notebook, where they stay live. Needs `anywidget`."""
        frames.need("anywidget", "window()")
        from turnout_client.widgets import TableWidget

        follow = partial(self.window, **window)
        return TableWidget(follow, follow())

    def chart(self, **summary: Unpack[LiveSummaryOptions]) -> ChartWidget:
        """A summary in a notebook as bars, and with `history` also as lines; it stays live. Needs `anywidget`."""
        frames.need("anywidget", "live_summary()")
        from turnout_client.widgets import ChartWidget

        follow = partial(self.live_summary, **summary)
        return ChartWidget(follow, follow())

    def changes(self, columns: Texts = ()) -> ChangesSubscription:
        """All rows now, then every change; its `mirror` is the table as it is."""
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
        """Call `callback` with every change, or with a window whenever that changes, on a thread of its own.

        `window` has what `window()` takes, such as `{"sort": "-age", "limit": 10}`. `on_state` is called with the state
        and the reason for it, on the same thread.
        """
        opened: Subscription[Any] = self.changes() if window is None else self.window(**window)
        return opened._call(callback, on_state)
