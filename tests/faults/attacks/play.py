"""Attacks are played one after the other beside the same viewers; each is measured before, during and after it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from faults.attacks.attackers import ATTACKS
from faults.attacks.viewers import Seen, Viewers
from http_server import SECONDS

WARM_UP_SECONDS = 5.0
SETTLE_SECONDS = 5.0
SETTLE_LONGER = {"unread-changes": 15.0}
"""Attacks that fill memory take their time."""
MEASURED_SECONDS = 10.0
MOST = 2.0
"""How many times the median gap may be what it was, beside attackers of low priority."""
MOST_BYTES = 640_000_000
"""How much more memory the server may take: what one client may have, and a quarter more for changes."""
LOW, ORDINARY = 19, 0
"""Priorities: as from machines of their own, where attacking costs the server nothing; and as from this one."""

_HTTP = httpx.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What was seen of one attack: without it, just before and some seconds after; and of each priority, during it."""

    name: str
    without: Seen
    low: Seen
    ordinary: Seen

    def ratio(self, during: Seen) -> float:
        return during.median / self.without.median

    @property
    def grown_bytes(self) -> int:
        """How much more memory the server took than before."""
        return max(0, max(self.low.memory_bytes, self.ordinary.memory_bytes) - self.without.memory_bytes)

    @property
    def slowest_probe(self) -> float:
        return max(self.low.slowest_probe, self.ordinary.slowest_probe)

    @property
    def good(self) -> bool:
        """An attacker of ordinary priority takes the cores of this machine: what that costs is told, not bounded."""
        return self.ratio(self.low) < MOST and self.grown_bytes < MOST_BYTES


def what(name: str) -> str:
    """An attack in a sentence."""
    return " ".join((ATTACKS[name].__doc__ or "").split()).rstrip(".")


def play(names: Sequence[str], folder: Path) -> Iterator[Attacked]:
    """Play them; each as soon as it is known."""
    with _server(folder) as (url, server), asyncio.Runner() as runner:
        viewers = Viewers(url)
        runner.run(viewers.start())
        runner.run(asyncio.sleep(WARM_UP_SECONDS))
        try:
            for name in names:
                yield runner.run(_attacked(name, url, server, viewers))
        finally:
            runner.run(viewers.stop())


async def _attacked(name: str, url: str, server: psutil.Process, viewers: Viewers) -> Attacked:
    before = await _seen(url, server, viewers)
    during = []
    for niceness in (LOW, ORDINARY):
        with _process("attackers", name, url, str(niceness)):
            await asyncio.sleep(SETTLE_LONGER.get(name, SETTLE_SECONDS))
            during.append(await _seen(url, server, viewers))
        await asyncio.sleep(SETTLE_SECONDS)
    after = await _seen(url, server, viewers)
    without = Seen([*before.gaps, *after.gaps], max(before.slowest_probe, after.slowest_probe), before.memory_bytes)
    return Attacked(name, without, *during)


async def _seen(url: str, server: psutil.Process, viewers: Viewers) -> Seen:
    since = time.monotonic()
    slowest, memory = 0.0, 0
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, limits=_HTTP) as http:
        while time.monotonic() < since + MEASURED_SECONDS:
            for path in ("/healthz", "/readyz"):
                began = time.monotonic()
                answer = await http.get(path)
                assert answer.status_code == 200, f"{path} answered {answer.status_code}: {answer.text}"
                slowest = max(slowest, time.monotonic() - began)
            memory = max(memory, server.memory_info().rss)
            await asyncio.sleep(0.1)
    return Seen(viewers.gaps(since, time.monotonic()), slowest, memory)


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    with _process("served", str(folder)) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "the server did not start"
        yield url, psutil.Process(process.pid)


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own: what it works on is not at the expense of who measures."""
    command = [sys.executable, "-m", f"faults.attacks.{module}", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()
