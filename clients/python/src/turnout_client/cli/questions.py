"""The commands `summary`, `difference`, `sql` and `why`, which analyse tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from turnout_client.cli import options, output
from turnout_client.cli.app import Printed, asking

if TYPE_CHECKING:
    from turnout_client import Client, Difference, Summary, SummaryOptions

_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_GROUPS = 30
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_WHY_COLUMNS = ("record", "partition", "offset", "timestamp", "key", "value")
_PLACE = {"topic", "partition", "offset"}
_MAKERS = {"configuration": "the configuration file", "topic": "the control topic"}


@asking(
    "turnout summary final_ui --by accountType",
    "turnout summary final_ui --by age:10 --values 'count,avg(balance),p95(balance)' --where 'age >= 30' --live",
    "turnout summary bad_records --by topic,reason --sort=-count --json",
)
def summary(
    client: Client,
    table: options.Table,
    by: Annotated[
        str,
        typer.Option(
            help="Up to three columns; age:10 makes bins of a number, ts:1m of a time.  [default: one group]",
            show_default=False,
        ),
    ] = "",
    values: Annotated[
        str, typer.Option(help="count, and functions of columns: sum(balance), avg, min, max, p95 and others.")
    ] = "count",
    where: options.Where = None,
    sort: Annotated[str, typer.Option(help="Columns to sort by; -count is descending.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many groups.")] = _GROUPS,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Print the summary again after each change, across swaps, until Ctrl-C; with --json as one line.",
        ),
    ] = False,
    json: bool = False,
) -> Printed | None:
    """Show groups of a table with counts, sums, averages or percentiles, and bars for the first value.

    All functions: docs/reference/http.md#summaries.
    """
    asked: SummaryOptions = {"by": by or (), "values": values, "where": where or (), "sort": sort or (), "limit": limit}
    if live:
        _follow(client, table, asked, as_json=json)
        return None
    found = client.table(table).summary(**asked)
    return Printed(found.as_json(), [] if json else [picture(found)])


def _follow(client: Client, table: str, asked: SummaryOptions, *, as_json: bool) -> None:
    try:
        with client.table(table).live_summary(**asked) as summaries:
            if as_json:
                for found in summaries:
                    output.print_json(found.as_json())
                return
            screen = output.console()
            if not screen.is_terminal:  # otherwise Live would print only the last summary, at the end
                for found in summaries:
                    screen.print(picture(found))
                    screen.file.flush()
                return
            with Live(Text("connecting ..."), console=screen, auto_refresh=False) as live:
                for found in summaries:
                    live.update(picture(found), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def picture(found: Summary) -> RenderableType:
    """Return the groups as a table, with a bar for the first numeric value."""
    names = [column["name"] for column in found.columns]
    measured = next((column["name"] for column in found.columns[len(found.by) :] if output.is_number(column)), None)
    more = f" (the first {len(found.groups)})" if len(found.groups) < found.total else ""
    title = f"{output.printable(found.table)}   generation {found.generation}   {found.total:,} groups{more}"
    shown = output.table_of(found.columns, title)
    if measured is not None:
        shown.add_column("", no_wrap=True)
    # Decimals are texts, so that no digit is lost.
    sizes = [float(group[measured] or 0) if measured else 0.0 for group in found.groups]
    for group, size in zip(found.groups, sizes, strict=True):
        bars = [Text(bar(size, max(sizes, default=0.0)), style="cyan")] if measured is not None else []
        shown.add_row(*(output.cell(group[name]) for name in names), *bars)
    return shown


def bar(size: float, largest: float) -> str:
    """Return a bar whose length is the ratio of `size` to `largest`; it is empty if `size` is not positive."""
    eighths = round(max(0.0, size) / largest * _BAR_WIDTH * 8) if largest > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@asking(
    "turnout difference final_ui",
    "turnout difference final_ui --where 'accountType = gold' --limit 50",
    "turnout difference final_ui --change removed",
    "turnout difference users_ui --from 7 --to 9 --json",
)
def difference(
    client: Client,
    table: options.Table,
    before: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, help="The generation to compare.  [default: the published one]", show_default=False
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            "--to", min=0, help="The generation to compare it with.  [default: the candidate]", show_default=False
        ),
    ] = None,
    change: Annotated[
        Literal["added", "removed", "changed"] | None,
        typer.Option(help="Show only rows of this change.  [default: all]", show_default=False),
    ] = None,
    where: options.Where = None,
    sort: options.Sort = "",
    limit: Annotated[int, typer.Option(min=0, max=100_000, help="How many rows to show.")] = 20,
) -> Printed:
    """Show the differences of a table between two generations: by default, what publishing the candidate would change.

    Added rows start with +, removed rows with -, and changed rows with ~. Changed cells show the old and the new value.
    """
    found = client.table(table).difference(before, after, where or (), sort or (), limit=limit, change=change)
    return Printed(found.as_json(), _difference_lines(found))


def _difference_lines(found: Difference) -> Iterator[Text]:
    """Yield the counts, the notes, and a line for each row."""
    generations = f"generation {found.from_['generation']} -> {found.to['generation']}"
    counts = [Text(f"{count:,} {change}", _SIGNS.get(change, ("", ""))[1]) for change, count in found.counts.items()]
    yield Text(f"{output.printable(found.table)}   {generations}", "bold")
    yield Text(", ").join(counts)
    notes = {
        "changed columns": [
            f"{column['name']} ({column['changed']:,})" for column in found.columns if column["changed"]
        ],
        **{f"columns only in {side}": names for side, names in found.only_in.items()},
        "no such table in": [found.missing] if found.missing else [],
        "records that sinks would write": [f"{sink['sink']} {sink['records']:,}" for sink in found.sinks],
    }
    yield from (output.cell(f"{name}: {', '.join(words)}", "dim") for name, words in notes.items() if words)
    yield from map(_row_line, found.rows)
    if len(found.rows) < found.total:
        yield Text(f"... {found.total - len(found.rows):,} more", "dim")


def _row_line(row: dict[str, Any]) -> Text:
    sign, style = _SIGNS[row["change"]]
    old, new = row["from"], row["to"]
    line = Text(f"{sign} ", style)
    for name, value in (new or old).items():
        changed = old is not None and new is not None and old[name] != value
        line.append_text(output.cell(f"{name}=", style if not old or not new else "dim"))
        if changed:
            line.append_text(output.cell(old[name], "red strike")).append(" -> ")
        line.append_text(output.cell(value, "bold green" if changed else "" if old and new else style)).append("  ")
    line.rstrip()
    return line


@asking(
    "turnout sql 'select accountType, avg(age) from final_ui group by all'",
    "turnout sql 'select * from final_ui where balance > 100' --format parquet --limit 10000 > rich.parquet",
    "turnout sql - < question.sql",
)
def sql(
    client: Client,
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT; - reads it from standard input.")],
    form: Annotated[
        Literal["table", "json", "csv", "arrow", "parquet"],
        typer.Option("--format", help="table; or json, csv, arrow or parquet, written to standard output."),
    ] = "table",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows, at most 10000.")] = 1_000,
    json: bool = False,
) -> Printed | None:
    """Run one SELECT over the published tables, all as of one moment.

    The SQL is DuckDB's. Who may run it: `access.sql` in docs/reference/configuration.md#access.
    """
    asked = sys.stdin.read() if text == "-" else text
    if form != "table" and form != "json" and not json:
        sys.stdout.buffer.write(client.sql_file(asked, form, limit=limit))
        sys.stdout.flush()
        return None
    found = client.sql(asked, limit=limit)
    if json or form == "json":
        output.print_json(found.as_json())
        return None
    shown = output.table_of(found.columns, fold=True, rows=found.rows)
    more = [] if found.complete else [f"The first {found.total:,} rows; --limit takes up to 10,000."]
    return Printed(found.as_json(), [shown, *more])


@asking(
    "turnout why final_ui userId=u7",
    "turnout why final_ui --row 17592186044423 --json",
    "turnout why bad_records topic=users partition=0 offset=12",
)
def why(
    client: Client,
    table: options.Table,
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMN=VALUE",
            help="The key of the rows; for bad_records topic=, partition= and offset=.",
            show_default=False,
        ),
    ] = None,
    row: Annotated[str | None, typer.Option(help="One row by its id, instead of its key.", show_default=False)] = None,
) -> Printed:
    """Show which Kafka records produced a row, and why other records of its key are in no row.

    Only operators see the contents of records. See docs/how-to/why.md.
    """
    given = dict(term.partition("=")[::2] for term in terms or ())
    is_place = given.keys() == _PLACE
    if len(given) + (row is not None) != 1 and not is_place:
        raise typer.BadParameter("give one COLUMN=VALUE, the key of the table, or --row", param_hint="COLUMN=VALUE")
    if is_place:
        numbers = (given["partition"], given["offset"])
        if not all(number.isdecimal() for number in numbers):
            raise typer.BadParameter("partition and offset are whole numbers", param_hint="COLUMN=VALUE")
        found = client.table(table).why(place=(given["topic"], int(numbers[0]), int(numbers[1])))
    else:
        found = client.table(table).why(row=row, key=next(iter(given.values()), None))
    if row is None and not is_place and found["key"] not in given:
        raise typer.BadParameter(f"the key of {table} is {found['key']}", param_hint="COLUMN=VALUE")
    return Printed(found, _why_pictures(found))


def _why_pictures(found: dict[str, Any]) -> Iterator[RenderableType]:
    message = found["message"] or {"requester": "a message that is no longer stored", "raw": None}
    maker = _MAKERS.get(message["requester"], message["requester"])
    sent = f": {message['raw']}" if message["raw"] else ""
    yield output.cell(f"{found['table']}, generation {found['generation']}, made by {maker}{sent}")
    for row in found["rows"]:
        title = "no row" if row["row"] is None else f"row {row['row']}"
        shown = output.table_of([{"name": name, "type": "string"} for name in _WHY_COLUMNS], output.printable(title))
        for record in (*row["records"], *row["others"]):
            what = f"{record['topic']}: {record['reason'] or 'in the row'}"
            value = "(gone)" if record["gone"] else record["value"]
            cells = [what, *(record[name] for name in _WHY_COLUMNS[1:-1]), value]
            shown.add_row(*(output.cell(value, "" if record["reason"] is None else "dim") for value in cells))
        yield shown
    more = found["total"] - len(found["rows"])
    for note in [*found["notes"], *([f"{more:,} more rows have this key"] if more > 0 else [])]:
        yield output.cell(note, "yellow")
