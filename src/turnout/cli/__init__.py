"""The command line, one module for each command; `options.py` and `output.py` have what they share.

Nothing here imports Spark, Kafka or the store before a command needs it: `turnout --help` answers at once.
"""

import os
import signal

if "_TURNOUT_COMPLETE" in os.environ:  # a Ctrl-C while a shell completes ends it without a word
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from turnout.cli.app import app

# Importing a module adds its command, `swap` also those of actions; `turnout --help` lists them in this order.
# isort: off
from turnout.cli import demo, run, init, check, prepare, broker, tables, status, history  # noqa: F401
from turnout.cli import rows, why, watch, summary, difference, sql, swap, apply, types, mcp, topic, alerts  # noqa: F401

__all__ = ["app", "main"]


def main() -> None:
    """The entry point of the `turnout` command."""
    app(prog_name="turnout")
