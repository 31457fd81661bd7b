"""A subscription whose events are each the whole of something: a slow consumer gets only the newest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

from turnout.client.events import Json
from turnout.client.subscription import Subscription

E = TypeVar("E")


class NewestSubscription(Subscription[E]):
    """Keeps the newest message of the server."""

    _answer: ClassVar[str]
    """The type of the messages that it is sent."""

    _newest: Json | None = None
    _collected = False

    @property
    def latest(self) -> E | None:
        """The newest, whether or not a consumer has seen it; None before the first."""
        newest = self._newest
        return None if newest is None else self._event(newest, swapped=False)

    def _position(self) -> tuple[int, int]:
        assert self._newest is not None
        return self._newest["generation"], self._newest["version"]

    def _apply(self, message: Json) -> bool:
        if message["type"] == self._answer:
            self._newest, self._collected = message, False
            return True
        # `current` before the first rows would show nothing for ever.
        return message["type"] == "current" and self._newest is not None

    def _collect(self) -> Callable[[], E] | None:
        message = self._newest
        if message is None or self._collected:
            return None
        self._collected, swapped = True, self._swapped(message["generation"])
        return lambda: self._event(message, swapped)

    @abstractmethod
    def _event(self, message: Json, swapped: bool) -> E:
        """What a consumer gets of a message."""
