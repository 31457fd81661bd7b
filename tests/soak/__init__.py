"""A long run under load, with swaps, viewers and faults all the time, that must leave nothing behind.

`make soak` runs it for half an hour; `python -m soak --help` has its options.
"""
