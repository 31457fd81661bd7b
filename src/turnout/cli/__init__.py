"""The command line, one module for each command; `options.py` and `output.py` have what they share.

Nothing here imports Spark, Kafka or the store before a command needs it: `turnout --help` answers at once.
"""

from turnout.cli.app import app

# Importing a module adds its command, `swap` also `rollback`; `turnout --help` lists them in this order.
# isort: off
from turnout.cli import demo, run, init, check, prepare, broker, tables, status, history  # noqa: F401
from turnout.cli import watch, summary, sql, swap, apply  # noqa: F401

__all__ = ["app", "main"]


def main() -> None:
    """The entry point of the `turnout` command."""
    app(prog_name="turnout")
