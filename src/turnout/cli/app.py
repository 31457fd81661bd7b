"""The application: its commands, `--version`, and where errors end.

`make reference` writes the help of all commands to docs/reference/cli.md. Errors go to standard
error as `error: ...` and `hint: ...`, with exit code 1; wrong usage is 2.
"""

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turnout import __version__
from turnout.cli import options, output
from turnout.errors import TurnoutError

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


class Commands(TyperGroup):
    """The commands. A TurnoutError of any of them ends here, and so does an error of the disk."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for command in self.commands.values():  # the lines of a paragraph end where the terminal does
            paragraphs = (command.help or "").split("\n\n")
            command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            failed = TurnoutError(
                "file_unwritable",
                f"cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror}",
                "free disk space, change its permissions, or name another folder",
            )
        except TurnoutError as error:
            failed = error
        output.print_error(options.for_terminal(failed), as_json=ctx.meta.get(options.JSON, False))
        raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they may hold secrets
    help="Live Kafka views on Spark, under names that never change. Start with: turnout demo",
    epilog="Example:  turnout demo",
)


def examples(*commands: str) -> str:
    """The end of a command's help: a line for each example."""
    return "\n\n".join(f"Example:  {command}" for command in commands)


def _version(value: bool) -> None:
    if value:
        print(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def _turnout(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass
