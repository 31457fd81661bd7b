"""`why`: the records that rows of a key are made of, and those that were not chosen."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from turnout.cli import options, output
from turnout.cli.app import app, examples

_COLUMNS = ("record", "partition", "offset", "timestamp", "key", "value")
_PLACE = {"topic", "partition", "offset"}


@app.command(
    epilog=examples(
        "turnout why final_ui userId=u7",
        "turnout why final_ui --row 17592186044423 --json",
        "turnout why bad_records topic=users partition=0 offset=12",
    )
)
def why(
    table: options.Table,
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMN=VALUE",
            help="The key of the rows; of bad_records topic=, partition= and offset=.",
            show_default=False,
        ),
    ] = None,
    row: Annotated[str | None, typer.Option(help="One row by its id, instead of its key.", show_default=False)] = None,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Show which Kafka records a row is made of, and why other records of its key are in no row.

    Only operators see the contents of records. See docs/how-to/why.md.
    """
    given = dict(term.partition("=")[::2] for term in terms or ())
    is_place = given.keys() == _PLACE
    if len(given) + (row is not None) != 1 and not is_place:
        raise typer.BadParameter("give one COLUMN=VALUE, the key of the table, or --row", param_hint="COLUMN=VALUE")
    with options.connected(url, token) as client:
        if is_place:
            numbers = (given["partition"], given["offset"])
            if not all(number.isdecimal() for number in numbers):
                raise typer.BadParameter("partition and offset are whole numbers", param_hint="COLUMN=VALUE")
            found = client.table(table).why(place=(given["topic"], int(numbers[0]), int(numbers[1])))
        else:
            found = client.table(table).why(row=row, key=next(iter(given.values()), None))
    if row is None and not is_place and found["key"] not in given:
        raise typer.BadParameter(f"the key of {table} is {found['key']}", param_hint="COLUMN=VALUE")
    if json:
        output.print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    screen = output.console()
    message = found["message"] or {"requester": "a message that is no longer stored", "raw": None}
    maker = "the configuration file" if message["requester"] == "configuration" else message["requester"]
    sent = f": {message['raw']}" if message["raw"] else ""
    screen.print(output.cell(f"{found['table']}, generation {found['generation']}, made by {maker}{sent}"))
    for row in found["rows"]:
        title = "no row" if row["row"] is None else f"row {row['row']}"
        shown = output.table_of([{"name": name, "type": "string"} for name in _COLUMNS], output.printable(title))
        for record in (*row["records"], *row["others"]):
            what = f"{record['topic']}: {record['reason'] or 'in the row'}"
            value = "(gone)" if record["gone"] else record["value"]
            cells = [what, *(record[name] for name in _COLUMNS[1:-1]), value]
            shown.add_row(*(output.cell(value, "" if record["reason"] is None else "dim") for value in cells))
        screen.print(shown)
    more = found["total"] - len(found["rows"])
    for note in [*found["notes"], *([f"{more:,} more rows have this key"] if more > 0 else [])]:
        screen.print(output.cell(note, "yellow"))
