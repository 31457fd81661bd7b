"""The commands that change a running server: `swap`, `rollback`, `cancel`, `publish`, `discard` and `apply`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from turnout_client.cli import options, output
from turnout_client.cli.app import Printed, app, asking, examples, show
from turnout_client.cli.program import PROGRAM
from turnout_client.cli.progress import follow
from turnout_client.control_fields import JOINS, join_field, topic_field
from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client import Client

_BAD_OUTCOMES = frozenset({"rejected", "failed", "superseded", "cancelled"})
_TAKES_EFFECT = {
    "generation": ("after a rebuild", "yellow"),
    "restart": ("after a restart", "red"),
    "nothing": ("at once", "green"),
}

ExpectedOption = Annotated[
    int | None,
    typer.Option(
        "--expected-generation",
        min=0,
        help="Act only if this generation is published; for publish and discard, only if it is the candidate.",
        show_default=False,
    ),
]
RequestOption = Annotated[
    str, typer.Option("--request-id", help="Your name for this request, shown with its outcome.", show_default=False)
]
ForceOption = Annotated[bool, typer.Option("--force", help="Ignore the guards (`swap.guards`).")]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Return when the request is accepted, without its outcome.")
]


@asking(
    "turnout swap --topic users=users2 --topic accounts=accounts2 --join inner",
    "turnout swap --topic users=users2 --start earliest --dry-run",
    "turnout swap --join left --expected-generation 7 --request-id deploy-42",
    "turnout swap --topic users=users2 --review",
)
def swap(
    client: Client,
    users: Annotated[
        str,
        typer.Option(
            autocompletion=options.complete_topic,
            help="Short for --topic users=TOPIC, as in the demo.",
            show_default=False,
        ),
    ] = "",
    accounts: Annotated[
        str,
        typer.Option(
            autocompletion=options.complete_topic, help="Short for --topic accounts=TOPIC.", show_default=False
        ),
    ] = "",
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[VIEW=]JOIN",
            help=f"{', '.join(JOINS)}; for one view: final_ui=inner. Repeatable.",
            show_default=False,
            autocompletion=options.complete_join,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="SOURCE=TOPIC",
            help="The topic that a source is read from; repeatable.",
            show_default=False,
            autocompletion=options.complete_source_topic,
        ),
    ] = None,
    start: Annotated[
        str, typer.Option(help="latest, earliest, or a time: 2026-01-01T00:00:00Z.", show_default=False)
    ] = "",
    expected_generation: ExpectedOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be built; change nothing.")] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Build a candidate only; turnout publish or turnout discard decides on it.")
    ] = False,
    force: ForceOption = False,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    json: bool = False,
) -> Printed:
    """Change the topics or the joins of the tables without interruption, and wait for the outcome.

    Topics and joins that you omit do not change. Ctrl-C asks whether to cancel the swap; otherwise it continues. The
    exit code is 1 if the outcome is `rejected`, `failed`, `superseded` or `cancelled`. See docs/reference/control.md.
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
    return _act(client, "control", message, json, no_wait, builds=True)


def _add_action(name: str, help_text: str, *commands: str, builds: bool = False) -> None:
    """Add the command of an action that has only the options of every message."""

    def act(
        client: Client,
        expected_generation: ExpectedOption = None,
        request_id: RequestOption = "",
        no_wait: NoWaitOption = False,
        json: bool = False,
    ) -> Printed:
        return _act(client, name, _request(request_id, expected_generation), json, no_wait, builds=builds)

    asking(*commands, name=name, help=help_text)(act)


_add_action(
    "rollback",
    """Go back to the previous plan.

    This is immediate while the previous generation still runs (`swap.linger_seconds`); later it needs a build. During a
    build it ends that build instead.
    """,
    "turnout rollback",
    "turnout rollback --expected-generation 7",
    builds=True,
)
_add_action(
    "cancel",
    """End the current build; the published tables do not change.

    The exit code is 1 if no build is running.
    """,
    "turnout cancel",
)


