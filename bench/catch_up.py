"""Catch-up: records from earliest to the complete left join, beside raw consumption of the same topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer
from rich.progress import Progress

from running import RunningTurnout
from turnout.testing import create_topic


def users(count: int) -> Iterator[bytes]:
    for i in range(count):
        yield json.dumps(
            {"userId": f"user-{i}", "name": f"Name {i}", "email": f"user{i}@example.com", "age": i % 90}
        ).encode()


def accounts(count: int) -> Iterator[bytes]:
    for i in range(count):
        yield json.dumps(
            {"userId": f"user-{i}", "accountType": "gold" if i % 3 else "basic", "balance": i / 7}
        ).encode()


def fill(bootstrap: str, topic: str, values: Iterator[bytes], count: int, partitions: int = 2) -> None:
    """Produce `count` records, with a progress bar."""
    create_topic(bootstrap, topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 20, "acks": 1})
    with Progress() as progress:
        task = progress.add_task(f"producing {topic}", total=count)
        for i, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, partition=i % partitions)
                    break
                except BufferError:
                    producer.poll(0.05)
            if i % 10_000 == 0:
                producer.poll(0)
                progress.update(task, completed=i)
        producer.flush()


def raw_consumption_seconds(bootstrap: str, topics: list[str], count: int) -> float:
    """How long librdkafka takes to read and count the same records: the limit of any reader."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time()}",
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.subscribe(topics)
    seen, started = 0, 0.0
    while seen < count:
        messages = consumer.consume(10_000, 1.0)
        if messages and not started:
            started = time.monotonic()
        seen += len(messages)
    consumer.close()
    return time.monotonic() - started


def tree_mb(pid: int) -> float:
    """Resident memory of a process and all its children."""
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)]) / 2**20


def default_sources(topics: tuple[str, str]) -> dict[str, Any]:
    """The two sources of the default configuration, on other topics."""
    return {
        "users": {"topic": topics[0], "table": "users_ui", "key": "userId"}
        | {"columns": {"userId": "string", "name": "string", "email": "string", "age": "int64"}},
        "accounts": {"topic": topics[1], "table": "accounts_ui", "key": "userId"}
        | {"columns": {"userId": "string", "accountType": "string", "balance": "double"}},
    }


def turnout_catch_up(folder: Path, bootstrap: str, topics: tuple[str, str], count: int) -> dict[str, float]:
    """A cold start from earliest: seconds to the complete join, and the highest memory of the process tree."""
    turnout = RunningTurnout(
        folder, bootstrap, start="earliest", sources=default_sources(topics), spark={"driver_memory": "2g"}
    )
    started = time.monotonic()
    turnout.start(ready=False)
    peak, building = 0.0, 0.0
    try:
        while turnout.answer("/readyz") != 200:
            peak = max(peak, tree_mb(turnout.pid))
            if not building and turnout.answer("/healthz") == 200 and (turnout.status().get("progress")):
                building = time.monotonic()
            time.sleep(0.1)
        seconds = time.monotonic() - started
        assert turnout.total("final_ui", where="accountType is not null") == count
        peak = max(peak, tree_mb(turnout.pid))
        swap = turnout.rows("swaps")[0]
        return {
            "seconds": seconds,
            "build_seconds": swap["buildSeconds"] + swap["catchUpSeconds"],
            "peak_mb": peak,
            "settled_mb": tree_mb(turnout.pid),
            "store_mb": sum(f.stat().st_size for f in turnout.data_dir.glob("store.duckdb*") if f.is_file()) / 2**20,
        }
    finally:
        turnout.stop()
