"""Answers that are read from the store: JSON or a file, for as long as the client waits, counted until it took them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from turnout.serve.formats import TableFile
from turnout.serve.limits import HeldBytes, Hold, caller
from turnout.serve.reads import Reading, Reads, cancelled
from turnout.serve.responses import HeldResponse

T = TypeVar("T")


class Answers:
    """Reads for requests; `held` counts answers in memory, `downloads` files."""

    def __init__(self, reads: Reads, held: HeldBytes, downloads: HeldBytes) -> None:
        self._reads = reads
        self._held = held
        self._downloads = downloads

    async def json(self, request: Request, work: Callable[[Reading], bytes], *, large: bool = False) -> Response:
        body = await self.read(request, work, large=large)
        hold = self._held.begin(caller(request.scope))
        hold.grow_to(len(body))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return HeldResponse(BytesIO(body), hold, headers)

    async def file(self, request: Request, work: Callable[[Reading, Hold], TableFile]) -> Response:
        hold = self._downloads.begin(caller(request.scope))
        try:
            file = await self.read(request, lambda store: work(store, hold), large=True)
        except BaseException:
            hold.release()
            raise
        return HeldResponse(file.content, hold, file.headers)

    async def read(self, request: Request, work: Callable[[Reading], T], *, large: bool = False) -> T:
        """What `work` reads, for as long as the client waits for it. A body must have been read before."""
        reading = asyncio.ensure_future(self._reads.run([caller(request.scope)], work, large=large))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise cancelled()  # to nobody
            return reading.result()
        finally:
            reading.cancel()
            gone.cancel()


async def _gone(request: Request) -> None:
    """Until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
