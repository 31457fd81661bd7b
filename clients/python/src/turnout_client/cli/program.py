"""Which program has the commands: `turnout-client`, or `turnout`, where Turnout's own package has added to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Program:
    """A program: its name, which is also that of its package, and what it knows of a server on this machine."""

    name: str
    first: tuple[str, ...] = ()
    """The commands that help lists before those that ask a server."""
    find_token: Callable[[Path], str | None] = lambda file: None
    """Find the token of a server without `access:`, by the server's configuration file."""


PROGRAM = Program("turnout-client")
