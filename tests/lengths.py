"""How long the long tests are: `make test` runs a short form of them, `make test-long` the whole."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("LONG_TESTS"))

SWAPS = 200 if LONG else 7
STORM = 500 if LONG else 120
LEAK_SWAPS = (50, 250) if LONG else (4, 14)
PLANNED_RUNS = 10 if LONG else 3
APPLIES = 20
SUBSCRIBERS = 50 if LONG else 4
KILLS = 20 if LONG else 2
EXAMPLES = 250 if LONG else 15
FUZZ_EXAMPLES = 1000 if LONG else 30
HOSTILE_RECORDS = 250_000 if LONG else 100_000
PARTS_EXAMPLES = 250 if LONG else 4
BATCHES_EXAMPLES = 250 if LONG else 8
ORDERS_EXAMPLES = 250 if LONG else 5
VIEWS_EXAMPLES = 150 if LONG else 4
CHAINS_EXAMPLES = 400 if LONG else 12
LIVE_EXAMPLES = 200 if LONG else 3
BULK_EXAMPLES = 100 if LONG else 5
MIRROR_EXAMPLES = 1000 if LONG else 150
KEPT_EXAMPLES = 250 if LONG else 8
MERGES = 50 if LONG else 15
SUMMARY_EXAMPLES = 250 if LONG else 12
API_EXAMPLES = 1000 if LONG else 12
SINK_ROUNDS = 5 if LONG else 1
SINK_FAULTS = 40 if LONG else 5
