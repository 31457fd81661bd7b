"""One generation at work: it catches up in bulk, then goes on with a live stream; both fill its tables.

Nothing is kept besides the store: how far the generation has read stands there, in the transaction of each batch. When
it starts and stops is the orchestrator's decision.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from turnout.decode.decoder import LARGEST_BYTES, Decoded
from turnout.errors import TurnoutError, first_line
from turnout.plan.offsets import Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.schemas.source_schemas import Schemas
from turnout.spark.jvm.java_errors import words_of, words_of_error
from turnout.spark.read.arrivals import KafkaReaders, LiveStream, WaitForMore
from turnout.spark.read.catch_up import CatchUp, Piece, next_piece
from turnout.spark.views.runner import view_runner
from turnout.spark.writing import Listener, Reading, Writer
from turnout.store.generation_tables import GenerationTables

log = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class Kafka:
    """How a generation comes to its records; properties are asked for at each use: files they come from may change."""

    java: Callable[[], Mapping[str, str]]
    """The properties of Kafka's Java client."""
    librdkafka: Callable[[], Mapping[str, Any]]
    """The properties of a consumer of librdkafka in a Spark task."""
    ends: Callable[[Sequence[str]], Offsets]
    """Where topics end now; those that are gone are left out."""
    wait_for_more: WaitForMore
    explain: Callable[[Sequence[str]], str] = lambda words: words[-1]
    """A failure in words for people, from those of an exception and its causes."""
    dead_letter_topic: str | None = None
    schemas: Mapping[str, Schemas] = field(default_factory=dict)
    """The schemas of the sources that are not JSON."""
    largest_bytes: int = LARGEST_BYTES
    """The largest value of a record that is decoded."""


