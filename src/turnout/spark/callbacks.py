"""The connections over which the JVM calls back into Python, one for each query that ever ran a batch.

Neither side closes them when a query ends: without this each swap would leave a thread and a socket behind.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from pyspark.sql import SparkSession


class CallbackConnections:
    """Those of one query."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._noted: set[Any] = set()

    def note(self) -> None:
        """Called on a batch: remember the connection that it came over."""
        gateway = self._session.sparkContext._gateway
        connection = gateway._gateway_client.get_thread_connection() if gateway is not None else None
        with self._lock:
            if connection is not None:
                self._noted.add(connection)

    def close(self) -> None:
        """Called when the query has ended: the threads that wait on the connections see their end, and end too."""
        with self._lock:
            noted, self._noted = self._noted, set()
        for connection in noted:
            # Closing the stream would wait for the thread that reads from it; a shutdown wakes that thread.
            with contextlib.suppress(OSError, AttributeError):
                connection.socket.shutdown(socket.SHUT_RDWR)
