"""A fake schema registry or identity provider with an answer for each path."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Scripted:
    """A server with an answer for each path; `heard` has the path and headers of each call.

    An answer is a text, a value that is sent as JSON, or a function that writes the body.
    """

    def __init__(self, answers: dict[str, tuple[int, Any]]) -> None:
        self.answers = answers
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def headers(self, path: str) -> dict[str, str]:
        return next(headers for heard, headers in self.heard if heard == path)


@contextmanager
def scripted(answers: dict[str, tuple[int, Any]], tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    script = Scripted(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            status, answer = script.answers.get(self.path, (404, "<html>nothing here</html>"))
            self.send_response(status)
            self.end_headers()
            if callable(answer):
                answer(self)
                return
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore errors, because clients leave before the end of an answer that is too long."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    script.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
