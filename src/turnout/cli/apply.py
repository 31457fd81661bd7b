"""`apply`: put a changed configuration file in force on a running server, and print what it changes."""

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app, examples
from turnout.cli.progress import follow
from turnout.cli.swap import BAD_OUTCOMES, ExpectedOption, ForceOption, RequestOption, origin_text
from turnout.errors import ConfigError, TurnoutError

_TAKES_EFFECT = {
    "generation": ("after a rebuild", "yellow"),
    "restart": ("after a restart", "red"),
    "nothing": ("at once", "green"),
}


@app.command(epilog=examples("turnout apply -c turnout.yaml --dry-run", "turnout apply -c turnout.yaml"))
def apply(
    config: options.Config = "turnout.yaml",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would change; change nothing.")] = False,
    expected_generation: ExpectedOption = None,
    force: ForceOption = False,
    request_id: RequestOption = "",
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Apply a changed file while the server runs, and show what it changes.

    Sources, columns, views, sinks, alerts and limits; see docs/how-to/apply.md. The server reads the file: relative
    paths start at the file that it was started with, and references such as `${NAME}` must be those of the
    current file. A file with a change that needs a restart is refused as a whole, before anything is done. Exit code 1
    when the outcome is `rejected`, `failed` or `cancelled`. For a server on this machine without `access:`, the command
    reads the token of the server from the `data_dir` of the file.
    """
    text = _read(Path(config))
    with options.connected(url, token or _local_token(Path(config), url)) as client:
        answer = follow(
            client,
            "apply",
            lambda: client.apply(
                text,
                dry_run=dry_run,
                request_id=request_id or None,
                expected_generation=expected_generation,
                force=force,
            ),
            as_json=json,
        )
    if answer.get("outcome") is None:
        raise TurnoutError(
            code="outcome_pending",
            message="the server accepted the file, but its outcome did not arrive in time",
            hint="see turnout status, and the last row of turnout history",
        )
    if json:
        output.print_json(answer)
    else:
        _print(answer, dry_run)
    if answer["outcome"] in BAD_OUTCOMES:
        raise typer.Exit(1)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"{path}: cannot be read ({reason}); give the file with -c"]) from None


def _local_token(path: Path, url: str) -> str:
    """The token of a server without `access:`; it is for this machine alone."""
    from turnout.config.sent import find_local_token

    here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return (find_local_token(path, os.environ) if here else None) or ""


def _print(answer: dict[str, Any], dry_run: bool) -> None:
    screen, outcome, changes = output.console(), answer["outcome"], answer["changes"]
    if changes:
        screen.print(_table(changes))
    style = output.OUTCOME_STYLES.get(outcome, "yellow") + " bold"
    if "error" in answer:
        screen.print(output.cell(outcome, style))
        output.print_error(TurnoutError(**answer["error"]), as_json=False)
    elif dry_run:
        screen.print(output.cell(_would(changes, answer.get("sources")), "bold"))
    else:
        screen.print(output.cell(outcome, style) + output.cell(f"  generation {answer['generation']}"))


def _would(changes: list[dict[str, Any]], sources: dict[str, dict[str, int]] | None) -> str:
    if not changes:
        return "Dry run: nothing would change."
    if sources is None:
        return "Dry run: this would take effect at once. Nothing was changed."
    origins = ", ".join(f"{source} {origin_text(origin)}" for source, origin in sources.items())
    return f"Dry run: a generation would be built: {origins}. Nothing was changed."


def _table(changes: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    for name in ("setting", "from", "to", "takes effect"):
        table.add_column(name, overflow="fold")
    for change in changes:
        values = [output.cell("" if value is None else value) for value in (change["from"], change["to"])]
        effect = _TAKES_EFFECT.get(str(change["needs"]), (str(change["needs"]), ""))
        table.add_row(output.cell(change["path"]), *values, output.cell(*effect))
    return table
