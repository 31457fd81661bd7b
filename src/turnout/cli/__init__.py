"""The command line: `turnout`, put together from the commands of this package.

Nothing here imports Spark, Kafka or the store before a command needs it: `turnout --help` answers at once.
"""

from turnout.cli.app import app
from turnout.cli.checking import check
from turnout.cli.looking import history, status, tables
from turnout.cli.running import broker, demo, init, run
from turnout.cli.swapping import rollback, swap
from turnout.cli.watching import watch

__all__ = [
    "app",
    "broker",
    "check",
    "demo",
    "history",
    "init",
    "main",
    "rollback",
    "run",
    "status",
    "swap",
    "tables",
    "watch",
]


def main() -> None:
    """The entry point of the `turnout` command."""
    app(prog_name="turnout")
