"""Catching up: large pieces of the topics, up to the target; the next ones are read while one is stored.

It needs no streaming query and no checkpoint: how far it is stands in the store, in the transaction of each piece.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from turnout.decode.decoder import Decoded
from turnout.plan.offsets import EARLIEST, Offsets
from turnout.spark.jvm.java_errors import is_disconnected, is_too_large
from turnout.spark.read.arrivals import KafkaReaders

FIRST_PIECE = 20_000
"""How many records are read first: from these it is known how large records are."""

LARGEST_PIECE = 500_000
_PIECE_BYTES = 64 << 20

READ_AHEAD = 2
"""How many pieces are read at once: a job waits for Kafka, workers and the planner longer than for the cores."""

MOST_AHEAD = 8
"""How many pieces are read at once where there are many cores: so many are held in memory."""
_CORES_A_PIECE = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of offsets: read from `start`, after which everything before `end` is read."""

    before: Offsets
    start: Offsets
    end: Offsets
    last: bool


def next_piece(at: Offsets, target: Offsets, ends: Offsets, most: int) -> Piece | None:
    """What to read after `at` on the way to `target`, of topics that end at `ends`: about `most` records.

    A partition that is gone has nothing left. One that ends before what was read of it was made anew: it is read from
    its first record to its end. None where nothing is left and nothing is to be told.
    """
    whole = {place: offset for place, offset in at.next.items() if place in ends.next}
    fresh = {place: ends.next[place] for place, offset in whole.items() if ends.next[place] < offset}
    left = {
        place: min(target.next.get(place, offset), ends.next[place]) - offset
        for place, offset in whole.items()
        if place not in fresh
    }
    total = sum(count for count in left.values() if count > 0)
    share = min(1.0, most / total) if total else 0.0
    steps = {place: min(count, int(count * share) + 1) for place, count in left.items() if count > 0}
    if not steps and not fresh and len(whole) == len(at.next):
        return None
    end = whole | {place: whole[place] + count for place, count in steps.items()} | fresh
    start = {place: whole[place] for place in steps} | dict.fromkeys(fresh, EARLIEST)
    last = all(end[place] - whole[place] >= count for place, count in left.items() if count > 0)
    return Piece(at, Offsets(start), Offsets(end), last)


def read_ahead(cores: int) -> int:
    """How many pieces are read at once, so that all cores have something to do."""
    return max(READ_AHEAD, min(MOST_AHEAD, cores // _CORES_A_PIECE))


def halves(piece: Piece) -> tuple[Piece, Piece] | None:
    """Two pieces in place of one; None where it cannot be divided. What was made anew is read with the first."""
    ranges = {place: (offset, piece.end.next[place]) for place, offset in piece.start.next.items() if offset >= 0}
    middles = {place: (start + end) // 2 for place, (start, end) in ranges.items() if end - start > 1}
    if not middles:
        return None
    first = Piece(piece.before, piece.start, Offsets({**piece.end.next, **middles}), last=False)
    return first, Piece(first.end, Offsets(middles), piece.end, piece.last)


def piece_records(piece: Piece, decoded: Decoded) -> int:
    """How many records the next piece should have: each costs a fixed time, and some are held in memory at once."""
    each = sum(table.nbytes for table in decoded.tables) / max(1, piece.before.behind(piece.end))
    return max(1, min(LARGEST_PIECE, int(_PIECE_BYTES / each))) if each else LARGEST_PIECE


class CatchUp:
    """The thread that catches up, for one generation."""

    def __init__(
        self,
        name: str,
        readers: KafkaReaders,
        at: Offsets,
        plan: Callable[[Offsets, int], Piece],
        take: Callable[[Piece, Decoded], None],
        then: Callable[[], None],
    ) -> None:
        """Go on from `at`; `then` is called on the same thread when all is read."""
        self.error: Exception | None = None
        """Why it ended before it was done, if that is not because it was stopped."""
        self._readers = readers
        self._plan = plan
        self._take = take
        self._at = at
        self._then = then
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"catch-up-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout_seconds: float) -> bool:
        """End after the piece that is being stored, waiting a bounded time; whether it ended in that time."""
        self._stopped.set()
        self._readers.cancel()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(MOST_AHEAD, f"{self._thread.name}-read") as threads:
                self._read_all(threads)
            if not self._stopped.is_set():
                self._then()
        except Exception as error:
            if not self._stopped.is_set():
                self.error = error

    def _read_all(self, threads: ThreadPoolExecutor) -> None:
        ahead: deque[tuple[Piece, Future[Decoded]]] = deque()
        planned, records = self._at, FIRST_PIECE
        ended = False

        def read_on() -> None:
            nonlocal planned, ended
            while not ended and len(ahead) < read_ahead(self._readers.cores):
                piece = self._plan(planned, records)
                ahead.append((piece, threads.submit(self._read, piece)))
                planned, ended = piece.end, piece.last

        read_on()
        while ahead and not self._stopped.is_set():
            piece, reading = ahead.popleft()
            try:
                decoded = reading.result()
            except Exception as error:
                divided = halves(piece) if is_too_large(error) else None
                if divided is None:
                    raise
                # They come before what was planned after the piece.
                ahead.extendleft((part, threads.submit(self._read, part)) for part in reversed(divided))
                continue
            records = piece_records(piece, decoded)
            read_on()
            self._take(piece, decoded)

    def _read(self, piece: Piece) -> Decoded:
        """The records of a piece; read once more, with care, where that failed: Spark on one machine tries no task
        twice, so that one Python worker that is killed, for its memory say, would be the end of the whole build."""
        try:
            return self._readers.read(piece.start, piece.end)
        except Exception as error:
            if self._stopped.is_set() or is_disconnected(error) or is_too_large(error):
                raise
            return self._readers.with_care().read(piece.start, piece.end)
