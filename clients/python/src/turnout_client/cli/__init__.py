"""The commands that call a server, grouped in modules; `app`, `options` and `output` contain the shared parts.

The package `turnout` adds the commands that run a server, in `turnout.cli`. A command imports its packages when it
runs, so that `--help` is fast.
"""

import os
import signal

# During shell completion Ctrl-C ends the program without a traceback.
if any(name.startswith("_TURNOUT_") and name.endswith("_COMPLETE") for name in os.environ):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Importing a module registers its commands; `app.py` defines their order in the help.
from turnout_client.cli import mcp, questions, status, swap, tables, watch  # noqa: F401
from turnout_client.cli.app import app
from turnout_client.cli.program import PROGRAM

__all__ = ["PROGRAM", "app", "main"]


def main() -> None:
    """Run the command line of this program."""
    app(prog_name=PROGRAM.name)
