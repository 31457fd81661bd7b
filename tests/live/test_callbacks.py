"""The port over which Spark's JVM calls Python lets nobody in who does not know its secret, such as another user."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from callback_attack import attacked
from turnout.testing import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def port_of(spark: SparkSession) -> int:
    gateway: Any = spark.sparkContext._gateway
    return int(gateway._callback_server.server_socket.getsockname()[1])


def test_stream_goes_on_while_another_user_sends_commands(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[int] = []

    def take(_: DataFrame, batch_id: int) -> None:
        batches.append(batch_id)

    rows = spark.readStream.format("rate").load()
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: len(batches) > 1, what="the first batches")
        assert attacked([port_of(spark)]) == 0, "commands that were carried out"
        before = len(batches)
        wait_until(lambda: len(batches) > before + 1 or not query.isActive, what="batches after the attack")
        assert query.exception() is None
    finally:
        query.stop()


@pytest.mark.parametrize("first", [b"", b"\n", b"A\n\n", b"A\nwrong\n", b"c\nt\ngetCallbackClient\ne\n"])
def test_wrong_secret_ends_the_connection(spark: SparkSession, first: bytes) -> None:
    answers = b""
    # It may be closed before all was sent.
    with socket.create_connection(("127.0.0.1", port_of(spark))) as connection, contextlib.suppress(OSError):
        connection.sendall(first + b"c\np0\ntoString\ne\n")
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            answers = stream.read()
    assert b"!y" not in answers
