"""Calls to a running Turnout server over HTTP: JSON answers, and Arrow streams.

Errors of the server and of the connection become TurnoutError. The calls themselves are in `client.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

import httpx

from turnout_client import DEFAULT_URL, wire
from turnout_client.errors import CLIENT_HINTS, TurnoutError, first_line
from turnout_client.events import Json
from turnout_client.frames import need

if TYPE_CHECKING:
    import pyarrow

TIMEOUT_SECONDS = 30.0
# The server writes the whole file before it sends the first byte.
_FILE_SECONDS = 600.0
_READ_TIMEOUT = httpx.Timeout(TIMEOUT_SECONDS, read=_FILE_SECONDS)

Query = list[tuple[str, str | int | float | bool | None]]


class Http:
    """The HTTP client of one server; it can be used from several threads."""

    def __init__(self, url: str, token: str | None, name: str) -> None:
        self.url = _base(url)
        self.headers = {"X-Turnout-Client": name}
        # A token with a line break would fail inside httpx, and the error would show the token.
        if token:
            self.headers["Authorization"] = f"Bearer {_clean(token)}"
        # Loading the machine's certificates takes longer than a call, so only https and proxies do it.
        tls = self.url.startswith("https:") or bool(getproxies())
        self._http = httpx.Client(base_url=self.url, headers=self.headers, timeout=TIMEOUT_SECONDS, verify=tls)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Json:
        return self._answer(self._call("GET", path, params=query or []))

    def post(self, path: str, message: Mapping[str, Any]) -> Json:
        """Send a query as JSON and return the JSON answer; the server ends a query that takes too long."""
        return self._answer(self._call("POST", path, json=dict(message), timeout=_READ_TIMEOUT))

    def file(self, path: str, message: Mapping[str, Any]) -> bytes:
        """Send a query as JSON and return the file that the server answers."""
        response = self._call("POST", path, json=dict(message), timeout=_READ_TIMEOUT)
        if not response.is_success:
            self._answer(response)
        return response.content

    def send(self, path: str, message: Mapping[str, Any], wait: bool) -> Json:
        """Send a control message; with `wait` the answer contains its outcome."""
        # Without a read timeout: the server limits the time of a build and of the wait for its outcome.
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=None if wait else TIMEOUT_SECONDS)
        query = {} if wait else {"wait": "false"}
        return self._answer(self._call("POST", path, json=dict(message), params=query, timeout=timeout))

    def text(self, path: str) -> str:
        response = self._call("GET", path)
        if not response.is_success:
            self._answer(response)
        return response.text

    def put_yaml(self, path: str, text: str, query: Mapping[str, Any]) -> Json:
        """Send a configuration file; the answer contains its outcome, even if that is an error."""
        response = self._call(
            "PUT",
            path,
            content=text.encode(),
            params=dict(query),
            headers={"Content-Type": "application/yaml"},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, read=None),
        )
        answer = wire.parsed(response.content)
        return answer if isinstance(answer, dict) and answer.get("outcome") else self._answer(response)

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        with self._failures():
            return self._http.request(method, path, **request)

    def arrow(self, path: str, query: Query) -> pyarrow.Table:
        """Read an Arrow stream into a table, with generation, version and total in the schema's metadata."""
        pa = need("pyarrow")
        # The buffer grows in place and the table's columns refer to it, so the rows are in memory only once.
        body = bytearray()
        with (
            self._failures(),
            self._http.stream("GET", path, params=[*query, ("format", "arrow")], timeout=_READ_TIMEOUT) as response,
        ):
            if not response.is_success:
                response.read()
                self._answer(response)
            for chunk in response.iter_bytes():
                body += chunk
        try:
            with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
                table = reader.read_all()
        except (pa.ArrowInvalid, OSError) as error:
            raise wire.bad_answer(self.url, f"answered no Arrow stream ({first_line(error)})") from error
        names = ("Generation", "Version", "Total")
        numbers = {f"turnout.{name.lower()}": response.headers.get(f"X-Turnout-{name}", "") for name in names}
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **numbers})

    def chunks(self, path: str, query: Query) -> Iterator[bytes]:
        """Yield the bytes of a file as they arrive."""
        with self._failures(), self._http.stream("GET", path, params=query, timeout=_READ_TIMEOUT) as response:
            if not response.is_success:
                response.read()
                self._answer(response)
            yield from response.iter_bytes()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise TurnoutError(
                code="server_unreachable",
                message=f"no answer from {self.url}: {unreachable_because(error, TIMEOUT_SECONDS)}",
                hint=CLIENT_HINTS["server_unreachable"],
                status=503,
            ) from error

    def _answer(self, response: httpx.Response) -> Json:
        answer = wire.parsed(response.content)
        if response.is_success and isinstance(answer, dict):
            return answer
        error = wire.problem(answer, response.status_code)
        raise error or wire.bad_answer(
            self.url, f"answered {response.status_code} {response.reason_phrase}, not as Turnout does"
        )


def query_of(given: Mapping[str, Any], options: type) -> Query:
    """Return query parameters: one for each item of a list, `where` terms as JSON; None and empty lists are omitted."""
    if unknown := given.keys() - options.__annotations__.keys():
        raise TypeError(f"unknown option {min(unknown)!r}; options: {', '.join(options.__annotations__)}")
    query: Query = []
    for name, value in given.items():
        items = [value] if isinstance(value, (str, int, Mapping)) else value or ()
        query += [(name, json.dumps([dict(one)]) if isinstance(one, Mapping) else one) for one in items]
    return query


def _base(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    if parsed.scheme in ("http", "https") and parsed.host and not parsed.userinfo:
        return str(parsed).rstrip("/")
    # The URL is not shown, because it may contain a password.
    raise TurnoutError(code="bad_url", message="the server's address is not usable", hint=f"such as {DEFAULT_URL}")


def _clean(token: str) -> str:
    token = token.strip()
    if token.isascii() and token.isprintable():
        return token
    raise TurnoutError(
        code="bad_token", message="the token has characters that a header cannot have", hint=CLIENT_HINTS["bad_token"]
    )


def unreachable_because(error: Exception, seconds: float) -> str:
    """Describe why a connection failed; `seconds` was its time limit."""
    if isinstance(error, httpx.TimeoutException):
        # A request has separate limits for connecting and for reading, because a file may take long.
        limits = error.request.extensions["timeout"]
        seconds = limits[type(error).__name__.removesuffix("Timeout").lower()]
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "nothing listens there"
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return f"it took longer than {seconds:g} s"
    return first_line(error)
