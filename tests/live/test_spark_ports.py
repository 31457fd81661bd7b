"""Spark's own ports take nothing from somebody who does not know the secret that its JVM made up."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from turnout.testing import patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RPC_REQUEST, _RPC_FAILURE = 3, 5
# A java.lang.String as Java's serialisation writes it.
_JAVA_OBJECT = b"\xac\xed\x00\x05t\x00\x05hello"


def answer_to(port: int, body: bytes) -> str:
    """What a port of Spark's says to a request that anybody could send; empty where it hangs up."""
    head = struct.pack(">BqI", _RPC_REQUEST, 1, len(body))
    with socket.create_connection(("127.0.0.1", port), timeout=patience()) as connection:
        connection.sendall(struct.pack(">q", 8 + len(head) + len(body)) + head + body)
        heard = b""
        while len(heard) < 8 or len(heard) < struct.unpack(">q", heard[:8])[0]:
            more = connection.recv(65536)
            if not more:
                return ""
            heard += more
    kind, _, length = struct.unpack(">BqI", heard[8:21])
    assert kind == _RPC_FAILURE
    return heard[21 : 21 + length].decode()


@pytest.mark.parametrize("part", ["rpcEnv", "blockManager"])
def test_ports_of_spark_ask_for_the_secret_before_they_read_an_object(spark: SparkSession, part: str) -> None:
    env = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    port = env.rpcEnv().address().port() if part == "rpcEnv" else env.blockManager().blockTransferService().port()
    answer = answer_to(port, _JAVA_OBJECT)
    assert "SaslMessage" in answer, answer
