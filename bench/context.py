"""The context of all measures: sizes, a folder, the broker, and the records on it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import records
from records import Pair
from turnout.testing import delete_topic


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes and durations of the measures; `--quick` has smaller ones."""

    records: int = 1_000_000
    runs: int = 3
    seconds: float = 10.0
    compile_seconds: float = 15.0
    """The seconds of load before costs are measured, in which the JVMs compile frequently used code."""
    first_seconds: float = 30.0
    """The seconds for which the latency of a new process is measured, before its steady state."""
    sustained_seconds: float = 60.0
    idle_seconds: float = 20.0
    swap_rows: int = 100_000
    swaps: int = 10
    growth: tuple[int, ...] = (100_000, 1_000_000, 5_000_000)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


QUICK = Sizes(
    records=20_000,
    runs=1,
    seconds=5.0,
    compile_seconds=0.0,
    first_seconds=5.0,
    sustained_seconds=10.0,
    idle_seconds=5.0,
    swap_rows=5_000,
    swaps=3,
    growth=(5_000, 20_000, 50_000),
)


@dataclass(slots=True)
class Bench:
    """A run of the bench."""

    sizes: Sizes
    folder: Path
    bootstrap: str
    console: Console
    peers: Sequence[str] = ()
    """The peers to run in the catch-up; empty means all."""
    _pairs: dict[str, Pair] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {text}", highlight=False)

    def pair(self, name: str, count: int, updates: int = 1) -> Pair:
        """Return the topics with this name; the first call fills them."""
        if name not in self._pairs:
            pair = Pair(f"{name}-users", f"{name}-accounts", count, updates)
            with Progress(console=self.console, transient=True) as progress:
                seconds = records.write(self.bootstrap, pair, progress)
            self.say(f"produced {2 * count:,} records to {pair.users} and {pair.accounts} in {seconds:.1f} s")
            self._pairs[name] = pair
        return self._pairs[name]

    def drop(self, name: str) -> None:
        """Delete topics that no later measure reads, to free disk space."""
        pair = self._pairs.pop(name)
        for topic in pair.topics:
            delete_topic(self.bootstrap, topic)

    @contextmanager
    def own_folder(self, name: str) -> Iterator[Path]:
        """Yield a folder that is removed after the measure, because stores are large."""
        folder = self.folder / name
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
