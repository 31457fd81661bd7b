"""`python faked.py run -c FILE`: Turnout under libfaketime, which refuses the sleeps of Python with "invalid argument".

It is that library's `clock_nanosleep` that takes no absolute time; waiting with `select` does the same.
"""

from __future__ import annotations

import select
import time
from typing import SupportsIndex

from turnout.cli import main


def sleep(seconds: float | SupportsIndex) -> None:
    select.select([], [], [], float(seconds))


if __name__ == "__main__":
    time.sleep = sleep
    main()
