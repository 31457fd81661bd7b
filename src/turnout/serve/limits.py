"""Limits for one client: requests a second, the size of a request's head, places for viewers, bytes unread.

`requests.py` limits bodies, `connections.py` open connections.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from starlette.types import Scope

from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError

CLIENT = "turnout.client"
"""In the scope of an admitted request: the client that it counts for."""

MAX_URL_BYTES = 8_000
MAX_HEADER_BYTES = 8_000
MAX_HEADERS_BYTES = 16_000
MAX_HEADERS = 100
_CLIENTS = 10_000
_SUBSCRIPTIONS = ("window", "changes", "summary", "difference", "sql", "status")

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Rate:
    """A steady rate, and a `burst` after a quiet time."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one client. Fifty viewers behind one proxy are one client, so there is room for all of them."""

    reads: Rate = Rate(200, 1000)
    controls: Rate = Rate(20, 600)
    wrong_tokens: Rate = Rate(1, 10)


class TooOften(TurnoutError):  # noqa: N818 - it reads as the sentence it says
    """A client asked too often; its answer says when to come back."""

    def __init__(self, message: str, wait_seconds: float, hint: str) -> None:
        self.retry_after = max(1, math.ceil(wait_seconds))
        super().__init__("too_many_requests", message, f"wait {self.retry_after} s; {hint}")


class Buckets:
    """A token bucket for each client; forgets the client that has been away for longest."""

    def __init__(self, rate: Rate, most: int = _CLIENTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = most
        self._clock = clock
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._filled)

    def wait_seconds(self, client: str, amount: int = 1) -> float:
        """Seconds until the client may take `amount`; 0 if it may now."""
        return max(0.0, (amount - self._level(client)) / self._rate.per_second)

    def take(self, client: str, amount: int = 1) -> float:
        """Take `amount` and return 0, or return the seconds to wait."""
        wait = self.wait_seconds(client, amount)
        if wait == 0:
            self.spend(client, amount)
        return wait

    def spend(self, client: str, amount: float) -> None:
        """Take `amount` in any case: a client in debt waits longer."""
        self._filled[client] = self._level(client) - amount, self._clock()
        self._filled.move_to_end(client)
        if len(self._filled) > self._most:
            self._filled.popitem(last=False)

    def _level(self, client: str) -> float:
        level, then = self._filled.get(client, (float(self._rate.burst), 0.0))
        return min(self._rate.burst, level + (self._clock() - then) * self._rate.per_second)


class Viewers:
    """Counts live connections and their subscriptions, in all and of each client, and refuses too many."""

    def __init__(self, settings: ServerSettings) -> None:
        self.limits = settings
        self._places: Counter[str] = Counter()
        self._subscribed: Counter[str] = Counter()
        self._of_kind: Counter[str] = Counter()

    @property
    def subscriptions(self) -> dict[str, int]:
        """How many of each kind there are."""
        return {kind: self._of_kind[kind] for kind in _SUBSCRIPTIONS}

    @property
    def count(self) -> int:
        return self._places.total()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Hold a place; TurnoutError, before the socket is accepted, if there is none."""
        most, share = self.limits.max_viewers, self.limits.max_viewers_per_client
        if self.count >= most:
            raise _too_many_viewers(f"all {most} places for viewers are taken", "server.max_viewers")
        if self._places[client] >= share:
            text = f"this client has {share} places for viewers, which is the most for one"
            raise _too_many_viewers(text, "server.max_viewers_per_client")
        with _counted(self._places, client):
            yield

    @contextmanager
    def subscription(self, client: str, kind: str) -> Iterator[None]:
        """Count a subscription; TurnoutError when its client has too many."""
        most = self.limits.max_subscriptions_per_client
        if self._subscribed[client] >= most:
            raise TurnoutError(
                "too_many_subscriptions",
                f"this client has {most} subscriptions, which is the most",
                "unsubscribe from some, or raise server.max_subscriptions_per_client",
            )
        with _counted(self._subscribed, client), _counted(self._of_kind, kind):
            yield


@contextmanager
def _counted(counter: Counter[str], key: str) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        one_less(counter, key)


def one_less(counter: Counter[K], key: K) -> None:
    """Count one less; removes a key at zero."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


