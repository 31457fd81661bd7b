"""`history`: the swaps of a running server so far."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.padding import Padding

from turnout.cli import options, output
from turnout.cli.app import app, examples

_TIMES = {"buildSeconds": "build", "catchUpSeconds": "catch-up", "publishSeconds": "publish"}


@app.command(epilog=examples("turnout history --limit 5"))
def history(
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest swaps to show.")] = 20,
    json: options.Json = False,
) -> None:
    """Show the swaps so far, newest last: what changed, who asked, how long it took, the outcome."""
    with options.connected(url, token) as client:
        swaps = client.swaps()[-limit:]
    if json:
        output.print_json({"swaps": swaps})
        return
    screen = output.console()
    if not swaps:
        screen.print("No swaps yet. Try: turnout swap --help")
    for swap in swaps:
        outcome = str(swap.get("outcome"))
        generation = swap.get("generation")
        head = output.cell(f"{'' if generation is None else generation:>4}  ", "bold")
        head += output.cell(f"{outcome.replace('_', ' '):<11}", output.OUTCOME_STYLES.get(outcome, "yellow"))
        head += output.cell(f"  {_moment(swap.get('ts'))}  {_asked_and_took(swap)}", "dim")
        screen.print(head)
        for line in _changed(swap):
            screen.print(Padding(output.cell(line), (0, 0, 0, 6)))


def _moment(text: object) -> str:
    """A time of the server, to the second, in UTC."""
    return str(text or "")[:19].replace("T", " ") + "Z"


def _asked_and_took(swap: Mapping[str, Any]) -> str:
    times = [f"{word} {swap[name]:.1f} s" for name, word in _TIMES.items() if swap.get(name)]
    return ", ".join([f"by {swap['requester']}" if swap.get("requester") else "", *times]).strip(", ")


def _changed(swap: Mapping[str, Any]) -> list[str]:
    """What differs between the two plans, then the detail: of an apply what changed, of a failure why."""
    before, after = _words(swap.get("from")), _words(swap.get("to"))
    changed = [
        f"{name}: {before[name]} -> {value}" for name, value in after.items() if before.get(name, value) != value
    ]
    changed += [f"{name}={value}" for name, value in after.items() if name not in before]
    return [text for text in (", ".join(changed), str(swap.get("detail") or "")) if text]


def _words(plan: object) -> dict[str, str]:
    """The plan `users=users2 join=left` as names and values."""
    return {name: value for name, _, value in (word.partition("=") for word in str(plan or "").split())}
