"""The command line, one module for each kind of commands; `app.py`, `options.py` and `output.py` have what they share.

Nothing here imports Spark, Kafka or the store before a command needs it: `turnout --help` answers at once.
"""

import atexit
import os
import signal
import sys

if "_TURNOUT_COMPLETE" in os.environ:  # a Ctrl-C while a shell completes ends it without a word
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Importing a module adds its commands; `app.py` has the order in which `turnout --help` lists them.
from turnout.cli import init, mcp, questions, run, status, swap, tables, watch  # noqa: F401
from turnout.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point of the `turnout` command."""
    try:
        app(prog_name="turnout")
    except SystemExit as end:
        if "duckdb" not in sys.modules or not isinstance(end.code, int):
            raise
        # DuckDB would list on stderr all that daemon threads still hold when Python frees its modules.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)
