"""The growing pauses between attempts."""


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Return the pause in seconds: `first`, doubled by each failure in a row, at most `longest`."""
    return min(longest, first * 2.0 ** min(failures, 10))
