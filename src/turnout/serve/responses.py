"""Answers of the HTTP server: JSON, large ones in pieces, errors in their one shape, and the headers of all."""

from __future__ import annotations

import logging
from io import BytesIO
from typing import IO

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from turnout.errors import TurnoutError
from turnout.serve.formats import to_json
from turnout.serve.limits import Hold
from turnout.store.query.values import show

log = logging.getLogger(__name__)

_CHUNK_BYTES = 256 * 1024


def content_security_policy(styles: str) -> str:
    """What the page may load: only files of its own server. The grid has its small images in its styles, as data."""
    return (
        f"default-src 'self'; style-src {styles}; img-src 'self' data:; font-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
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
    """An answer on its way in pieces, counted for its client until the last is taken, whatever becomes of it."""

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


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    all_headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(to_json(value), status, media_type="application/json", headers=all_headers)


def error_response(error: TurnoutError, headers: dict[str, str] | None = None) -> Response:
    return json_response(error.as_json(), error.status, headers)


def on_turnout_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnoutError)
    return error_response(error)


def on_http_error(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: unknown paths, wrong methods."""
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
    """A fault of ours: logged in full, answered without internals."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    shaped = TurnoutError("internal_error", "the server failed on this request", "its log has the details")
    return error_response(shaped)
