"""The command line application: its commands, `--version`, the shared options, and error output.

`make reference` writes the help of all commands to docs/reference/cli.md. Help texts are written for `turnout`; another
program replaces the name by its own. Errors go to standard error as `error: ...` and `hint: ...`, with exit code 1;
wrong usage has exit code 2.
"""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType
from typer.core import TyperGroup

from turnout_client import __version__
from turnout_client.cli import options, output
from turnout_client.cli.program import PROGRAM
from turnout_client.errors import TurnoutError

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
# The order of the commands in the help, which differs from the order of their modules.
_ORDER = (
    *("tables", "status", "history", "rows", "why", "watch", "summary", "difference", "sql", "swap", "rollback"),
    *("cancel", "publish", "discard", "apply", "types", "mcp", "alerts"),
)
_COMMANDS = re.compile(rf"\bturnout (?=({'|'.join(_ORDER)})\b)")


class Commands(TyperGroup):
    """The group of all commands. It prints their TurnoutErrors and errors of the disk, and exits with code 1."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        names = (*PROGRAM.first, *_ORDER, *self.commands)
        self.commands = {name: self.commands[name] for name in names if name in self.commands}
        for command in self.commands.values():  # join the lines of a paragraph, so that the terminal wraps them
            paragraphs = (command.help or "").split("\n\n")
            command.help = _named("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
            command.epilog = _named(command.epilog or "")
            for option in command.params:
                if text := getattr(option, "help", None):
                    setattr(option, "help", _named(text))  # noqa: B010

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
    pretty_exceptions_show_locals=False,  # local variables may contain secrets
    help="Query and swap the live tables of a running Turnout. Start with: turnout-client tables",
    epilog="Example:  turnout-client tables --url http://turnout.example:10000",
)


def _named(text: str) -> str:
    """Replace the program name in a text by the name of this program."""
    return _COMMANDS.sub(f"{PROGRAM.name} ", text)


def examples(*commands: str) -> str:
    """Return the epilog of a command's help, with one line for each example."""
    return "\n\n".join(f"Example:  {command}" for command in commands)


class Printed(NamedTuple):
    """The output of a command: `document` with `--json`, otherwise `pictures`. If it `failed`, the exit code is 1."""

    document: object
    pictures: Iterable[RenderableType]
    failed: bool = False


def show(printed: Printed, json: bool) -> None:
    """Print the output of a command; exit with code 1 if it failed."""
    if json:
        output.print_json(printed.document)
    else:
        screen = output.console()
        for picture in printed.pictures:
            screen.print(picture)
    if printed.failed:
        raise typer.Exit(1)


def asking(
    *commands: str, name: str | None = None, help: str | None = None, to: typer.Typer = app
) -> Callable[[Callable[..., Printed | None]], None]:
    """Add a command that calls a server. `commands` are its examples; `--url`, `--token` and `--json` are added.

    The decorated function receives a client, and `json` if it has that parameter. A function that prints its own output
    returns None.
    """

    def add(function: Callable[..., Printed | None]) -> None:
        # `Client` is imported only for type checkers, so it cannot be evaluated here.
        own = dict(inspect.signature(function, eval_str=True, locals={"Client": None}).parameters)
        wants_json = own.pop("json", None) is not None
        del own["client"]

        def command(url: str, token: str, json: bool, **given: Any) -> None:
            with options.connected(url, token) as client:
                printed = function(client, **given, **({"json": json} if wants_json else {}))
            if printed is not None:
                show(printed, json)

        shared = inspect.signature(_shared, eval_str=True).parameters
        setattr(command, "__signature__", inspect.Signature([*own.values(), *shared.values()]))  # noqa: B010
        command.__doc__ = function.__doc__
        to.command(name or function.__name__, help=help, epilog=examples(*commands))(command)

    return add


def _shared(url: options.Url = options.DEFAULT_URL, token: options.Token = "", json: options.Json = False) -> None:
    """Declare the options that every command that calls a server has; only its signature is used."""


def _version(value: bool) -> None:
    if value:
        print(f"{PROGRAM.name} {__version__}")
        raise typer.Exit


@app.callback()
def _turnout(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass
