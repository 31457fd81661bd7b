"""The options that several commands have, and the client that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnout.client import Client

DEFAULT_URL = "http://127.0.0.1:10000"
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
Url = Annotated[str, typer.Option("--url", envvar="TURNOUT_URL", help="The server.")]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="TURNOUT_TOKEN",
        help="The token, where the server has access:; better in the environment, where others do not see it.",
        show_default=False,
    ),
]
Config = Annotated[str, typer.Option("--config", "-c", help="The configuration file.")]
Table = Annotated[str, typer.Argument(help="The table; NAME@7 is generation 7 of it.", show_default=False)]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Rows to keep, as 'column operator value'; given several times, all must hold.", show_default=False
    ),
]


def connected(url: str, token: str) -> Client:
    """A client of the server that the options name."""
    from turnout.client import connect

    return connect(url, token or None, name="cli")
