"""Kafka's Java client by itself, in a small JVM without Spark: whether the very client that Spark uses can connect.

For `turnout check`. Properties go over py4j's authenticated loopback socket: nothing of them is in arguments,
environment or files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from turnout.config.auth import ALLOWED_URLS
from turnout.errors import TurnoutError, first_line
from turnout.java.jars import resolve
from turnout.java.runtime import find_java
from turnout.spark.jvm.java_errors import words_of

SECONDS = 10
_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-CreateCoredumpOnCrash")


class JavaClient:
    """Asks a cluster by Kafka's Java admin client; each question makes a client of its own."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm

    def topics(self, properties: Mapping[str, str], wanted: Sequence[str]) -> tuple[int, dict[str, str]]:
        """How many topics the client sees, and why some of the wanted ones cannot be described.

        TurnoutError, with the words of all causes, where it does not get that far.
        """
        # Without them a client that cannot connect tries for a minute. A little sooner than we give up, it says why.
        limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str((SECONDS - 2) * 1000))
        try:
            admin = self.jvm.org.apache.kafka.clients.admin.AdminClient.create({**limits, **properties})
        except Py4JError as error:
            raise _failed(error) from None
        try:
            seen = admin.listTopics().names().get(SECONDS, self.jvm.java.util.concurrent.TimeUnit.SECONDS)
            return len(list(seen)), self._undescribed(admin, wanted)
        except Py4JError as error:
            raise _failed(error) from None
        finally:
            admin.close(self.jvm.java.time.Duration.ofSeconds(1))

    def _undescribed(self, admin: Any, wanted: Sequence[str]) -> dict[str, str]:
        refused = {}
        futures = admin.describeTopics(list(wanted)).topicNameValues()
        for name in wanted:
            try:
                futures.get(name).get(SECONDS, self.jvm.java.util.concurrent.TimeUnit.SECONDS)
            except Py4JError as error:
                refused[name] = causes(error)
        return refused


@contextmanager
def java_client(allowed_urls: Sequence[str] = ()) -> Iterator[JavaClient]:
    """A JVM with Spark's Kafka client, for as long as the block takes."""
    home = Path(next(iter(getattr(find_spec("pyspark"), "submodule_search_locations", None) or [""])))
    own = sorted((home / "jars").glob("*.jar"))
    classpath = os.pathsep.join(map(str, [*resolve("spark-kafka"), *own]))
    flags = [*_FLAGS, "-Dlog4j2.level=OFF", *([f"-D{ALLOWED_URLS}={','.join(allowed_urls)}"] if allowed_urls else [])]
    try:
        port, token, process = launch_gateway(
            jarpath=str(next((home / "jars").glob("py4j-*.jar"))),
            classpath=classpath,
            javaopts=flags,
            java_path=str(find_java()),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    except (Py4JError, OSError, ValueError) as error:
        raise TurnoutError(
            code="java_broken", message=f"the Java client did not start ({type(error).__name__})", status=500
        ) from None
    parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield JavaClient(gateway.jvm)
    finally:
        gateway.close()
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def causes(error: Py4JError) -> str:
    """The words of an exception and of all its causes; of an error of py4j itself, its first line."""
    # Where a Spark session was started in this process, PySpark asks Spark's classes for an exception's text, and this
    # JVM has none of them: what they were asked about is the error behind that one.
    for found in (error, error.__context__):
        if isinstance(found, Py4JJavaError):
            return "; ".join(words_of(found.java_exception))
    return first_line(error)


def _failed(error: Py4JError) -> TurnoutError:
    return TurnoutError(code="kafka_unreachable", message=causes(error))
