"""The connections over which the JVM calls back into Python, one for each query that ever ran a batch.

Their port is open to every program of the machine, and who is let in calls methods of our objects. PySpark asks for no
secret, so this does.

Neither side closes them when a query ends: without this each swap would leave a thread and a socket behind in Python,
and a socket in the JVM.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark import java_gateway
from pyspark.sql import SparkSession


def start_callbacks(gateway: Any) -> None:
    """Open the port for calls from the JVM, before PySpark does: only who knows a secret of this process gets in."""
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    java_gateway.ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    # Where it was told the port, the JVM's side forgot that there could be a secret: it gets a client that has it.
    server, jvm = gateway.java_gateway_server, gateway.jvm
    client = server.getCallbackClient()
    place = (client.getPort(), client.getAddress(), 0, jvm.java.util.concurrent.TimeUnit.SECONDS)
    sockets = jvm.javax.net.SocketFactory.getDefault()
    knowing = jvm.py4j.PythonClient(server.getGateway(), None, *place, sockets, server, True, 0, token)
    held = server.getGateway().getClass().getDeclaredField("cbClient")
    held.setAccessible(True)
    held.set(server.getGateway(), knowing)


class CallbackConnections:
    """The connections of one query."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._noted: set[Any] = set()

    def note(self) -> None:
        """Remember the connection that a batch came over; called on the batch's thread."""
        gateway = self._session.sparkContext._gateway
        connection = gateway._gateway_client.get_thread_connection() if gateway is not None else None
        with self._lock:
            if connection is not None:
                self._noted.add(connection)

    def close(self) -> None:
        """Close the connections of a query that has ended: the threads that wait on them end too."""
        with self._lock:
            noted, self._noted = self._noted, set()
        ports = set()
        for connection in noted:
            # Closing the stream would wait for the thread that reads from it; a shutdown wakes that thread.
            with contextlib.suppress(OSError, AttributeError):
                ports.add(connection.socket.getpeername()[1])
                connection.socket.shutdown(socket.SHUT_RDWR)
        if ports:
            # A JVM that is gone has no connections.
            with contextlib.suppress(Py4JError, OSError, AttributeError):
                self._close_in_java(ports)

    def _close_in_java(self, ports: set[int]) -> None:
        """py4j keeps each connection that it ever opened, with the thread that opened it: the query and its session."""
        gateway: Any = self._session.sparkContext._gateway
        client = gateway.java_gateway_server.getCallbackClient()
        lock, connections = _field(client, "lock"), _field(client, "connections")
        lock.lock()
        try:
            for connection in connections.toArray():
                opened = connection.getSocket()
                if opened is not None and opened.getLocalPort() in ports and connections.remove(connection):
                    connection.shutdown()
        finally:
            lock.unlock()


def _field(client: Any, name: str) -> Any:
    """A field that py4j keeps to itself."""
    field = client.getClass().getSuperclass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(client)
