"""Work on the store for those who follow: a store that is away comes back, any other error is the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnout.errors import TurnoutError
from turnout.serve.live.encoding import unexpected

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS = 1.0


async def retried(work: Callable[[], Awaitable[T]], fault: str) -> T:
    """Do `work`, again while the store is away. Any other failure is a TurnoutError; `fault` is for the log."""
    while True:
        try:
            return await work()
        except TurnoutError as error:
            if error.code != "store_unavailable":
                raise
            await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            log.exception("%s", fault)
            raise unexpected() from error
