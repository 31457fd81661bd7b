"""The program that runs the commands: `turnout-client`, or `turnout` if the server's package has added commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Program:
    """A program by its name, which is also its package's name, and its access to a server on this machine."""

    name: str
    first: tuple[str, ...] = ()
    """The commands that the help lists before the commands that call a server."""
    find_token: Callable[[Path], str | None] = lambda file: None
    """A function that finds the token of a server without `access:`, given the server's configuration file."""


PROGRAM = Program("turnout-client")
