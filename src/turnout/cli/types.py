"""`types`: the tables of a running server as TypeScript interfaces."""

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from turnout.cli import options
from turnout.cli.app import app, examples
from turnout_client.column_types import ColumnType

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


@app.command(epilog=examples("turnout types > tables.ts", "turnout types --url http://turnout.example:10000"))
def types(url: options.Url = options.DEFAULT_URL, token: options.Token = "") -> None:
    """Print a TypeScript interface for each table, and `Tables`, which maps the name of each table to its interface.

    They are the types of rows in `@turnout/client`: `client.window<FinalUi>({ table: "final_ui" })`.
    """
    with options.connected(url, token) as client:
        print(interfaces(client.tables()), end="")


def interfaces(tables: Iterable[Mapping[str, Any]]) -> str:
    """The module that declares a row type for each table."""
    names: dict[str, str] = {}
    lines = ["// Written by `turnout types`: run it again when columns change.", ""]
    for table in tables:
        names[table["name"]] = _name(table["name"], names.values())
        lines += [f"export interface {names[table['name']]} {{", *map(_property, table["columns"]), "}", ""]
    lines += ["/** The type of a row, by the name of its table. */", "export interface Tables {"]
    return "\n".join([*lines, *(f"  {_key(table)}: {name};" for table, name in names.items()), "}", ""])


def _name(table: str, taken: Iterable[str]) -> str:
    """The name of the table's interface: `FinalUi` of `final_ui`; a number tells those apart that would be equal."""
    words = re.findall("[A-Za-z0-9]+", table)
    name = "".join(word[0].upper() + word[1:] for word in words)
    name = name if name[:1].isalpha() else f"Table{name}"
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in {*taken, "Tables"})


def _property(column: Mapping[str, str]) -> str:
    """A column; every column may be null. A type that no source can declare may have values of any type."""
    kind = ColumnType.known(column["type"])
    if kind is None:
        return f"  {_key(column['name'])}: unknown;"
    return f"  {_key(column['name'])}: {kind.json} | null;" + (f" // {kind}" if kind.name != kind.json else "")


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
