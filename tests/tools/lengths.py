"""The lengths of the long tests: `make test` runs a short form of them, `make test-long` the full form."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("LONG_TESTS"))

SWAPS = 200 if LONG else 4
STORM = 500 if LONG else 120
LEAK_SWAPS = (50, 250) if LONG else (4, 14)
PLANNED_RUNS = 10 if LONG else 3
APPLIES = tuple(range(1, 21)) if LONG else (3, 4, *(12, 4) * 5)
APPLIES_VIEWERS = 20 if LONG else 5
CANDIDATES = 20 if LONG else 12
SUBSCRIBERS = 50 if LONG else 4
KILLS = 20 if LONG else 0
TOKENS = 6 if LONG else 3
EXAMPLES = 250 if LONG else 15
FOLD_EXAMPLES = 250 if LONG else 5
FUZZ_EXAMPLES = 1000 if LONG else 30
YAML_EXAMPLES = 3000 if LONG else 30
HOSTILE_RECORDS = 250_000 if LONG else 100_000
PARTS_EXAMPLES = 250 if LONG else 4
BATCHES_EXAMPLES = 250 if LONG else 5
ORDERS_EXAMPLES = 250 if LONG else 5
VIEWS_EXAMPLES = 150 if LONG else 3
CUTS = 4 if LONG else 2
CHAINS_EXAMPLES = 400 if LONG else 3
LIVE_EXAMPLES = 200 if LONG else 3
DECODE_EXAMPLES = 300 if LONG else 12
BULK_EXAMPLES = 100 if LONG else 3
MIRROR_EXAMPLES = 1000 if LONG else 80
KEPT_EXAMPLES = 250 if LONG else 4
KEEPING_HISTORIES = 25 if LONG else 1
KEEPING_STEPS = 12 if LONG else 8
DIFFERENCE_EXAMPLES = 250 if LONG else 8
MERGES = 50 if LONG else 15
SUMMARY_EXAMPLES = 250 if LONG else 8
JAAS_EXAMPLES = 150 if LONG else 25
API_EXAMPLES = 1000 if LONG else 8
WHY_EXAMPLES = 400 if LONG else 15
SINK_ROUNDS = 5 if LONG else 1
SINK_FAULTS = 40 if LONG else 4
SINK_WRITES = 1000 if LONG else 4
PART_ROWS = 5 if LONG else 10
