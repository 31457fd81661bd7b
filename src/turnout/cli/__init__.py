"""The `turnout` command: the commands that ask a server, which `turnout_client.cli` has, and those of a server itself.

Nothing here imports Spark, Kafka or the store before a command needs it: `turnout --help` answers at once.
"""

import os
from pathlib import Path

# Importing a module adds its commands.
from turnout.cli import init, run  # noqa: F401
from turnout_client.cli import PROGRAM, app, main

__all__ = ["app", "main"]


def _find_token(file: Path) -> str | None:
    from turnout.config.sent import find_local_token

    return find_local_token(file, os.environ)


PROGRAM.name, PROGRAM.find_token = "turnout", _find_token
PROGRAM.first = ("demo", "run", "init", "check", "prepare", "broker")
app.info.help = "Live Kafka views on Spark, under names that never change. Start with: turnout demo"
app.info.epilog = "Example:  turnout demo"
