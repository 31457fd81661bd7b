"""The reference of the commands: help, examples, arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from reference.text import linked, shown, table
from turnout.cli import app

_SHARED = ("--url", "--token", "--json")


def commands() -> str:
    return "\n\n".join(_command(name, command) for name, command in _all().items())


def shared() -> str:
    known = {option.opts[0]: option for command in _all().values() for option in command.params}
    rows = []
    for name in _SHARED:
        option = known[name]
        rows.append([f"`{name}`", f"`{option.envvar}`" if option.envvar else "", _default(option), option.help])
    return table(["option", "environment", "default", "meaning"], rows)


def _all() -> dict[str, Any]:
    """Return the commands by their names; subcommands have the name of their group first."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            found[name] = command
        found |= {f"{name} {one}": inner for one, inner in below.items()}
    return found


def _command(name: str, command: Any) -> str:
    examples = "\n".join(f"$ {line}" for line in re.findall("^Example:  (.*)$", command.epilog, re.MULTILINE))
    parts = [f"## `turnout {name}`", linked(command.help), f"```console\n{examples}\n```"]
    if rows := list(_rows(command)):
        parts.append(table(["option", "default", "meaning"], rows))
    return "\n\n".join(parts)


def _rows(command: Any) -> Iterator[list[str]]:
    for parameter in command.params:
        if parameter.opts[0] not in _SHARED:
            argument = parameter.param_type_name == "argument"
            names = [parameter.metavar or parameter.name.upper()] if argument else list(parameter.opts)
            if not argument and parameter.metavar:
                names[-1] += f" {parameter.metavar}"
            meaning, _, default = parameter.help.removesuffix("]").partition("  [default: ")
            yield [", ".join(f"`{name}`" for name in names), default or _default(parameter), meaning]


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (False, "", None) else shown(parameter.default)
