"""HTTP requests that can be read in one way only.

Refused is what h11 accepts and a proxy in front may read in another way: a head whose lines end with a bare line feed,
and a request with both Content-Length and Transfer-Encoding.
"""

from __future__ import annotations

from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer


class StrictRequests(h11.Connection):
    """The server's side of one connection."""

    def __init__(self, max_incomplete_event_size: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._receive_buffer = _StrictLines()

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class _StrictLines(ReceiveBuffer):
    """Received bytes, whose lines end with CR and LF."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            taken = before[: len(before) - len(self)]
            if taken.count(b"\n") != taken.count(b"\r\n"):
                raise h11.RemoteProtocolError("a line that ends with a bare line feed")
        return lines
