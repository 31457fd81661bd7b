"""Draw timelines of catch-ups: when each stage runs, and how many cores are wanted meanwhile.

If few cores are wanted, something is waiting. A core is wanted while a thread runs or waits for a core; on a busy
machine short work wants a core for longer. `recorder.py` records the stages, Spark's event log the tasks, and `/proc`
the threads.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

import psutil

from catch_up import VARIANTS
from context import Bench
from recorder import STAGES
from turnout.testing import wait_until
from turnout_side import SHORT_LINGER, TurnoutSide, swap_seconds

COLUMNS = 100
CORES = os.cpu_count() or 1
JVM, DRIVER, WORKERS = KINDS = ("JVM", "driver", "Python workers")
ALL = "all"
_TASKS = ("tasks of Spark: read", "tasks of Spark: views, small reads")
_LEVELS = "·▁▂▃▄▅▆▇█"
"""The signs from no core to all cores or more."""
_SAMPLE_SECONDS = 0.05
_RECORDER = Path(__file__).resolve().parent / "recorder.py"


def measure(bench: Bench) -> dict[str, list[str]]:
    """Return the pictures of a cold catch-up, and of a warm one for each variant of records."""
    pairs = {name: bench.pair(f"catch-up-{n}", bench.sizes.records, n) for name, n in VARIANTS.items()}
    first = next(iter(pairs))
    pictures: dict[str, list[str]] = {}
    with bench.own_folder("timeline") as folder, recorded(folder, bench.bootstrap, pairs[first].topics) as seen:
        seen.side.wait_ready()
        pictures[f"{first}, cold"] = seen.picture(0.0)
        for name in (*list(pairs)[1:], first):
            wait_until(lambda: not seen.side.status()["lingering"], 60, what="the generation before is retired")
            began = time()
            swap_seconds(seen.side, pairs[name])
            pictures[f"{name}, warm"] = seen.picture(began)
    for name, lines in pictures.items():
        bench.console.rule(name)
        for line in lines:
            bench.console.print(line, markup=False, highlight=False, soft_wrap=True)
    return pictures


Span = tuple[float, float]


@dataclass(slots=True)
class Seen:
    """The records of one process."""

    side: TurnoutSide
    stages: Path
    events: Path
    wanted: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """The cores that each kind of process wanted, with the time at the end of each sample."""

    def picture(self, begin: float) -> list[str]:
        """Return the picture from `begin` to the end of the last publish."""
        spans = self._spans(begin)
        end = max(last for _, last in spans["publish"])
        begin = begin or min(first for first, _ in spans["make tables, copy kept rows"])
        width = (end - begin) / COLUMNS
        lines = [f"{'':42} {end - begin:.2f} s, {width * 1000:.0f} ms a column"]
        for stage, some in spans.items():
            inside = [(max(first, begin), min(last, end)) for first, last in some if last > begin and first < end]
            if inside:
                row = "".join("█" if _meet(inside, begin + n * width, width) else "·" for n in range(COLUMNS))
                lines.append(f"{stage:42} {row} {sum(last - first for first, last in inside):6.2f} s")
        for kind in (*KINDS, ALL):
            cores = [self._cores(kind, begin + n * width, width) for n in range(COLUMNS)]
            row = "".join(_LEVELS[min(8, round(8 * one / CORES))] for one in cores)
            lines.append(f"{'cores wanted: ' + kind:42} {row} {sum(cores) * width:6.2f} s")
        idle = sum(max(0.0, CORES - one) for one in cores) * width
        return [*lines, f"{'idle cores':42} {'':{COLUMNS}} {idle:6.2f} s"]

    def _spans(self, begin: float) -> dict[str, list[Span]]:
        spans: dict[str, list[Span]] = {name: [] for name in (*STAGES.values(), *_TASKS)}
        for line in self.stages.read_text().splitlines():
            stage, _, first, last = json.loads(line)
            spans[stage].append((first, last))
        names: dict[int, str] = {}
        for line in _lines(self.events):
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageSubmitted":
                info = event["Stage Info"]
                names[info["Stage ID"]] = _TASKS["collect at" not in info["Stage Name"]]
            elif event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                spans[names[event["Stage ID"]]].append((info["Launch Time"] / 1000, info["Finish Time"] / 1000))
        return {stage: [span for span in some if span[1] > begin] for stage, some in spans.items()}

    def _cores(self, kind: str, begin: float, width: float) -> float:
        """Return the cores wanted in a column; if it has no sample, those of the nearest sample."""
        inside = [cores for moment, cores in self.wanted if begin <= moment < begin + width]
        inside = inside or [min(self.wanted, key=lambda sample: abs(sample[0] - begin))[1]]
        return sum(sum(one.values()) if kind == ALL else one[kind] for one in inside) / len(inside)


def _lines(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        *whole, rest = file.read_text().split("\n")
        yield from [*whole, *([rest] if rest.endswith("}") else [])]


def _meet(spans: Sequence[Span], begin: float, width: float) -> bool:
    return any(first < begin + width and last > begin for first, last in spans)


@contextmanager
def recorded(folder: Path, bootstrap: str, topics: tuple[str, str], **sections: Any) -> Iterator[Seen]:
    """Run a Turnout whose stages and cores are recorded, during a `with` block."""
    stages, events = folder / "stages.jsonl", folder / "events"
    events.mkdir()
    log = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    conf = {f"spark.eventLog.{name}": value for name, value in log.items()}
    side = TurnoutSide(folder, bootstrap, topics, swap=SHORT_LINGER, **{"spark": {"conf": conf}, **sections})
    side.command = [sys.executable, str(_RECORDER), str(stages)]
    seen, stopped = Seen(side, stages, events), threading.Event()
    sampler = threading.Thread(target=_sample, args=(seen, stopped))
    try:
        side.start(ready=False)
        sampler.start()
        yield seen
    finally:
        stopped.set()
        if sampler.ident is not None:
            sampler.join()
        side.close()


def _sample(seen: Seen, stopped: threading.Event) -> None:
    before, moment = dict[tuple[str, int], int](), time()
    while not stopped.wait(_SAMPLE_SECONDS):
        now, at = dict[tuple[str, int], int](), time()
        for kind, process in _processes(seen.side.pid):
            now |= {(kind, thread): wanted for thread, wanted in _wanted(process)}
        cores = dict.fromkeys(KINDS, 0.0)
        for (kind, thread), wanted in now.items():
            # Except in the first sample, an unknown thread has started since the last sample.
            if before:
                cores[kind] += max(0, wanted - before.get((kind, thread), 0)) / 1e9 / (at - moment)
        seen.wanted.append((at, cores))
        before, moment = now, at


def _processes(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the processes of a Turnout with their kinds."""
    with suppress(psutil.NoSuchProcess):
        yield DRIVER, pid
        for child in psutil.Process(pid).children():
            if child.name() == "java":
                yield JVM, child.pid
                yield from ((WORKERS, below.pid) for below in child.children(recursive=True))


def _wanted(pid: int) -> Iterator[tuple[int, int]]:
    """Yield for each thread of a process the nanoseconds in which it ran or waited for a core."""
    with suppress(OSError):
        for folder in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                ran, waited, _ = map(int, (folder / "schedstat").read_text().split())
                yield int(folder.name), ran + waited
