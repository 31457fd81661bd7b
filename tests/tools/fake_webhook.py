"""A fake webhook: a test sets its answers and reads the received requests."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """The received requests, and the answer: a status, or a function that answers."""

    def __init__(self) -> None:
        self.status = 200
        self.location = ""
        self.loses = False
        """Whether it reads requests, but closes the connection without an answer."""
        self.answer: Any = None
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def events(self, alert: str | None = None) -> list[tuple[str, str | None]]:
        """Return each event once, in order of arrival; a webhook may receive an event several times."""
        every = {one["id"]: one for body in list(self.bodies) for one in body["events"]}
        return [(one["event"], one["key"]) for one in every.values() if alert in (None, one["alert"])]


@contextmanager
def hooked(port: int = 0, context: ssl.SSLContext | None = None, hook: Hook | None = None) -> Iterator[Hook]:
    """Run a webhook on loopback during a `with` block; `hook` continues an earlier one."""
    with listening(hook or Hook(), port, context) as one:
        yield one


@contextmanager
def listening(hook: Hook, port: int, context: ssl.SSLContext | None) -> Iterator[Hook]:

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.headers.append({name.lower(): value for name, value in self.headers.items()})
            if hook.answer is not None:
                hook.answer(self)
                return
            if hook.status < 300:
                hook.bodies.append(body)
            if hook.loses:
                return
            self.send_response(hook.status)
            if hook.location:
                self.send_header("Location", hook.location)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore errors, because some tests have clients that disconnect early."""

    server = Server(("127.0.0.1", port), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    hook.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
