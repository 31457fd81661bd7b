"""Run `turnout` and record the times of its stages: `python recorder.py FILE run -c turnout.yaml`.

The functions below are wrapped before the command runs, so that Turnout needs no code for it. Each call writes one JSON
line to FILE: stage, thread, start and end in seconds since 1970.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

STAGES = {
    "turnout.swap.builder:Builder.validate": "validate",
    "turnout.swap.generations:Generations.create": "make tables, copy kept rows",
    "turnout.spark.read.arrivals:KafkaReaders.read": "read a piece",
    "turnout.schemas.record_decoder:RecordDecoder.complete": "  merge what tasks read",
    "turnout.spark.generation:GenerationQuery.take_piece": "store a piece",
    "turnout.store.batches:Batch.load": "  load its rows",
    "turnout.spark.writing:Writer._write": "  build a view",
    "turnout.store.views.parts:_newest_once": "    newest row of each key",
    "turnout.store.views.parts:number_sql": "    check of keys",
    "turnout.store.views.parts:_export": "    files for Spark",
    "turnout.store.views.view_rows:JoinedRows._all_ids": "    the join on Spark, its ids to the store",
    "turnout.store.batches:TrackedWrites.add": "    insert rows",
    "turnout.store.batches:write_quality": "  join quality",
    "turnout.spark.generation:GenerationQuery._start_stream": "start the stream",
    "turnout.spark.read.arrivals:LiveStream._on_batch": "read a live batch, wait for more",
    "turnout.spark.writing:Writer.store": "store a live batch",
    "turnout.swap.publisher:Publisher.publish": "publish",
}
"""Functions and methods with their stage in a picture; indented stages run inside the stage above."""


def record(file: TextIO) -> None:
    """Wrap all stages, so that they write to the file."""
    writing = threading.Lock()

    def wrapped(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            began = time.time()
            try:
                return function(*args, **named)
            finally:
                line = json.dumps([stage, threading.current_thread().name, began, time.time()])
                with writing:
                    file.write(line + "\n")
                    file.flush()

        return timed

    for place, stage in STAGES.items():
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        setattr(owner, name, wrapped(getattr(owner, name), stage))


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as log:
        record(log)
        from turnout.cli import main

        sys.argv = ["turnout", *sys.argv[2:]]
        main()
