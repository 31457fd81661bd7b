"""What a Spark task does in a bulk read: take a range of offsets from Kafka by librdkafka, decode it, leave the rows.

`write` and `read` are the form in which rows are left. No record passes the JVM. On a cluster a worker gets this
module, `turnout.decode` and `turnout.kafka.unpacking` by value, so it imports nothing else of Turnout.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import confluent_kafka as kafka  # not its classes: they do not say where they come from, and cannot be sent
import pyarrow as pa

from turnout.decode.decoder import (
    KEPT_BYTES,
    LARGEST_BYTES,
    Decoded,
    joined_batches,
    merge,
    open_decoder,
    refused,
    too_large,
)
from turnout.decode.exact_reader import Record
from turnout.decode.shape import RAW, SourceShape
from turnout.kafka.unpacking import NOT_UNPACKED, end_of_batch, reason
from turnout.plan.offsets import OFFSET_BITS

MESSAGES = 20_000
"""How many records are decoded at once."""

UNPACK_TRIES = 2
"""After so many tries a batch that cannot be unpacked is passed over."""

SILENCE_SECONDS = 30.0
"""A range of which nothing comes for so long cannot be read."""

LOOK_SECONDS = 1.0
"""After so long without a record it is looked whether the partition is still there."""

_FAULTS, _LEFT_OVER = "faults", "left_over"
_PARTS, _RECORDS = b"parts", b"records"
_PROMPT_SECONDS = 0.05
_NICE = 5
"""How much a worker stands back: while many records are read, the batches of the published tables come first."""

_GONE = (kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, kafka.KafkaError._UNKNOWN_TOPIC, kafka.KafkaError._UNKNOWN_PARTITION)
_REFUSED = (
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    kafka.KafkaError._AUTHENTICATION,
    kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition, from `start` (negative: its first) up to, not with, `end`."""

    topic: str
    number: int
    """The topic's number in the list of topics."""
    partition: int
    start: int
    end: int


RefusedRecord = tuple[Record, str]
"""A record that is not decoded, and why; of its value there is the beginning, or nothing."""

Plain = tuple[Any, ...]
"""The fields of a `Range`: a worker without Turnout could not read our own classes."""

TaskResult = tuple[str | bytes, str | None]
"""The rows of a range, in a file or as bytes; and why they could not be read, where that is so."""

Task = Callable[[Iterable[Plain]], Iterator[TaskResult]]


def task(
    properties: Mapping[str, Any],
    sources: Sequence[SourceShape],
    folder: str | None,
    largest_bytes: int = LARGEST_BYTES,
) -> Task:
    """For `mapPartitions` over ranges. With a `folder`, which driver and workers both see, rows are left there."""

    def run(ranges: Iterable[Plain]) -> Iterator[TaskResult]:
        os.nice(max(0, _NICE - os.nice(0)))
        _without_pandas()
        decode = open_decoder(sources, largest_bytes)
        gc.disable()  # it would look through all messages again and again: half of the time to take them
        try:
            for fields in ranges:
                try:
                    wanted = Range(*fields)
                    parts = [
                        refused(sources, wanted.number, *found) if isinstance(found, tuple) else decode(found)
                        for found in read_range(kept_consumer(properties), wanted, largest_bytes)
                    ]
                    result: TaskResult = _written(merge(parts), folder), None
                except Unreadable as error:
                    result = b"", str(error)
                yield result
        finally:
            gc.enable()
            if not gc.get_freeze_count():
                # After each task Spark has all garbage collected. It need not look through all modules: 30 ms.
                gc.freeze()

    return run