class GenerationQuery:
    """What reads and fills the tables of one generation."""

    def __init__(
        self, session: SparkSession, tables: GenerationTables, reading: Reading, kafka: Kafka, listener: Listener
    ) -> None:
        self.generation = tables.generation
        self._session = session
        self._tables = tables
        self._reading = reading
        self._kafka = kafka
        self._listener = listener
        self._name = tables.schema
        self._lock = threading.Lock()
        """Held while a piece is stored, and while a stream is started or stopped."""
        self._stopping = False
        self._catch_up: CatchUp | None = None
        self._stream: LiveStream | None = None
        self._failure: Exception | None = None
        self._failed_action = ""
        decoder = RecordDecoder(tables.layout.sources, kafka.schemas, kafka.largest_bytes)
        options, live = self._options, lambda: view_runner(session).live
        self._readers = KafkaReaders(session, self._name, decoder, kafka.librdkafka, options, live)
        topic = kafka.dead_letter_topic
        letters = partial(self._send_dead_letters, topic) if topic else None
        self._writer = Writer(session, tables, reading, decoder, letters, listener)

    def start(self, *, careful: bool = False) -> None:
        """Start to read, or go on where the store says.

        With care, all that waits is read in bulk before the stream starts, so that no record passes the JVM: one of
        them may have ended it, or the stream.
        """
        self._stopping, self._failure, self._catch_up, self._stream = False, None, None, None
        self._failed_action = ""
        careful = careful or self._reading.careful
        built = self._tables.progress().views_built
        if built and not careful:
            self._start_stream()
            return
        self._reading.checkpoint.clear()
        self._catch_up = CatchUp(
            self._name,
            self._readers.with_care() if careful else self._readers,
            self._read_so_far(),
            partial(self._plan, built),
            self.take_piece,
            then=self._start_stream,
        )
        self._catch_up.start()

    def _read_so_far(self) -> Offsets:
        return Offsets.kept(self._tables.progress().offsets, self._reading.start)

    def _start_stream(self) -> None:
        ends = self._visible_ends(self._tables.layout.topics)
        read = self._taken_up(ends)
        with self._lock:
            if self._stopping:
                return
            self._tables.number_from_start()
            self._stream = LiveStream(
                self._readers, self._kafka.wait_for_more, self._listener.denied, self._writer.store
            )
            checkpoint, most = self._reading.checkpoint, self._reading.max_records_per_batch
            self._stream.start(self._options(), checkpoint, read, read.for_start(ends), most)
            # Whoever wanted to stop it meanwhile may have given up waiting.
            if self._stopping:
                self._stream.stop(0.0)

    def _visible_ends(self, topics: Sequence[str]) -> Offsets:
        """The ends of topics, without those that may not be seen now: Spark does not see them either."""
        found: dict[tuple[str, int], int] = {}
        for topic in topics:
            try:
                found |= self._kafka.ends([topic]).next
            except TurnoutError as error:
                if error.code != "not_authorized":
                    raise
        return Offsets(found)

    def _taken_up(self, ends: Offsets) -> Offsets:
        """Store what happened to topics while nobody read them, and return how far was read.

        One that was deleted and created again is read from its first record: Spark would begin where it ends.
        """
        read = self._read_so_far()
        piece = next_piece(read, read, ends.keeping(read, self._listener.denied), 0)
        if piece is None:
            return read
        decoded = self._readers.read(piece.start, piece.end)
        self.take_piece(replace(piece, last=True), decoded)
        return piece.end

    def _send_dead_letters(self, topic: str, letters: pa.Table) -> None:
        """Send bad records to a topic of their own, with headers that say where each came from."""
        # A Java producer that asks for a topic creates it at many brokers.
        if not self._kafka.ends([topic]).next:
            hint = "create it, or remove dead_letter_topic"
            raise TurnoutError("unknown_topic", f"topic {topic!r} (dead_letter_topic) does not exist", hint)
        self._failed_action = f"bad records cannot be written to topic {topic!r} (dead_letter_topic): "
        headers = [
            F.struct(F.lit(f"turnout.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
            for name in ("topic", "partition", "offset", "reason")
        ]
        # In one task: several would write side by side, and the letters would not be in the order of their records.
        frame = self._session.createDataFrame(letters).coalesce(1)
        frame = frame.select("key", "value", F.array(*headers).alias("headers"))
        frame.write.format("kafka").options(**self._options()).option("topic", topic).save()
        self._failed_action = ""

    def _options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self._kafka.java().items()}

    @property
    def running(self) -> bool:
        catching_up = self._catch_up is not None and self._catch_up.running
        return catching_up or (self._stream is not None and self._stream.running)

    @property
    def idle(self) -> bool:
        """Whether Kafka has told that there is nothing new to read, and all that was read is stored."""
        return self._stream is not None and self._stream.idle

    @property
    def error(self) -> Exception | None:
        """The error that the last batch raised on our side, such as one of the store."""
        return self._failure or (self._stream.failure if self._stream is not None else None)

    def failure(self) -> str | None:
        """Why it ended by itself, in one line; None while it runs or when it was stopped."""
        if self.running or self._stopping:
            return None
        error = self.error or (self._catch_up.error if self._catch_up is not None else None)
        if error is not None:
            return self._failed_action + self._explained(words_of_error(error))
        if self._stream is None:
            return None
        thrown = self._stream.exception()
        return "the query ended without an error" if thrown is None else self._explained(words_of(thrown))

    def _explained(self, words: Sequence[str]) -> str:
        return self._kafka.explain(words).splitlines()[0]

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """Stop after the batch under way, waiting a bounded time; whether it ended in that time."""
        self._stopping = True
        ended = self._catch_up is None or self._catch_up.stop(timeout_seconds)
        if not self._lock.acquire(timeout=timeout_seconds):
            return False
        try:
            if self._stream is not None:
                ended = self._stream.stop(timeout_seconds) and ended
        except Exception as error:
            log.warning("generation %s did not stop as it should: %s", self.generation, first_line(error))
            ended = False
        finally:
            self._lock.release()
        return ended

    def _plan(self, built: bool, at: Offsets, records: int) -> Piece:
        """The next piece to catch up on; if its views are built, of all that the topics have now."""
        topics, target = self._tables.layout.topics, self._reading.target
        if built:
            ends = target = self._visible_ends(topics).keeping(at, self._listener.denied)
        else:
            ends = self._kafka.ends(topics)
        # The views have to be built, even if there was nothing to read.
        return next_piece(at, target, ends, records) or Piece(at, Offsets({}), at, last=True)

    def take_piece(self, piece: Piece, decoded: Decoded) -> None:
        """Take a piece in one transaction of the store; after the last one the views are there."""
        with self._lock:
            if self._stopping:
                raise RuntimeError("the generation is stopping")
            try:
                self._writer.take(decoded, piece.end, None, caught_up=piece.last)
            except Exception as error:
                self._failure = error
                raise
