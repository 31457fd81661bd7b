"""The web server: puts the application together from calls and page, listens, and stops.

The calls are in the modules that end in `_api.py`. Signals are the caller's business.
"""

import contextlib
import errno
import functools
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from turnout.config import Settings
from turnout.errors import TurnoutError, needs_extra
from turnout.serve.access import PUBLIC, Access, Gate
from turnout.serve.connections import Connection, OpenConnections, Socket
from turnout.serve.control_api import ControlApi
from turnout.serve.kafka_api import KafkaApi
from turnout.serve.limits import HeldBytes, Viewers
from turnout.serve.live.changes import CHANGES_PART
from turnout.serve.live.endpoint import Live
from turnout.serve.live.hub import Hub
from turnout.serve.live.shared import Readers
from turnout.serve.live.summaries import HistorySamples
from turnout.serve.login_api import LoginApi
from turnout.serve.read_api import STOPPING, Api, Services
from turnout.serve.reads import Reads
from turnout.serve.responses import (
    Answers,
    content_security_policy,
    encoded_json,
    on_any_error,
    on_http_error,
    on_turnout_error,
    to_json,
)
from turnout.serve.routes import Call, CallRoute, document, routes_of
from turnout_client.messages import MAX_MESSAGE_BYTES

__all__ = ["Server", "Services", "create_app"]

_STATIC = Path(__file__).parent / "static"
_SITE = Path(__file__).parent / "site"
_NONCE, _LOGIN = "__CSP_NONCE__", "__LOGIN__"
# The event loop accepts so many in one go, and does nothing else meanwhile.
_BACKLOG = 256
# After each send to a viewer the event loop waits so long for its turn while another thread works: with Python's 5 ms,
# a hundred sends would take half a second.
_SWITCH_SECONDS = 0.0005
# With uvicorn's own tick this keeps a stop within two seconds.
_DRAIN_SECONDS = 1
_PING_SECONDS = 20.0
_DOWNLOADS = "server.max_download_megabytes_per_client"
# More than limits.py allows, so that headers a little too large get an answer that says so.
_MAX_HEAD_BYTES = 32 * 1024


