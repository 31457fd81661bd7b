"""Results that are too large for the driver to take at once, taken in slices instead.

Spark ends a job whose results are more than `spark.driver.maxResultSize`: that keeps the driver from running out of
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from turnout.spark.java_errors import words_of_error

FIRST_SLICES = 8
MOST_SLICES = 512


@dataclass(frozen=True, slots=True)
class TooLarge:
    """In place of a result: what Spark said of its size."""

    error: Exception


def is_too_large(error: Exception) -> bool:
    """Whether a job was ended because of the size of its results."""
    return any("spark.driver.maxResultSize" in words for words in words_of_error(error))


def in_slices(run: Callable[[str], pa.Table | TooLarge], found: TooLarge) -> Iterator[pa.Table]:
    """The rows of a query in slices by a hash of the whole row: each row is in one, whatever the query is.

    `run` runs it with a condition on its rows. A slice that is too large itself is sliced once more; rows that are all
    the same cannot be told apart, and are what is left when even the finest slice is too large.
    """
    slices = [(FIRST_SLICES, number) for number in reversed(range(FIRST_SLICES))]
    while slices:
        count, number = slices.pop()
        part = run(f"pmod(xxhash64(*), {count}) = {number}")
        if isinstance(part, TooLarge):
            if count * FIRST_SLICES > MOST_SLICES:
                raise found.error
            finer = count * FIRST_SLICES
            slices += [(finer, one) for one in reversed(range(number, finer, count))]
        else:
            yield part
