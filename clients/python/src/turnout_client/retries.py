"""How long to wait before the next attempt: the one definition of growing pauses."""


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Seconds after so many failures in a row: `first` after none, twice as long after each, at most `longest`."""
    return min(longest, first * 2.0 ** min(failures, 10))
