"""Catching up: which pieces are read, and how it goes on when topics change on the way."""

from __future__ import annotations

import threading
from typing import cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from turnout.decode.decoder import Decoded
from turnout.plan.offsets import EARLIEST, Offsets
from turnout.spark.read.arrivals import KafkaReaders
from turnout.spark.read.catch_up import LARGEST_PIECE, CatchUp, Piece, halves, next_piece, piece_records, read_ahead
from turnout.testing import wait_until

A, B = ("t", 0), ("t", 1)


def at(**parts: int) -> Offsets:
    return Offsets({("t", int(name[1:])): offset for name, offset in parts.items()})


def test_piece_takes_its_share_of_every_partition() -> None:
    piece = next_piece(at(p0=0, p1=0), at(p0=300, p1=100), at(p0=900, p1=900), 40)
    assert piece == Piece(at(p0=0, p1=0), at(p0=0, p1=0), at(p0=31, p1=11), last=False)


def test_last_piece_ends_at_the_target_whatever_came_since() -> None:
    piece = next_piece(at(p0=200, p1=100), at(p0=300, p1=100), at(p0=900, p1=900), 1_000)
    assert piece == Piece(at(p0=200, p1=100), at(p0=200), at(p0=300, p1=100), last=True)


def test_nothing_left_is_no_piece() -> None:
    assert next_piece(at(p0=300), at(p0=300), at(p0=900), 10) is None


def test_partition_that_is_gone_has_nothing_left_and_is_told() -> None:
    piece = next_piece(at(p0=5, p1=7), at(p0=5, p1=100), at(p0=5), 10)
    assert piece == Piece(at(p0=5, p1=7), at(), at(p0=5), last=True)


def test_topic_that_was_made_anew_is_read_from_its_first_record() -> None:
    piece = next_piece(at(p0=50, p1=50), at(p0=60, p1=100), at(p0=60, p1=8), 1_000)
    assert piece is not None
    assert (piece.start, piece.end) == (Offsets({A: 50, B: EARLIEST}), at(p0=60, p1=8))
    assert (piece.before.made_anew(piece.end), piece.last) == (at(p1=8), True)
    assert next_piece(piece.end, at(p0=60, p1=100), at(p0=60, p1=8), 10) is None


def test_topic_that_lost_its_newest_records_ends_where_it_ends() -> None:
    piece = next_piece(at(p0=5), at(p0=100), at(p0=20), 1_000)
    assert piece == Piece(at(p0=5), at(p0=5), at(p0=20), last=True)


counts = st.dictionaries(st.integers(0, 5), st.integers(0, 500), min_size=1)


@given(counts, st.integers(1, 200))
def test_pieces_read_everything_once(sizes: dict[int, int], most: int) -> None:
    target = Offsets({("t", partition): size for partition, size in sizes.items()})
    place, read, pieces = Offsets(dict.fromkeys(target.next, 0)), 0, 0
    while piece := next_piece(place, target, target, most):
        step = piece.before.behind(piece.end)
        assert 0 < step <= most + len(sizes)
        assert piece.before == place
        assert {p: place.next[p] for p in piece.start.next} == piece.start.next
        assert piece.last == piece.end.reached(target)
        place, read, pieces = piece.end, read + step, pieces + 1
    assert (place, read) == (target, sum(sizes.values()))
    assert pieces <= sum(sizes.values()) // most + 1


def test_size_of_the_next_piece_follows_from_the_size_of_records() -> None:
    piece = Piece(at(p0=0), at(p0=0), at(p0=10), last=False)
    small = pa.table({"a": pa.array(range(10), pa.int64())})
    large = pa.table({"a": ["x" * 1_000_000] * 10})
    assert piece_records(piece, Decoded({0: small})) == LARGEST_PIECE
    assert piece_records(piece, Decoded({}, large)) == 67
    assert piece_records(piece, Decoded({})) == LARGEST_PIECE


def test_new_stream_starts_in_exactly_the_partitions_that_there_are() -> None:
    read = at(p0=10, p1=20, p2=30)
    assert read.for_start(at(p0=15, p1=4, p3=9)) == at(p0=10, p1=4, p3=0)


