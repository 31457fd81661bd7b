"""Run Turnout with lower limits for bulk reading: `python bulk_turnout.py run -c FILE`.

A build reads its first pieces through Spark's source, the others in bulk; its view is built in parts.
"""

from __future__ import annotations

import turnout.spark.read.arrivals
import turnout.spark.read.catch_up
import turnout.spark.writing
from turnout.cli import main

FIRST_PIECE = 500

if __name__ == "__main__":
    vars(turnout.spark.read.catch_up).update(FIRST_PIECE=FIRST_PIECE)
    vars(turnout.spark.read.arrivals).update(FEW_RECORDS=2 * FIRST_PIECE)
    vars(turnout.spark.writing).update(SMALL_BATCH=2 * FIRST_PIECE)
    main()
