"""A measure of the machine's speed, taken once for a run, with which all time limits of the tests grow.

A limit only ends a hang. `patience` of `turnout.testing` computes limits from TEST_PATIENCE, which a run multiplies by
the measured factor.
"""

from __future__ import annotations

import hashlib
import os
import time

_VARIABLE = "TEST_PATIENCE"
_MEASURED = "TEST_PATIENCE_MEASURED"
_ROUNDS = 600_000
_ORDINARY_SECONDS = 0.35
"""The time of the rounds on one core of an ordinary idle machine."""
_MOST = 20.0


def measure() -> float:
    """Set TEST_PATIENCE for this process and its children; return the factor by which it was multiplied."""
    known = os.environ.get(_MEASURED)
    if known is not None:  # measured by the parent process
        return float(known)
    factor = min(_MOST, max(1.0, _seconds() / _ORDINARY_SECONDS))
    wanted = float(os.environ.get(_VARIABLE) or 1)
    os.environ[_VARIABLE] = f"{wanted * factor:.3g}"
    os.environ[_MEASURED] = f"{factor:.3g}"
    return factor


def _seconds() -> float:
    """Return the time of a fixed amount of work under the present load."""
    began = time.perf_counter()
    text = b"turnout"
    for _ in range(_ROUNDS):
        text = hashlib.sha1(text).digest()
    return time.perf_counter() - began
