"""How much one client may ask for: requests a second, the size of a request's head, and places for viewers.

Bodies and messages are measured where they are read; open connections are counted in `connections.py`.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Scope

from turnout.errors import TurnoutError

MAX_URL_BYTES = 8_000
MAX_HEADER_BYTES = 8_000
MAX_HEADERS_BYTES = 16_000
MAX_HEADERS = 100
_CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second for ever, and `burst` at once after a quiet time."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What one client may do. Fifty viewers behind one proxy are one client, so there is room for all of them."""

    reads: Rate = Rate(200, 1000)
    controls: Rate = Rate(20, 600)
    wrong_tokens: Rate = Rate(1, 10)


class TooOften(TurnoutError):  # noqa: N818 - it reads as the sentence it says
    """A client asked too often; told apart because its answer says when to come back."""

    def __init__(self, message: str, wait_seconds: float) -> None:
        self.retry_after = max(1, math.ceil(wait_seconds))
        hint = f"wait {self.retry_after} s; for rows as they change, subscribe at /api/live instead of asking again"
        super().__init__(code="too_many_requests", message=message, hint=hint, status=429)


class Buckets:
    """A token bucket for each client; those who have not come for longest are forgotten first."""

    def __init__(self, rate: Rate, most: int = _CLIENTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = most
        self._clock = clock
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._filled)

    def wait_seconds(self, client: str) -> float:
        """How long the client must wait before it may take; 0 when it need not."""
        return max(0.0, (1 - self._level(client)) / self._rate.per_second)

    def take(self, client: str) -> float:
        """Take one, or tell how long to wait for it."""
        wait = self.wait_seconds(client)
        if wait == 0:
            self._filled[client] = self._level(client) - 1, self._clock()
            self._filled.move_to_end(client)
            if len(self._filled) > self._most:
                self._filled.popitem(last=False)
        return wait

    def _level(self, client: str) -> float:
        level, then = self._filled.get(client, (float(self._rate.burst), 0.0))
        return min(self._rate.burst, level + (self._clock() - then) * self._rate.per_second)


class Viewers:
    """Places for open subscriptions: so many, and no more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0
        self.subscriptions: Counter[str] = Counter({"window": 0, "changes": 0, "status": 0})
        """How many of each kind they have; counted by their connections."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place; TurnoutError, to be answered before the socket is accepted, when all are taken."""
        if self.count >= self._most:
            raise TurnoutError(
                code="too_many_viewers",
                message=f"all {self._most} places for viewers are taken",
                hint="try again soon, or raise server.max_viewers",
                status=503,
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


def check_size(scope: Scope) -> None:
    """Refuse a request whose address or headers are larger than any honest one's."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
        raise TurnoutError(
            code="url_too_long",
            message=f"the address has more than the {MAX_URL_BYTES} bytes allowed",
            hint="ask for fewer columns or terms; `in (...)` lists can be split over several requests",
            status=414,
        )
    sizes = [len(name) + len(value) for name, value in scope["headers"]]
    if len(sizes) > MAX_HEADERS or sum(sizes) > MAX_HEADERS_BYTES or max(sizes, default=0) > MAX_HEADER_BYTES:
        raise headers_too_large()


def headers_too_large() -> TurnoutError:
    return TurnoutError(
        code="headers_too_large",
        message=f"the headers have more than the {MAX_HEADERS_BYTES} bytes or {MAX_HEADERS} lines allowed",
        hint=f"send fewer, each below {MAX_HEADER_BYTES} bytes; large cookies of other sites on this name are a cause",
        status=431,
    )


def client_of(scope: Scope) -> str:
    """Where a request comes from. An IPv6 network counts as one: each of its machines has 2^64 addresses."""
    client = scope.get("client")
    host = str(client[0]) if client else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