class _Hidden:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _without_pandas() -> None:
    """Make an array while pandas cannot be found: Arrow's first one would import it, which takes a worker 0.2 s."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Hidden)
        pa.array([])
        sys.meta_path.remove(_Hidden)


def _written(decoded: Decoded, folder: str | None) -> str | bytes:
    """The rows as bytes, or where there is a folder the file that has them."""
    if folder is None:
        sink = pa.BufferOutputStream()
        write(decoded, sink)
        return bytes(sink.getvalue().to_pybytes())
    file = f"{folder}/{uuid.uuid4().hex}"
    with pa.OSFile(file, "wb") as sink:
        write(decoded, sink)
    return file


def write(decoded: Decoded, sink: pa.NativeFile) -> None:
    """Write to an open sink: Arrow streams, one after the other; the first, which has no rows, names the others."""
    parts = {str(number): table for number, table in decoded.rows.items()}
    if decoded.faults is not None:
        parts[_FAULTS] = decoded.faults
    if decoded.left_over is not None:
        parts[_LEFT_OVER] = pa.Table.from_batches([decoded.left_over])
    header = pa.schema([]).with_metadata({_PARTS: " ".join(parts), _RECORDS: str(decoded.records)})
    for table in (header.empty_table(), *parts.values()):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)


def read(source: str | Path | bytes) -> Decoded:
    """Read what `write` wrote: a file, or its bytes.

    A file is mapped: it may be removed at once, its rows stay as long as they are used. Rows share the memory of bytes.
    """
    opened = pa.BufferReader(source) if isinstance(source, bytes) else pa.memory_map(str(source))
    header = _next_table(opened).schema.metadata
    parts = {name: _next_table(opened) for name in header[_PARTS].decode().split()}
    faults, left_over = parts.pop(_FAULTS, None), parts.pop(_LEFT_OVER, None)
    return Decoded(
        {int(number): table for number, table in parts.items()},
        faults,
        joined_batches(left_over.to_batches()) if left_over is not None else None,
        int(header[_RECORDS]),
    )


def _next_table(opened: pa.NativeFile) -> pa.Table:
    with pa.ipc.open_stream(opened) as stream:
        return stream.read_all()


class Unreadable(Exception):  # noqa: N818 - a range is not an error
    """A range that cannot be read now; it says why."""


def read_range(
    consumer: KeptConsumer, wanted: Range, largest_bytes: int = LARGEST_BYTES
) -> Iterator[pa.RecordBatch | RefusedRecord]:
    """The records of a range, as far as they are there; one by one those that are too large or cannot be unpacked.

    A partition that is gone has none. The range ends at its last offset, at a record behind it (offsets can lack their
    record: compaction, transactions), or at the end of the partition.
    """
    consumer.reported = None
    heard, following = time.monotonic(), max(wanted.start, 0)
    look_at, tries = heard + LOOK_SECONDS, 0
    consumer.learn(wanted.topic)
    consumer.client.assign([kafka.TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    try:
        while following < wanted.end:
            # Only a full batch comes at once: `consume` waits for the last record that it was asked for.
            messages = consumer.client.consume(min(MESSAGES, wanted.end - following), timeout=_PROMPT_SECONDS)
            found: list[Any] = []
            ended, damaged = False, None
            for message in messages:
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    ended = True
                elif error.code() in _GONE:
                    return
                elif error.code() in _REFUSED:
                    raise Unreadable(_words(wanted, error))
                elif error.code() in NOT_UNPACKED:
                    damaged = message.offset()
                else:
                    consumer.note(error)
            if found:
                following = found[-1].offset() + 1
                yield from _bounded(found, wanted, largest_bytes)
            if damaged is not None:
                heard, tries = time.monotonic(), tries + 1
                if tries < UNPACK_TRIES:
                    continue
                following, tries = _end_of_batch(consumer, wanted, damaged), 0
                # Of ranges that share the batch one has its last offset: that one tells of it.
                if following <= wanted.end:
                    record = (wanted.partition << OFFSET_BITS | following - 1, int(time.time() * 1000), None, None)
                    yield record, reason(damaged, following)
                consumer.client.assign([kafka.TopicPartition(wanted.topic, wanted.partition, following)])
                continue
            if ended:
                return
            if found:
                heard = time.monotonic()
                look_at = heard + LOOK_SECONDS
                continue
            trouble = consumer.reported
            refused = trouble is not None and trouble.code() in _REFUSED
            if refused or time.monotonic() - heard > SILENCE_SECONDS:
                raise Unreadable(_words(wanted, trouble))
            if time.monotonic() > look_at:
                if _is_gone(consumer, wanted):
                    return
                look_at = time.monotonic() + LOOK_SECONDS
    finally:
        consumer.client.unassign()


def _end_of_batch(consumer: KeptConsumer, wanted: Range, first: int) -> int:
    try:
        return end_of_batch(consumer.client, wanted.topic, wanted.partition, first)
    except kafka.KafkaException as exception:
        raise Unreadable(_words(wanted, exception.args[0])) from None


def _bounded(messages: Sequence[Any], wanted: Range, largest_bytes: int) -> Iterator[pa.RecordBatch | RefusedRecord]:
    """The messages of the range; those that are too large apart, without most of their values."""
    # Behind the range, or before it: the topic was made anew, and has lower offsets.
    inside = [one for one in messages if wanted.start <= one.offset() < wanted.end]
    fitting = [one for one in inside if len(one) <= largest_bytes]
    yield _batch(fitting, wanted)
    for message in inside if len(fitting) < len(inside) else ():
        if len(message) > largest_bytes:
            place = wanted.partition << OFFSET_BITS | message.offset()
            record = (place, message.timestamp()[1], message.key(), message.value()[:KEPT_BYTES])
            yield record, too_large(len(message), largest_bytes)


def _is_gone(consumer: KeptConsumer, wanted: Range) -> bool:
    """Whether the partition was deleted: of such a one the client just hears nothing."""
    try:
        found = consumer.client.list_topics(wanted.topic, timeout=LOOK_SECONDS).topics[wanted.topic]
    except kafka.KafkaException:
        return False
    if found.error is not None:
        return found.error.code() in _GONE
    return wanted.partition not in found.partitions


def _batch(messages: Sequence[Any], wanted: Range) -> pa.RecordBatch:
    place = wanted.partition << OFFSET_BITS
    count = len(messages)
    columns = [
        pa.repeat(pa.scalar(wanted.number, pa.int32()), count),
        pa.array([place | message.offset() for message in messages], pa.int64()),
        pa.array([message.timestamp()[1] for message in messages], pa.int64()),
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW)


def _words(wanted: Range, error: kafka.KafkaError | None) -> str:
    why = f": {error.str()}" if error is not None else ""
    return f"Kafka gave no records of topic {wanted.topic!r} partition {wanted.partition}{why}"


class KeptConsumer:
    """A consumer, and what its connections reported last."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = dict(properties)
        self.reported: kafka.KafkaError | None = None
        self.client = kafka.Consumer({**properties, "error_cb": self.note})
        self._learned: set[str] = set()

    def learn(self, topic: str) -> None:
        """Ask where a topic is, once: a client that finds out while it reads waits up to half a second for that."""
        if topic not in self._learned:
            self._learned.add(topic)
            # Whether it is there, and may be read, is told when it is read.
            with contextlib.suppress(kafka.KafkaException):
                self.client.list_topics(topic, timeout=LOOK_SECONDS)

    def note(self, error: kafka.KafkaError) -> None:
        # "All brokers are down" follows the error that says why.
        if error.code() != kafka.KafkaError._ALL_BROKERS_DOWN or self.reported is None:
            self.reported = error


def kept_consumer(properties: Mapping[str, Any]) -> KeptConsumer:
    """This process's consumer with these properties, made at its first use: connecting takes longer than most ranges.

    It is kept outside of this module, of which a worker on a cluster has a new copy for each task.
    """
    place: Any = sys.modules.setdefault("turnout_kept_consumer", ModuleType("turnout_kept_consumer"))
    kept: KeptConsumer | None = getattr(place, "consumer", None)
    if kept is None or kept.properties != properties:
        if kept is not None:
            kept.client.close()
        kept = place.consumer = KeptConsumer(properties)
    return kept