def create_app(services: Services, access: Access | None = None, static: Path = _STATIC) -> ASGIApp:
    """The application: calls and page, behind the gate, with one error shape and security headers on everything."""
    access, limits = access or Access(), services.settings.server
    reads = Reads(services.database, limits)
    held = HeldBytes(limits.max_held_megabytes_per_client * 1_000_000, "server.max_held_megabytes_per_client")
    downloads = HeldBytes(limits.max_download_megabytes_per_client * 1_000_000, _DOWNLOADS)
    answers = Answers(reads, held, downloads)
    kept = HeldBytes(held.most // CHANGES_PART, held.setting)
    readers = Readers(reads, held, kept)
    hub = Hub(services.database, services.status, readers)
    samples = HistorySamples(reads, readers.histories)
    viewers = Viewers(limits)
    login = LoginApi(access)

    def adopt(settings: Settings) -> None:
        viewers.limits = reads.limits = settings.server
        held.most = settings.server.max_held_megabytes_per_client * 1_000_000
        kept.most = held.most // CHANGES_PART
        downloads.most = settings.server.max_download_megabytes_per_client * 1_000_000

    services.orchestrator.configuration.listen(adopt)
    calls = [
        *routes_of(Api(services, viewers, reads, answers, access.check_sql)),
        *routes_of(KafkaApi(services, answers)),
        *routes_of(ControlApi(services, answers, access.check_apply)),
        *routes_of(login),
        CallRoute(_page(static / "index.html", services, access)),
    ]
    app = Starlette(
        routes=[
            *calls,
            Route("/mcp", _Agents(access), methods=["POST"]),
            _description(calls, services, access),
            *login.routes(),
            WebSocketRoute("/api/live", Live(hub, services.database.identity(), viewers, access).connect),
            WebSocketRoute("/{path:path}", _no_socket),
            Mount("/static", _Static(directory=static, check_dir=False)),
            Route("/docs", RedirectResponse("/docs/")),
            Mount("/docs", _Static(directory=_SITE, html=True, check_dir=False)),
        ],
        exception_handlers={
            TurnoutError: on_turnout_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
        lifespan=lambda _: samples.taken(),
    )
    # A path is right or wrong; a redirect would only hide a typo in a client.
    app.router.redirect_slashes = False
    return Gate(app, access)


def _description(calls: list[CallRoute], services: Services, access: Access) -> CallRoute:
    """The call that describes all calls, itself included."""

    @functools.lru_cache(maxsize=1)
    def body(sources: tuple[str, ...], views: tuple[str, ...]) -> bytes:
        public = PUBLIC if access.wants_token else None
        return to_json(document([*calls, route], sources, views, public))

    @Call("/api/openapi.json", "application/json")
    async def describe(_: Request) -> Response:
        """All calls for programs: an OpenAPI 3.1 document."""
        settings = services.settings
        made = await anyio.to_thread.run_sync(body, tuple(settings.sources), settings.joined_views)
        return encoded_json(made)

    route = CallRoute(describe)
    return route


def _page(file: Path, services: Services, access: Access) -> Callable[[Request], Awaitable[Response]]:
    """The page itself. Browsers ask for it each time, so that it never asks for parts of an older build."""

    @Call("/", "text/html", errors=("page_not_built",))
    async def page(request: Request) -> Response:
        """The page for people."""
        try:
            html = await anyio.Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise TurnoutError(
                "page_not_built", "the web page is not built; the API works without it", "`make setup` builds it"
            ) from error
        # The grid makes its styles in the browser; the page passes the nonce on, so that it alone may.
        nonce = secrets.token_urlsafe(16)
        # What can be shown in a frame has nothing to press that changes anything: nobody can be tricked into it.
        embedded = request.query_params.get("embed") == "1"
        ancestors = " ".join(services.settings.server.embed_origins) if embedded else ""
        policy = content_security_policy(f"'self' 'nonce-{nonce}'", ancestors or "'none'")
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": policy}
        html = html.replace(_NONCE, nonce).replace(_LOGIN, "yes" if access.login else "no")
        return HTMLResponse(html, headers=headers)

    return page


class _Agents:
    """MCP for agents. Its packages are optional, and imported with the first request."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._server: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._server = self._server or await anyio.to_thread.run_sync(self._made)
        await self._server.handle(scope, receive, send)

    def _made(self) -> Any:
        try:
            from turnout.serve.mcp_server import AgentServer
        except ModuleNotFoundError as error:
            raise needs_extra("mcp") from error
        return AgentServer(self._access)


class _Static(StaticFiles):
    """The parts of the page, and the documentation. Browsers keep files whose name changes with their content."""

    async def check_config(self) -> None:
        """Accept a folder that is not built: each file is just not found."""

    def file_response(self, full_path: Any, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(full_path, *args, **kwargs)
        hashed = Path(full_path).parent.name == "assets"
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
        return response


async def _no_socket(_: WebSocket) -> None:
    raise HTTPException(404)


class Server(uvicorn.Server):
    """One server. It binds its address at once, so that a port in use is reported before anything else starts."""

    def __init__(self, app: ASGIApp, host: str, port: int, open_connections: OpenConnections | None = None) -> None:
        self._socket = _listen(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        open_connections = open_connections or OpenConnections()
        trusted_proxies = open_connections.limits.trusted_proxies
        config = uvicorn.Config(
            self._with_stopping(app),
            http=cast(Any, functools.partial(Connection, open_connections)),
            ws=cast(Any, functools.partial(Socket, open_connections)),
            backlog=_BACKLOG,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_ping_interval=_PING_SECONDS,
            ws_ping_timeout=_PING_SECONDS,
            # A few bytes could otherwise become a message of many megabytes.
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            # Only these are believed on where a request comes from, whatever the environment says.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            lifespan="auto",
            log_config=None,
            # Below that it logs addresses with their queries, and the headers of WebSockets with their tokens.
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        super().__init__(config)
        self._on_ready: Callable[[int], None] = lambda _: None

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def run_until_stop(self, on_ready: Callable[[int], None]) -> None:
        """Serve until `stop()`; `on_ready` gets the real port once requests are answered."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._on_ready = on_ready
        try:
            await self.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Stop soon, from any thread: requests under way have a second to finish."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready(self.port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def _with_stopping(self, app: ASGIApp) -> ASGIApp:
        """Let a call that waits see that the server stops, so that it answers in time."""

        async def stoppable(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, STOPPING: lambda: self.should_exit}, receive, send)

        return stoppable


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else str(error)
        hint = "give another server.port (0 takes a free one) or server.host"
        if error.errno == errno.EADDRINUSE:
            why, hint = "the port is in use", f"end the program that uses it, or {hint}"
        raise TurnoutError("address_unavailable", f"server: cannot listen on {host}:{port}: {why}", hint) from error
