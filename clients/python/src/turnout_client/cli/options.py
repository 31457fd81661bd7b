"""Options shared by several commands, their shell completion, and the client that they select."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout_client import DEFAULT_URL as DEFAULT_URL
from turnout_client.control_fields import JOINS
from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client import Client

_COMPLETION_SECONDS = 1.0

JSON = "turnout.json"
"""The key of a context's `meta` that stores `--json`, which also applies to errors."""


def _remember_json(context: typer.Context, value: bool) -> bool:
    context.meta[JSON] = value
    return value


# -- shell completion: these functions must not print, wait long or fail; after an error they offer nothing


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    found = _ask(context, "/api/tables").get("tables", ())
    return _starting((table["name"] for table in found), incomplete)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    return _starting(_ask(context, "/api/topics").get("topics", ()), incomplete)


def complete_source_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Complete `SOURCE=` before the equals sign, and `SOURCE=TOPIC` after it."""
    source, mark, topic = incomplete.partition("=")
    if mark:
        return [f"{source}={name}" for name in complete_topic(context, topic)]
    return _starting((f"{name}=" for name in _ask(context, "/api/status").get("sources", ())), incomplete)


def complete_join(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a join, also after `VIEW=`."""
    view, mark, join = incomplete.rpartition("=")
    found = _ask(context, "/api/status").get("joins") or JOINS
    return [f"{view}{mark}{name}" for name in _starting(found, join)]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(context: typer.Context, path: str) -> dict[str, Any]:
    try:
        import httpx

        url = str(context.params.get("url") or os.environ.get("TURNOUT_URL") or DEFAULT_URL).rstrip("/")
        token = context.params.get("token") or os.environ.get("TURNOUT_TOKEN") or ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        tls = url.startswith("https:")
        answer = httpx.get(
            f"{url}{path}", headers=headers, timeout=_COMPLETION_SECONDS, verify=tls, trust_env=tls
        ).json()
    except Exception:
        return {}
    return answer if isinstance(answer, dict) else {}


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
    typer.Argument(help="The table; NAME@7 is its generation 7.", show_default=False, autocompletion=complete_table),
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
"""Hints for a terminal, which name commands and options; they replace the hints for programs."""


def for_terminal(error: TurnoutError) -> TurnoutError:
    """Return the error with a hint for a terminal user; a hint that suggests a similar name is kept."""
    hint = _HINTS.get(error.code)
    if hint is None or "did you mean" in error.hint:
        return error
    return TurnoutError(error.code, error.message, hint, status=error.status)


def connected(url: str, token: str) -> Client:
    """Return a client of the server at `url`; an empty token means none."""
    from turnout_client import connect

    return connect(url, token or None, name="cli")