class OneFailure:
    """A reader whose first read of each range fails."""

    cores = 2

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.reads = 0

    def read(self, start: Offsets, end: Offsets) -> Decoded:
        self.reads += 1
        if self.reads == 1:
            raise self._error
        return Decoded({})

    def with_care(self) -> OneFailure:
        return self

    def cancel(self) -> None: ...


def caught_up(reader: OneFailure) -> tuple[CatchUp, list[Piece]]:
    """A catch-up of one piece, ended."""
    taken: list[Piece] = []
    ended = threading.Event()
    only = Piece(at(p0=0), at(p0=0), at(p0=5), last=True)
    catch_up = CatchUp(
        "g1",
        cast(KafkaReaders, reader),
        at(p0=0),
        lambda *_: only,
        lambda piece, _: taken.append(piece),
        then=ended.set,
    )
    catch_up.start()
    wait_until(lambda: not catch_up.running, what="the end of the catch-up")
    assert ended.is_set() == (catch_up.error is None)
    return catch_up, taken


def test_piece_whose_worker_was_killed_is_read_once_more() -> None:
    reader = OneFailure(RuntimeError("Python worker exited unexpectedly"))
    catch_up, taken = caught_up(reader)
    assert catch_up.error is None
    assert (len(taken), reader.reads) == (1, 2)


def test_piece_whose_rows_are_too_many_for_the_driver_is_read_in_halves() -> None:
    reader = OneFailure(RuntimeError("Total size ... is bigger than spark.driver.maxResultSize (1024.0 MiB)"))
    catch_up, taken = caught_up(reader)
    assert catch_up.error is None
    assert taken == [
        Piece(at(p0=0), at(p0=0), at(p0=2), last=False),
        Piece(at(p0=2), at(p0=2), at(p0=5), last=True),
    ]
    assert reader.reads == 3


def test_halves_read_what_the_piece_reads() -> None:
    piece = Piece(at(p0=4, p1=9, p2=50), Offsets({A: 4, B: EARLIEST}), at(p0=10, p1=3, p2=50), last=True)
    divided = halves(piece)
    assert divided == (
        Piece(at(p0=4, p1=9, p2=50), Offsets({A: 4, B: EARLIEST}), at(p0=7, p1=3, p2=50), last=False),
        Piece(at(p0=7, p1=3, p2=50), at(p0=7), at(p0=10, p1=3, p2=50), last=True),
    )
    assert halves(Piece(at(p0=4), at(p0=4), at(p0=5), last=True)) is None


def test_more_pieces_are_read_at_once_where_there_are_more_cores() -> None:
    assert [read_ahead(cores) for cores in (1, 2, 16, 64, 1000)] == [2, 2, 3, 8, 8]


def test_piece_is_not_read_again_from_a_jvm_that_is_gone() -> None:
    reader = OneFailure(ConnectionRefusedError("gone"))
    catch_up, taken = caught_up(reader)
    assert isinstance(catch_up.error, ConnectionRefusedError)
    assert (len(taken), reader.reads) == (0, 1)


def test_pieces_are_read_ahead_while_one_is_stored() -> None:
    """As many as are read at once, besides the one that is stored."""
    target, begun, at_store = at(p0=4 * LARGEST_PIECE), list[Offsets](), list[int]()

    class Reader(OneFailure):
        def read(self, start: Offsets, end: Offsets) -> Decoded:
            begun.append(start)
            return Decoded({})

    def store(piece: Piece, decoded: Decoded) -> None:
        wait_until(lambda: len(begun) >= min(4, len(at_store) + 3), what="the reads ahead")
        at_store.append(len(begun))

    def plan(place: Offsets, records: int) -> Piece:
        piece = next_piece(place, target, target, LARGEST_PIECE)
        assert piece is not None
        return piece

    catch_up = CatchUp("g1", cast(KafkaReaders, Reader(RuntimeError())), at(p0=0), plan, store, then=lambda: None)
    catch_up.start()
    wait_until(lambda: not catch_up.running, what="the end of the catch-up")
    assert catch_up.error is None
    assert at_store == [3, 4, 4, 4]
