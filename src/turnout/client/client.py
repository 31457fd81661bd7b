"""A client of a running Turnout server: the calls of its HTTP API, and the way to its live tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from turnout.client.events import Json, Rows, Texts, Where
from turnout.client.http import DEFAULT_URL, Http, window_query
from turnout.client.live import Address, Live
from turnout.client.table import Table

if TYPE_CHECKING:
    import pyarrow


def connect(url: str = DEFAULT_URL, token: str | None = None, *, name: str = "python") -> Client:
    """A client of the server at `url`; nothing is sent yet. Use it in a `with` block, or close it.

    `name` is what the history of swaps calls who asked: a plain, short word.
    """
    return Client(url, token, name)


class Client:
    """One server; safe to use from several threads. All live subscriptions share one connection and one thread."""

    def __init__(self, url: str, token: str | None = None, name: str = "python") -> None:
        self._http = Http(url, token, name)
        # The same trust for both ways to the server.
        self._live = Live(Address(self._http.url, self._http.headers, httpx.create_ssl_context))

    @property
    def url(self) -> str:
        return self._http.url

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every subscription and connection; their threads are gone when this returns."""
        self._live.close()
        self._http.close()

    def table(self, name: str) -> Table:
        """A table by its name; NAME@7 is its generation 7. Nothing is sent yet."""
        return Table(self, self._live, name)

    def tables(self) -> list[Json]:
        """Every table: name, columns with types, row count, generation, version."""
        found: list[Json] = self._http.get("/api/tables")["tables"]
        return found

    def rows(
        self,
        table: str,
        *,
        columns: Texts = (),
        where: Where = (),
        sort: Texts = (),
        offset: int = 0,
        limit: int | None = None,
    ) -> Rows:
        """A window of a table; `where` are `column operator value` terms, `sort` are columns, `-` before descending."""
        return _rows(self._http.get(_path(table), window_query(columns, where, sort, offset, limit)))

    def arrow(
        self,
        table: str,
        *,
        columns: Texts = (),
        where: Where = (),
        sort: Texts = (),
        offset: int = 0,
        limit: int | None = None,
    ) -> pyarrow.Table:
        """The same as Arrow, all rows unless `limit` is given."""
        return self._http.arrow(_path(table), window_query(columns, where, sort, offset, limit))

    def status(self) -> Json:
        """The status row, with progress and lag."""
        return self._http.get("/api/status")

    def swaps(self) -> list[Json]:
        """The history of swaps, oldest first."""
        return [dict(row) for row in _rows(self._http.get("/api/swaps")).rows]

    def control(self, message: Mapping[str, Any], *, wait: bool = True) -> Json:
        """Send a control message; its outcome, or with `wait=False` only that it was taken."""
        return self._steer("/api/control", message, wait)

    def rollback(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Back to the previous plan; `message` may have `requestId` and `expectedGeneration`."""
        return self._steer("/api/rollback", message or {}, wait)

    def _steer(self, path: str, message: Mapping[str, Any], wait: bool) -> Json:
        return self._http.post(path, message, [] if wait else [("wait", "false")], wait=wait)


def _path(table: str) -> str:
    return f"/api/tables/{quote(table, safe='@')}/rows"


def _rows(answer: Json) -> Rows:
    return Rows(
        answer["table"],
        answer["generation"],
        answer["version"],
        answer["total"],
        tuple(answer["columns"]),
        tuple(answer["rows"]),
    )