def _too_many_viewers(message: str, setting: str) -> TurnoutError:
    return TurnoutError("too_many_viewers", message, f"try again soon, or raise {setting}")


class HeldBytes:
    """Counts the bytes that the server holds for each client, until it has read them. Used from any thread.

    A client that asks and does not read would otherwise fill the memory or the disk.
    """

    def __init__(self, most: int, setting: str) -> None:
        self.most = most
        self.setting = setting
        self._lock = threading.Lock()
        self._objects: defaultdict[str, weakref.WeakKeyDictionary[object, int]] = defaultdict(weakref.WeakKeyDictionary)

    def of(self, client: str) -> int:
        with self._lock:
            return self._of(client)

    def has_room(self, client: str) -> bool:
        return self.of(client) < self.most

    def keep(self, client: str, what: object, size: int) -> None:
        """Count an object for as long as it lives; once for each client, however often it is given."""
        with self._lock:
            for known in [known for known, objects in self._objects.items() if not objects]:
                del self._objects[known]
            self._objects[client][what] = size

    def admit(self, client: str, what: object, size: int) -> bool:
        """Count an object where it fits, or where the client has no other of its kind; whether it is counted."""
        with self._lock:
            others = [known for known in list(self._objects[client]) if known is not what]
            rest = self._of(client) - self._objects[client].get(what, 0)
            if rest + size > self.most and any(isinstance(known, type(what)) for known in others):
                return False
            self._objects[client][what] = size
            return True

    def forget(self, client: str, what: object) -> None:
        """Count an object no more, although it may live on for a while."""
        with self._lock:
            self._objects[client].pop(what, None)
            if not self._objects[client]:
                del self._objects[client]

    def grow(self, client: str, hold: Hold, size: int) -> None:
        with self._lock:
            if hold.is_released:
                return
            known = self._objects[client].get(hold, 0)
            if size > known and self._of(client) - known + size > self.most:
                raise self.too_much()
            self._objects[client][hold] = size

    def _of(self, client: str) -> int:
        # Copied: objects may be collected while they are counted.
        return sum(list(self._objects[client].values())) if client in self._objects else 0

    def too_much(self) -> TurnoutError:
        return TurnoutError(
            "too_much_unread",
            f"more than {self.most // 1_000_000} MB are held for this client already",
            f"read, or close, what was asked for before; ask for less, or raise {self.setting}",
        )


@dataclass(slots=True, eq=False, weakref_slot=True)
class Hold:
    """The bytes of one answer."""

    _held: HeldBytes
    _client: str
    is_released: bool = False

    def grow_to(self, size: int) -> None:
        """TurnoutError if that is too much for the client. Does nothing after `release`."""
        self._held.grow(self._client, self, size)

    def release(self) -> None:
        self.is_released = True
        self._held.forget(self._client, self)


def check_size(scope: Scope) -> None:
    """Refuse a request whose address or headers are too large."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
        raise TurnoutError(
            "url_too_long",
            f"the address has more than the {MAX_URL_BYTES} bytes allowed",
            "ask for fewer columns or terms; `in (...)` lists can be split over several requests",
        )
    sizes = [len(name) + len(value) for name, value in scope["headers"]]
    if len(sizes) > MAX_HEADERS or sum(sizes) > MAX_HEADERS_BYTES or max(sizes, default=0) > MAX_HEADER_BYTES:
        raise headers_too_large()


def headers_too_large() -> TurnoutError:
    return TurnoutError(
        "headers_too_large",
        f"the headers have more than the {MAX_HEADERS_BYTES} bytes or {MAX_HEADERS} lines allowed",
        f"send fewer, each below {MAX_HEADER_BYTES} bytes; large cookies of other sites on this name are a cause",
    )


def caller(scope: Scope) -> str:
    """The client that an admitted request counts for: its token, or its address where there are no tokens."""
    return str(scope.get(CLIENT) or client_of(scope))


def client_of(scope: Scope) -> str:
    """The client of a request, by its address."""
    return host_name(client_host(scope))


def client_host(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


@lru_cache(maxsize=_CLIENTS)
def host_name(host: str) -> str:
    """An address as a client. An IPv6 network counts as one: each of its machines has 2^64 addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
