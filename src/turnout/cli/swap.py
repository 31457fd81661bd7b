"""`swap`, `rollback`, `cancel`, `publish` and `discard`: send a control message to a running server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from turnout.cli import completion, options, output
from turnout.cli.app import app, examples
from turnout.cli.progress import follow
from turnout.errors import TurnoutError
from turnout.plan.control import join_field, topic_field
from turnout.plan.joins import KNOWN_JOINS

if TYPE_CHECKING:
    from turnout_client import Client

BAD_OUTCOMES = frozenset({"rejected", "failed", "superseded", "cancelled"})

ExpectedOption = Annotated[
    int | None,
    typer.Option(
        "--expected-generation",
        min=0,
        help="Act only if this generation is published; for publish and discard, if it is the candidate.",
        show_default=False,
    ),
]
RequestOption = Annotated[
    str, typer.Option("--request-id", help="Your name for this request, shown with its outcome.", show_default=False)
]
ForceOption = Annotated[bool, typer.Option("--force", help="Ignore the guards (`swap.guards`).")]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Return when the request is accepted, before its outcome.")
]


@app.command(
    epilog=examples(
        "turnout swap --topic users=users2 --topic accounts=accounts2 --join inner",
        "turnout swap --topic users=users2 --start earliest --dry-run",
        "turnout swap --join left --expected-generation 7 --request-id deploy-42",
        "turnout swap --topic users=users2 --review",
    )
)
def swap(
    users: Annotated[
        str,
        typer.Option(
            autocompletion=completion.topics, help="Short for --topic users=TOPIC, as in the demo.", show_default=False
        ),
    ] = "",
    accounts: Annotated[
        str,
        typer.Option(autocompletion=completion.topics, help="Short for --topic accounts=TOPIC.", show_default=False),
    ] = "",
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[VIEW=]JOIN",
            help=f"{KNOWN_JOINS}; for one view: final_ui=inner. Repeatable.",
            show_default=False,
            autocompletion=completion.joins,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="SOURCE=TOPIC",
            help="The topic that a source is read from; repeatable.",
            show_default=False,
            autocompletion=completion.source_topics,
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(help="latest, earliest, or a time: 2026-01-01T00:00:00Z.", show_default=False)
    ] = "",
    expected_generation: ExpectedOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be built; change nothing.")] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Build a candidate, which waits for turnout publish or turnout discard.")
    ] = False,
    force: ForceOption = False,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Move the tables to other topics, or to another join, without a break; wait for the outcome.

    What you leave out stays as it is. Ctrl-C asks whether to cancel the swap; otherwise it goes on. Exit code 1 when
    the outcome is `rejected`, `failed`, `superseded` or `cancelled`. What each field means: docs/reference/control.md.
    """
    topics = {"users": users, "accounts": accounts} | dict(map(_source_topic, topic or ()))
    message: dict[str, Any] = {topic_field(source): name for source, name in topics.items() if name}
    message |= dict(map(_join, join or ()))
    if start:
        message["start"] = start if start.lower() in ("latest", "earliest") else {"timestamp": start}
    if not message:
        raise typer.BadParameter("nothing to change: give --topic, --join or --start")
    if dry_run:
        message["dryRun"] = True
    if review:
        message["publish"] = False
    message |= _request(request_id, expected_generation, force)
    with options.connected(url, token) as client:
        _send(client, "swap", partial(client.control, message, wait=not no_wait), json, wait=not no_wait, builds=True)


def _add_action(name: str, help_text: str, *commands: str, builds: bool = False) -> None:
    """Add the command of an action: it has no options but those of every message."""

    def command(
        expected_generation: ExpectedOption = None,
        request_id: RequestOption = "",
        no_wait: NoWaitOption = False,
        url: options.Url = options.DEFAULT_URL,
        token: options.Token = "",
        json: options.Json = False,
    ) -> None:
        with options.connected(url, token) as client:
            request = _request(request_id, expected_generation)
            send = partial(getattr(client, name), request, wait=not no_wait)
            _send(client, name, send, json, wait=not no_wait, builds=builds)

    app.command(name, help=help_text, epilog=examples(*commands))(command)


_add_action(
    "rollback",
    """Go back to the previous plan.

    Immediate while its generation is still running (`swap.linger_seconds`), an ordinary build after that. During a
    build it ends the build.
    """,
    "turnout rollback",
    "turnout rollback --expected-generation 7",
    builds=True,
)
_add_action(
    "cancel",
    """End the build under way; the published tables stay as they are.

    Exit code 1 when no build is under way.
    """,
    "turnout cancel",
)