@asking("turnout publish", "turnout publish --expected-generation 9")
def publish(
    client: Client,
    expected_generation: ExpectedOption = None,
    force: ForceOption = False,
    request_id: RequestOption = "",
    no_wait: NoWaitOption = False,
    json: bool = False,
) -> Printed:
    """Publish the candidate that `turnout swap --review` has built.

    All viewers see the change at the same moment. The exit code is 1 if there is no candidate, or if it breaks a guard.
    `--expected-generation` is the generation of the candidate.
    """
    return _act(client, "publish", _request(request_id, expected_generation, force), json, no_wait)


_add_action(
    "discard",
    """Remove the candidate; the published tables do not change.

    The exit code is 1 if there is no candidate. `--expected-generation` is the generation of the candidate.
    """,
    "turnout discard",
)


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
    """Apply a changed configuration file to a running server, and show the changes.

    Sources, columns, views, sinks, alerts and limits can change; see docs/how-to/apply.md. The server reads the file:
    relative paths start at the folder of the file that it was started with, and references such as `${NAME}` must be
    those of the current file. If a change needs a restart, the whole file is refused and nothing is applied. The exit
    code is 1 if the outcome is `rejected`, `failed` or `cancelled`. For a server on this machine without `access:`,
    `turnout` reads the token from the `data_dir` of the file; `turnout-client` needs it in TURNOUT_TOKEN.
    """
    text = _file_text(Path(config))
    with options.connected(url, token or _local_token(Path(config), url)) as client:
        send = partial(
            client.apply,
            text,
            dry_run=dry_run,
            request_id=request_id or None,
            expected_generation=expected_generation,
            force=force,
        )
        answer = _outcome(follow(client, "apply", send, as_json=json), "file")
    show(Printed(answer, _applied(answer, dry_run), answer["outcome"] in _BAD_OUTCOMES), json)


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f"{path}: cannot be read ({reason}); give the file with -c"
        raise TurnoutError("bad_config", message, status=400) from None


def _local_token(path: Path, url: str) -> str:
    """Return the token of a server without `access:`; empty if the server is on another machine."""
    here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return (PROGRAM.find_token(path) if here else None) or ""


def _source_topic(text: str) -> tuple[str, str]:
    source, mark, topic = text.partition("=")
    if not (mark and source.strip() and topic.strip()):
        raise typer.BadParameter(f"{text!r} is not SOURCE=TOPIC, such as users=users2", param_hint="--topic")
    return source.strip(), topic.strip()


def _join(text: str) -> tuple[str, str]:
    """Parse `[VIEW=]JOIN` into the message field and the join."""
    view, mark, name = text.rpartition("=")
    if not name.strip() or (mark and not view.strip()):
        raise typer.BadParameter(f"{text!r} is not [VIEW=]JOIN, such as inner or final_ui=inner", param_hint="--join")
    return join_field(view.strip()) if mark else "joinType", name.strip()


def _request(request_id: str, expected_generation: int | None, force: bool = False) -> dict[str, Any]:
    given = {"requestId": request_id or None, "expectedGeneration": expected_generation, "force": force or None}
    return {name: value for name, value in given.items() if value is not None}


def _act(
    client: Client, action: str, message: Mapping[str, Any], json: bool, no_wait: bool, *, builds: bool = False
) -> Printed:
    """Send a message, show the progress if it `builds` a generation, and return the output."""
    send = partial(getattr(client, action), message, wait=not no_wait)
    what = "swap" if action == "control" else action
    answer = send() if no_wait or not builds else follow(client, what, send, as_json=json)
    if not no_wait:
        _outcome(answer, "request")
    return Printed(answer, _decided(answer), answer.get("outcome") in _BAD_OUTCOMES)


