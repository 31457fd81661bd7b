"""Answers of the HTTP server: JSON and files from the store, errors in their one shape, and the headers of all."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TypeVar

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.serve.formats import TableFile, to_json
from turnout.serve.limits import HeldBytes, Hold, TooOften, caller
from turnout.serve.reads import Reads, StoreRead, cancelled

log = logging.getLogger(__name__)
T = TypeVar("T")

_CHUNK_BYTES = 256 * 1024


def content_security_policy(styles: str, ancestors: str = "'none'") -> str:
    """The page may load only files of its own server. The grid has its small images in its styles, as data.

    `ancestors`: whose pages may show it in a frame.
    """
    return (
        f"default-src 'self'; style-src {styles}; img-src 'self' data:; font-src 'self' data:; object-src 'none'; "
        f"base-uri 'none'; form-action 'self'; frame-ancestors {ancestors}"
    )


SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": content_security_policy("'self'"),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Pages of server.allowed_origins read by CORS, which this does not concern.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class HeldResponse(Response):
    """An answer that is sent in pieces; it counts for its client until it was sent or has failed."""

    def __init__(self, content: IO[bytes], hold: Hold, headers: dict[str, str]) -> None:
        super().__init__(headers=headers | {"Cache-Control": "no-store"})
        self._content = content
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            more = True
            while more:
                chunk = await self._chunk()
                more = len(chunk) == _CHUNK_BYTES
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
        finally:
            self._content.close()
            self._hold.release()

    async def _chunk(self) -> bytes:
        if isinstance(self._content, BytesIO):
            return self._content.read(_CHUNK_BYTES)
        return await anyio.to_thread.run_sync(self._content.read, _CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class Answers:
    """Reads the store for requests; `held` counts answers in memory, `downloads` files."""

    _reads: Reads
    _held: HeldBytes
    _downloads: HeldBytes

    async def json(
        self, request: Request, work: Callable[[StoreRead], bytes], *, large: bool = False, sliced: bool = False
    ) -> Response:
        body = await self.read(request, work, large=large, sliced=sliced)
        hold = self._held.begin(caller(request.scope))
        hold.grow_to(len(body))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return HeldResponse(BytesIO(body), hold, headers)

    async def file(self, request: Request, work: Callable[[StoreRead, Hold], TableFile]) -> Response:
        hold = self._downloads.begin(caller(request.scope))
        try:
            file = await self.read(request, lambda store: work(store, hold), large=True)
        except BaseException:
            hold.release()
            raise
        return HeldResponse(file.content, hold, file.headers)

    async def read(
        self, request: Request, work: Callable[[StoreRead], T], *, large: bool = False, sliced: bool = False
    ) -> T:
        """Do `work` for as long as the client waits. The body of the request must have been read before."""
        reads = self._reads.run([caller(request.scope)], work, large=large, sliced=sliced)
        reading = asyncio.ensure_future(reads)
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise cancelled()  # to nobody
            return reading.result()
        finally:
            reading.cancel()
            gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return encoded_json(to_json(value), status, headers)


def encoded_json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    all_headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(body, status, media_type="application/json", headers=all_headers)


def error_response(error: TurnoutError, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request, or to a WebSocket handshake that is not accepted yet."""
    headers = dict(headers or {})
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooOften):
        headers["Retry-After"] = str(error.retry_after)
        # What was sent along is not looked at: to refuse each of many requests costs as much as to answer it.
        headers["Connection"] = "close"
    return json_response(error.as_json(), error.status, headers)


def on_turnout_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnoutError)
    return error_response(error)


def on_http_error(request: Request, error: Exception) -> Response:
    """The errors of Starlette: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException)
    # A WebSocket has no method.
    path, method = show(request.url.path), request.scope.get("method", "a WebSocket")
    known = {
        404: ("not_found", f"nothing is at {path}", "GET /api/tables lists the tables; the page is at /"),
        405: ("method_not_allowed", f"{method} does not work on {path}", "the Allow header has what does"),
    }
    code, message, hint = known.get(error.status_code, ("bad_request", error.detail, ""))
    headers = dict(error.headers or {})
    if "Allow" in headers:  # of one route: others of the same path take other methods
        same = [r for r in request.app.routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
        headers["Allow"] = ", ".join(sorted({method for route in same for method in route.methods or ()}))
    return error_response(TurnoutError(code, message, hint, status=error.status_code), headers)


def on_any_error(request: Request, error: Exception) -> Response:
    """A fault of the server: logged in full, answered without internals."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    shaped = TurnoutError("internal_error", "the server failed on this request", "its log has the details")
    return error_response(shaped)
