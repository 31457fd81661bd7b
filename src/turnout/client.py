"""A client of a running Turnout server, over HTTP.

It turns the server's errors, and those of the way there, into TurnoutError. It shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from turnout.errors import TurnoutError

DEFAULT_URL = "http://127.0.0.1:10000"
_TIMEOUT_SECONDS = 30.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """A window of a table, of one moment; `total` counts what `where` keeps, not only this window."""

    table: str
    generation: int
    version: int
    total: int
    columns: tuple[Mapping[str, str], ...]
    rows: tuple[Mapping[str, Any], ...]

    def as_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


def connect(url: str = DEFAULT_URL, token: str | None = None, *, name: str = "python") -> Client:
    """A client of the server at `url`; nothing is sent yet. Use it in a `with` block, or close it.

    `name` is what the history of swaps calls who asked: a plain, short word.
    """
    return Client(url, token, name)


class Client:
    """The calls of the HTTP API; safe to use from several threads."""

    def __init__(self, url: str, token: str | None = None, name: str = "python") -> None:
        self.url = _base(url)
        headers = {"X-Turnout-Client": name}
        # A token with a line break would fail deep in the client, with the token in the error.
        if token:
            headers["Authorization"] = f"Bearer {_clean(token)}"
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def tables(self) -> list[Json]:
        """Every table: name, columns with types, row count, generation, version."""
        found: list[Json] = self._call("GET", "/api/tables")["tables"]
        return found

    def rows(
        self,
        table: str,
        *,
        columns: str | Iterable[str] = (),
        where: str | Iterable[str] = (),
        sort: str | Iterable[str] = (),
        offset: int = 0,
        limit: int | None = None,
    ) -> Rows:
        """A window of a table; `where` are `column operator value` terms, `sort` are columns, `-` before descending."""
        query: list[tuple[str, str | int | float | bool | None]] = []
        for name, given in (("columns", columns), ("where", where), ("sort", sort)):
            query += [(name, value) for value in ([given] if isinstance(given, str) else given)]
        if offset:
            query.append(("offset", offset))
        if limit is not None:
            query.append(("limit", limit))
        answer = self._call("GET", f"/api/tables/{quote(table, safe='@')}/rows", params=query)
        return _rows(answer)

    def status(self) -> Json:
        """The status row, with progress and lag."""
        return self._call("GET", "/api/status")

    def swaps(self) -> list[Json]:
        """The history of swaps, oldest first."""
        return [dict(row) for row in _rows(self._call("GET", "/api/swaps")).rows]

    def control(self, message: Mapping[str, Any], *, wait: bool = True) -> Json:
        """Send a control message; its outcome, or with `wait=False` only that it was taken."""
        return self._steer("/api/control", message, wait)

    def rollback(self, message: Mapping[str, Any] | None = None, *, wait: bool = True) -> Json:
        """Back to the previous plan; `message` may have `requestId` and `expectedGeneration`."""
        return self._steer("/api/rollback", message or {}, wait)

    def _steer(self, path: str, message: Mapping[str, Any], wait: bool) -> Json:
        # A build may take as long as the server lets it: who waits, waits for the server's word.
        timeout = httpx.Timeout(_TIMEOUT_SECONDS, read=None if wait else _TIMEOUT_SECONDS)
        params = {} if wait else {"wait": "false"}
        return self._call("POST", path, json=dict(message), params=params, timeout=timeout)

    def _call(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise TurnoutError(
                code="server_unreachable",
                message=f"no answer from {self.url}: {_reason(error)}",
                hint="start a server (turnout run, turnout demo), or give its address by --url or TURNOUT_URL",
                status=503,
            ) from error
        return self._answer(response)

    def _answer(self, response: httpx.Response) -> Json:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            code, hint = str(error.get("code", "error")), str(error.get("hint") or "")
            raise TurnoutError(code=code, message=error["message"], hint=hint, status=response.status_code)
        raise TurnoutError(
            code="bad_answer",
            message=f"{self.url} answered {response.status_code} {response.reason_phrase}, not as Turnout does",
            hint="check that the address is that of a Turnout server, without a path",
            status=502,
        )


def _base(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    if parsed.scheme in ("http", "https") and parsed.host and not parsed.userinfo:
        return str(parsed).rstrip("/")
    # Not shown: it may have a password in it.
    raise TurnoutError(code="bad_url", message="the server's address is not usable", hint=f"such as {DEFAULT_URL}")


def _clean(token: str) -> str:
    token = token.strip()
    if token.isascii() and token.isprintable():
        return token
    raise TurnoutError(
        code="bad_token", message="the token has characters that a header cannot carry", hint="check TURNOUT_TOKEN"
    )


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "nothing listens there" if "refused" in str(error).lower() else str(error) or "it cannot be reached"
    if isinstance(error, httpx.TimeoutException):
        return f"it took longer than {_TIMEOUT_SECONDS:g} s"
    return str(error) or type(error).__name__


def _rows(answer: Json) -> Rows:
    return Rows(
        answer["table"],
        answer["generation"],
        answer["version"],
        answer["total"],
        tuple(answer["columns"]),
        tuple(answer["rows"]),
    )
