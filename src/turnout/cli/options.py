"""The options that several commands have, and the client that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli import completion
from turnout.errors import TurnoutError
from turnout_client import DEFAULT_URL as DEFAULT_URL

if TYPE_CHECKING:
    from turnout_client import Client

JSON = "turnout.json"
"""Where a context remembers `--json`: errors obey it, too."""


def _remember_json(context: typer.Context, value: bool) -> bool:
    context.meta[JSON] = value
    return value


Json = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_remember_json,
        help="Print JSON on standard output: one document, or one line for each change.",
    ),
]
Url = Annotated[str, typer.Option("--url", envvar="TURNOUT_URL", help="The address of the server.")]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="TURNOUT_TOKEN",
        help="Access token. Prefer TURNOUT_TOKEN: command lines are visible to others.",
        show_default=False,
    ),
]
Config = Annotated[str, typer.Option("--config", "-c", help="The configuration file.")]
Table = Annotated[
    str,
    typer.Argument(
        help="The table; NAME@7 is generation 7 of it.", show_default=False, autocompletion=completion.tables
    ),
]
Sort = Annotated[str, typer.Option(help="Columns to sort by; -age is descending.", show_default=False)]
Columns = Annotated[str, typer.Option(help="Columns to show: name,age.", show_default=False)]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Rows to keep, as 'column operator value'; can be repeated, then all must hold.", show_default=False
    ),
]


_HINTS = {
    "server_unreachable": "start a server (turnout run, turnout demo), or give its address with --url or TURNOUT_URL",
    "unauthorized": "give the token with TURNOUT_TOKEN or --token",
    "bad_token": "check TURNOUT_TOKEN or --token",
}
"""Hints that name commands and options, in the place of those for programs."""


def for_terminal(error: TurnoutError) -> TurnoutError:
    """The error with a hint for somebody at a terminal; one that names a similar name stays."""
    hint = _HINTS.get(error.code)
    if hint is None or "did you mean" in error.hint:
        return error
    return TurnoutError(error.code, error.message, hint, status=error.status)


def connected(url: str, token: str) -> Client:
    """A client of the server that the options name."""
    from turnout_client import connect

    return connect(url, token or None, name="cli")