@app.command(epilog=examples("turnout publish", "turnout publish --expected-generation 9"))
def publish(
    expected_generation: ExpectedOption = None,
    force: ForceOption = False,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Publish the candidate that `turnout swap --review` has made.

    At once, in one moment for all viewers. Exit code 1 when there is no candidate, or when it breaks a guard.
    `--expected-generation` is the candidate's.
    """
    with options.connected(url, token) as client:
        request = _request(request_id, expected_generation, force)
        send = partial(client.publish, request, wait=not no_wait)
        _send(client, "publish", send, json, wait=not no_wait, builds=False)


_add_action(
    "discard",
    """Remove the candidate; the published tables stay as they are.

    Exit code 1 when there is no candidate. `--expected-generation` is the candidate's.
    """,
    "turnout discard",
)


def _source_topic(text: str) -> tuple[str, str]:
    source, mark, topic = text.partition("=")
    if not (mark and source.strip() and topic.strip()):
        raise typer.BadParameter(f"{text!r} is not SOURCE=TOPIC, such as users=users2", param_hint="--topic")
    return source.strip(), topic.strip()


def _join(text: str) -> tuple[str, str]:
    """The field of a message and its join."""
    view, mark, name = text.rpartition("=")
    if not name.strip() or (mark and not view.strip()):
        raise typer.BadParameter(f"{text!r} is not [VIEW=]JOIN, such as inner or final_ui=inner", param_hint="--join")
    return join_field(view.strip()) if mark else "joinType", name.strip()


def _request(request_id: str, expected_generation: int | None, force: bool = False) -> dict[str, Any]:
    given = {"requestId": request_id or None, "expectedGeneration": expected_generation, "force": force or None}
    return {name: value for name, value in given.items() if value is not None}


def _send(
    client: Client, what: str, send: Callable[[], dict[str, Any]], json: bool, *, wait: bool, builds: bool
) -> None:
    """Send a message, show the progress of its build if it has one, and print its outcome."""
    answer = follow(client, what, send, as_json=json) if wait and builds else send()
    outcome = answer.get("outcome")
    if wait and outcome is None:
        raise TurnoutError(
            code="outcome_pending",
            message="the server accepted the request, but its outcome did not arrive in time",
            hint="see turnout status, and the last row of turnout history",
        )
    if json:
        output.print_json(answer)
    else:
        _print(answer)
    if outcome in BAD_OUTCOMES:
        raise typer.Exit(1)


def _print(answer: Mapping[str, Any]) -> None:
    screen, outcome = output.console(), answer.get("outcome")
    if isinstance(answer.get("report"), Mapping):
        _print_report(screen, answer["report"])
        return
    screen.print(output.cell(outcome or "accepted", output.OUTCOME_STYLES.get(outcome or "", "yellow") + " bold"))
    for name, value in answer.items():
        if name != "outcome" and value not in (None, "", [], {}):
            screen.print(output.cell(f"  {name}: ", "dim") + output.cell(value))


def _print_report(screen: Console, report: Mapping[str, Any]) -> None:
    """The report of a dry run: what would be built, and what the newest records say about it."""
    if not report["changes"]:
        screen.print("Dry run: nothing would change; the tables are already like this.", style="bold")
    else:
        screen.print("Dry run: this would work. Nothing was changed. A generation would be built:", style="bold")
    plan, sources = report["plan"], report.get("sources") or {}
    grid = Table.grid(padding=(0, 2))
    for source, topic in plan["topics"].items():
        grid.add_row(f"  {source}", output.cell(topic), output.cell(origin_text(sources.get(source) or {})))
    for view, join in plan["joins"].items():
        grid.add_row(f"  {view}", output.cell(f"{join} join"), "")
    start = plan["start"] if isinstance(plan["start"], str) else plan["start"]["timestamp"]
    grid.add_row("  start", output.cell(start), "")
    screen.print(grid)
    for view, keys in (report.get("sampleUnmatched") or {}).items():
        if keys:
            screen.print(output.cell(f"Keys of newest records without a match in {view}: {', '.join(map(str, keys))}"))
    for fault in report.get("sampleBad") or ():
        words = (fault.get("topic"), fault.get("field"), fault.get("reason"))
        screen.print(output.cell(f"Bad record: {': '.join(str(word) for word in words if word)}", "yellow"))


def origin_text(origin: Mapping[str, int]) -> str:
    """Describe the origin of a source's rows, such as `5,213 rows kept` or `1,000 records to read`."""
    read = f"{origin.get('read', 0):,} records to read"
    if "kept" not in origin:
        return read if origin else ""
    return f"{origin['kept']:,} rows kept" + (f", {read}" if origin.get("read") else "")