def _outcome(answer: dict[str, Any], sent: str) -> dict[str, Any]:
    """Return the answer; raise TurnoutError if it has no outcome yet."""
    if answer.get("outcome") is None:
        raise TurnoutError(
            code="outcome_pending",
            message=f"the server accepted the {sent}, but its outcome did not arrive in time",
            hint=f"see {PROGRAM.name} status, and the last row of {PROGRAM.name} history",
        )
    return answer


def _outcome_text(outcome: str) -> Text:
    return output.cell(outcome, output.OUTCOME_STYLES.get(outcome, "yellow") + " bold")


def _decided(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    if isinstance(answer.get("report"), Mapping):
        yield from _report(answer["report"])
        return
    yield _outcome_text(answer.get("outcome") or "accepted")
    for name, value in answer.items():
        if name != "outcome" and value not in (None, "", [], {}):
            yield output.cell(f"  {name}: ", "dim") + output.cell(value)


def _report(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the report of a dry run: the generation that would be built, and findings in the newest records."""
    if not report["changes"]:
        yield Text("Dry run: nothing would change; the tables already have this plan.", "bold")
    else:
        yield Text("Dry run: this would work. Nothing was changed. A generation would be built:", "bold")
    plan, sources = report["plan"], report.get("sources") or {}
    grid = Table.grid(padding=(0, 2))
    for source, topic in plan["topics"].items():
        grid.add_row(f"  {source}", output.cell(topic), output.cell(_origin_text(sources.get(source) or {})))
    for view, join in plan["joins"].items():
        grid.add_row(f"  {view}", output.cell(f"{join} join"), "")
    start = plan["start"] if isinstance(plan["start"], str) else plan["start"]["timestamp"]
    grid.add_row("  start", output.cell(start), "")
    yield grid
    for view, keys in (report.get("sampleUnmatched") or {}).items():
        if keys:
            yield output.cell(f"Keys of newest records without a match in {view}: {', '.join(map(str, keys))}")
    for fault in report.get("sampleBad") or ():
        words = (fault.get("topic"), fault.get("field"), fault.get("reason"))
        yield output.cell(f"Bad record: {': '.join(str(word) for word in words if word)}", "yellow")


def _origin_text(origin: Mapping[str, int]) -> str:
    """Describe the origin of a source's rows, such as `5,213 rows kept` or `1,000 records to read`."""
    read = f"{origin.get('read', 0):,} records to read"
    if "kept" not in origin:
        return read if origin else ""
    return f"{origin['kept']:,} rows kept" + (f", {read}" if origin.get("read") else "")


def _applied(answer: dict[str, Any], dry_run: bool) -> Iterator[RenderableType]:
    outcome, changes = answer["outcome"], answer["changes"]
    if changes:
        yield _changes(changes)
    if "error" in answer:
        yield _outcome_text(outcome)
        output.print_error(TurnoutError(**answer["error"]), as_json=False)
    elif dry_run:
        yield output.cell(_would(changes, answer.get("sources")), "bold")
    else:
        yield _outcome_text(outcome) + output.cell(f"  generation {answer['generation']}")


def _would(changes: list[dict[str, Any]], sources: dict[str, dict[str, int]] | None) -> str:
    if not changes:
        return "Dry run: nothing would change."
    if sources is None:
        return "Dry run: this would take effect at once. Nothing was changed."
    origins = ", ".join(f"{source} {_origin_text(origin)}" for source, origin in sources.items())
    return f"Dry run: a generation would be built: {origins}. Nothing was changed."


def _changes(changes: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    for name in ("setting", "from", "to", "takes effect"):
        table.add_column(name, overflow="fold")
    for change in changes:
        values = [output.cell("" if value is None else value) for value in (change["from"], change["to"])]
        effect = _TAKES_EFFECT.get(str(change["needs"]), (str(change["needs"]), ""))
        table.add_row(output.cell(change["path"]), *values, output.cell(*effect))
    return table
