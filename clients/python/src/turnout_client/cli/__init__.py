"""The commands that ask a server, one module for each kind; `app`, `options` and `output` have what they share.

Turnout's own package adds the commands of a server, in `turnout.cli`. `--help` answers at once: a command imports what
it needs when it runs.
"""

import os
import signal

# A Ctrl-C while a shell completes ends it without a word.
if any(name.startswith("_TURNOUT_") and name.endswith("_COMPLETE") for name in os.environ):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Importing a module adds its commands; `app.py` has the order in which help lists them.
from turnout_client.cli import mcp, questions, status, swap, tables, watch  # noqa: F401
from turnout_client.cli.app import app
from turnout_client.cli.program import PROGRAM

__all__ = ["PROGRAM", "app", "main"]


def main() -> None:
    """Run the command line of this program."""
    app(prog_name=PROGRAM.name)
