"""How slow this machine is today, measured once for a run: every limit of the tests grows with it.

A limit ends a hang and measures nothing. `patience` of `turnout.testing` makes one; it reads TEST_PATIENCE, which a
run multiplies by what is measured here.
"""

from __future__ import annotations

import hashlib
import os
import time

_VARIABLE = "TEST_PATIENCE"
_MEASURED = "TEST_PATIENCE_MEASURED"
_ROUNDS = 600_000
_ORDINARY_SECONDS = 0.35
"""What the rounds take on one core of an ordinary machine that does nothing else."""
_MOST = 20.0


def measure() -> float:
    """Set TEST_PATIENCE for this process and those it starts; the factor by which it grew."""
    known = os.environ.get(_MEASURED)
    if known is not None:  # by the process that started this one
        return float(known)
    factor = min(_MOST, max(1.0, _seconds() / _ORDINARY_SECONDS))
    wanted = float(os.environ.get(_VARIABLE) or 1)
    os.environ[_VARIABLE] = f"{wanted * factor:.3g}"
    os.environ[_MEASURED] = f"{factor:.3g}"
    return factor


def _seconds() -> float:
    """How long a fixed piece of work takes now, with whatever else the machine does."""
    began = time.perf_counter()
    text = b"turnout"
    for _ in range(_ROUNDS):
        text = hashlib.sha1(text).digest()
    return time.perf_counter() - began
