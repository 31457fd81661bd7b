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

from faults.attacks.attackers import ATTACKS
from faults.attacks.viewers import Seen, Viewers
from serving import SECONDS

WARM_UP_SECONDS = 5.0
SETTLE_SECONDS = 5.0
MEASURED_SECONDS = 10.0
MOST = 2.0
"""How many times the median gap may be what it was."""

_HTTP = httpx.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What the viewers saw of one attack: without it, just before and some seconds after, and during it."""

    name: str
    without: Seen
    during: Seen

    @property
    def ratio(self) -> float:
        return self.during.median / self.without.median

    @property
    def good(self) -> bool:
        return self.ratio < MOST


def what(name: str) -> str:
    """An attack in a sentence."""
    return " ".join((ATTACKS[name].__doc__ or "").split()).rstrip(".")


def play(names: Sequence[str], folder: Path) -> Iterator[Attacked]:
    """Play them; each as soon as it is known."""
    with _server(folder) as url, asyncio.Runner() as runner:
        viewers = Viewers(url)
        runner.run(viewers.start())
        runner.run(asyncio.sleep(WARM_UP_SECONDS))
        try:
            for name in names:
                yield runner.run(_attacked(name, url, viewers))
        finally:
            runner.run(viewers.stop())


async def _attacked(name: str, url: str, viewers: Viewers) -> Attacked:
    before = await _seen(url, viewers)
    with _process("attackers", name, url):
        await asyncio.sleep(SETTLE_SECONDS)
        during = await _seen(url, viewers)
    await asyncio.sleep(SETTLE_SECONDS)
    after = await _seen(url, viewers)
    slowest = max(before.slowest_probe, after.slowest_probe)
    return Attacked(name, Seen([*before.gaps, *after.gaps], slowest), during)


async def _seen(url: str, viewers: Viewers) -> Seen:
    since = time.monotonic()
    slowest = 0.0
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, limits=_HTTP) as http:
        while time.monotonic() < since + MEASURED_SECONDS:
            for path in ("/healthz", "/readyz"):
                began = time.monotonic()
                answer = await http.get(path)
                assert answer.status_code == 200, f"{path} answered {answer.status_code}: {answer.text}"
                slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.1)
    return Seen(viewers.gaps(since, time.monotonic()), slowest)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    with _process("served", str(folder)) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "the server did not start"
        yield url


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
