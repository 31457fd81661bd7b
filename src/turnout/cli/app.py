"""What all commands share: the application, its options, and how errors and results are printed.

Errors go to standard error as `error: ...` and `hint: ...`, with exit code 1; wrong usage is 2.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from turnout import __version__
from turnout.errors import ConfigError, TurnoutError

if TYPE_CHECKING:
    from turnout.client import Client

DEFAULT_URL = "http://127.0.0.1:10000"
_JSON = "turnout.json"
_PIPED_WIDTH = 200
OUTCOME_STYLES = {"applied": "green", "rolled_back": "green", "failed": "red", "rejected": "red"}


class _Commands(TyperGroup):
    """The commands; a TurnoutError of any of them ends here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TurnoutError as error:
            report(error, as_json=ctx.meta.get(_JSON, False))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they may hold secrets
    help="Live Kafka views on Spark, under names that never change. Start with: turnout demo",
    epilog="Example:  turnout demo",
)


def _version(value: bool) -> None:
    if value:
        print(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def _turnout(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass


def _remember_json(context: typer.Context, value: bool) -> bool:
    context.meta[_JSON] = value
    return value


JsonOption = Annotated[bool, typer.Option("--json", callback=_remember_json, help="Print JSON.")]
UrlOption = Annotated[str, typer.Option("--url", envvar="TURNOUT_URL", help="The server's address.")]
TokenOption = Annotated[
    str,
    typer.Option("--token", envvar="TURNOUT_TOKEN", help="The token, where the server wants one.", show_default=False),
]
ConfigOption = Annotated[str, typer.Option("--config", "-c", help="The configuration file.")]


def connected(url: str, token: str) -> Client:
    """A client of the server that the options name."""
    from turnout.client import connect

    return connect(url, token or None, name="cli")


def report(error: TurnoutError, *, as_json: bool) -> None:
    """Print an error and its hint."""
    if as_json:
        print(json.dumps(error.as_json()), file=sys.stderr)
        return
    faults = error.faults if isinstance(error, ConfigError) else (error.message,)
    for fault in faults:
        print(f"error: {printable(fault)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)


def print_json(value: object) -> None:
    """One line of JSON, not buffered."""
    print(json.dumps(value, ensure_ascii=False, default=list), flush=True)


def console() -> Console:
    """Standard output; a pipe gets wide lines instead of cut cells."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Console(width=wide, highlight=False)


def printable(text: str) -> str:
    """Text from outside without control characters, which a terminal would obey; line breaks stay."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{MIDDLE DOT}" for sign in text)


def cell(value: object, style: str = "") -> Text:
    """A value as a table shows it."""
    if value is None:
        return Text("null", style=style or "dim")
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        # Money and durations read best so; very small numbers need their digits.
        text = f"{value:,.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(printable(text).replace("\n", " "), style=style)
