"""The web server: the application, put together from calls and page, and its life from listening to stopped.

What the calls do is `api.py` and `control_api.py`. Signals belong to the caller: a server stops when `stop()` is
called.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.errors import TurnoutError
from turnout.server.api import (
    SECURITY_HEADERS,
    STOPPING,
    Api,
    Services,
    on_any_error,
    on_http_error,
    on_turnout_error,
)
from turnout.server.control_api import ControlApi

__all__ = ["Server", "Services", "create_app", "serve"]

_STATIC = Path(__file__).parent / "static"
_BACKLOG = 1024
# With uvicorn's own tick this keeps a stop within two seconds.
_DRAIN_SECONDS = 1


def create_app(services: Services) -> Starlette:
    """The application: calls, page, one error shape, security headers on everything."""
    app = Starlette(
        routes=[
            *Api(services).routes(),
            *ControlApi(services).routes(),
            Route("/", _page),
            Mount("/static", _Static(directory=_STATIC)),
        ],
        middleware=[Middleware(_SecurityHeaders)],
        exception_handlers={
            TurnoutError: on_turnout_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
    )
    # A path is right or wrong; a redirect would only hide a typo in a client.
    app.router.redirect_slashes = False
    return app


class _Static(StaticFiles):
    """The parts of the page. Browsers ask each time whether one changed, so that all are of one version."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _page(_: Request) -> Response:
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


class _SecurityHeaders:
    """Adds the headers to every answer that passes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Server:
    """One server. Its address is taken at once: a port in use shows before anything else starts."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._socket = _listen(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self._with_stopping(app),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        self._uvicorn = _Uvicorn(config)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def run(self, on_ready: Callable[[int], None] | None = None) -> None:
        """Serve until `stop()`; `on_ready` gets the real port once requests are answered."""
        self._uvicorn.on_ready = (lambda: on_ready(self.port)) if on_ready else None
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Stop soon, from any thread: requests under way have a second to finish."""
        self._uvicorn.should_exit = True

    def _with_stopping(self, app: ASGIApp) -> ASGIApp:
        """Lets a call that waits see that the server stops, so that it answers in time."""

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, STOPPING: lambda: self._uvicorn.should_exit}, receive, send)

        return told


async def serve(app: ASGIApp, host: str, port: int, ready_callback: Callable[[int], None] | None = None) -> None:
    """Serve until cancelled; ends in order then."""
    server = Server(app, host, port)
    running = asyncio.ensure_future(server.run(ready_callback))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.stop()
        await running
        raise


class _Uvicorn(uvicorn.Server):
    """Uvicorn that says when it listens, and leaves signals alone."""

    on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_ready is not None:
            self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise TurnoutError(
            code="address_unavailable",
            message=f"server: cannot listen on {host}:{port}: {error.strerror or error}",
            hint="give another server.port (0 takes a free one) or server.host",
        ) from error
