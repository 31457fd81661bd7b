"""`swap` and `rollback`: send a control message to a running server, and print its outcome."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from turnout.cli import options, output
from turnout.cli.app import app, examples
from turnout.errors import TurnoutError
from turnout.plan.control import join_field, topic_field

BAD_OUTCOMES = frozenset({"rejected", "failed", "superseded"})

ExpectedOption = Annotated[
    int | None,
    typer.Option("--expected-generation", min=0, help="Only while this generation is published.", show_default=False),
]
RequestOption = Annotated[
    str, typer.Option("--request-id", help="Your name for this request, shown with its outcome.", show_default=False)
]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Return when the request is taken, without its outcome.")]


@app.command(
    epilog=examples(
        "turnout swap --users users2 --accounts accounts2 --join inner",
        "turnout swap --topic users=users2 --start earliest --dry-run",
        "turnout swap --join left --expected-generation 7 --request-id deploy-42",
    )
)
def swap(
    users: Annotated[str, typer.Option(help="The topic of the source users.", show_default=False)] = "",
    accounts: Annotated[str, typer.Option(help="The topic of the source accounts.", show_default=False)] = "",
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[VIEW=]JOIN",
            help="left, natural, inner, right, full, semi or anti; of one view: final_ui=inner, repeatable.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="SOURCE=TOPIC", help="The topic of any source; repeatable.", show_default=False
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(help="latest, earliest, or a time: 2026-01-01T00:00:00Z.", show_default=False)
    ] = "",
    expected_generation: ExpectedOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate only; nothing changes.")] = False,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Move the tables to other topics, or to another join, without a break; wait for the outcome.

    What you leave out stays as it is. Exit code 1 when the outcome is `rejected`, `failed` or `superseded`. What each
    field means: docs/reference/control.md.
    """
    topics = {"users": users, "accounts": accounts} | dict(map(_source_topic, topic or ()))
    message: dict[str, Any] = {topic_field(source): name for source, name in topics.items() if name}
    message |= dict(map(_join, join or ()))
    if start:
        message["start"] = start if start.lower() in ("latest", "earliest") else {"timestamp": start}
    if not message:
        raise typer.BadParameter("nothing to change: give --users, --accounts, --topic, --join or --start")
    if dry_run:
        message["dryRun"] = True
    message |= _request(request_id, expected_generation)
    with options.connected(url, token) as client:
        _finish(client.control(message, wait=not no_wait), json, wait=not no_wait)


@app.command(epilog=examples("turnout rollback", "turnout rollback --expected-generation 7"))
def rollback(
    expected_generation: ExpectedOption = None,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Go back to the previous plan.

    At once while its generation still lingers, by an ordinary build later.
    """
    with options.connected(url, token) as client:
        answer = client.rollback(_request(request_id, expected_generation), wait=not no_wait)
        _finish(answer, json, wait=not no_wait)


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


def _request(request_id: str, expected_generation: int | None) -> dict[str, Any]:
    given = {"requestId": request_id or None, "expectedGeneration": expected_generation}
    return {name: value for name, value in given.items() if value is not None}


def _finish(answer: Mapping[str, Any], json: bool, *, wait: bool) -> None:
    outcome = answer.get("outcome")
    if wait and outcome is None:
        raise TurnoutError(
            code="outcome_pending",
            message="the server took the request, but its outcome did not come in time",
            hint="look at turnout status, and at the last row of turnout history",
        )
    if json:
        output.print_json(answer)
    else:
        screen = output.console()
        screen.print(output.cell(outcome or "accepted", output.OUTCOME_STYLES.get(outcome or "", "yellow") + " bold"))
        for name, value in answer.items():
            if name != "outcome" and value not in (None, "", [], {}):
                screen.print(output.cell(f"  {name}: ", "dim") + output.cell(value))
    if outcome in BAD_OUTCOMES:
        raise typer.Exit(1)
