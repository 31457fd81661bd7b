"""Run the Python examples of a page one after the other, as a notebook does.

As a program it reads examples as JSON, `[[name, text], ...]`, and writes their results. It needs only `turnout_client`,
so that an environment without Turnout can run it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
import threading
import time
from typing import Any

from turnout_client import Client, TurnoutError

ENOUGH = 3
PRINT_SECONDS = 60.0


class EnoughError(Exception):
    """Ends an endless loop of an example after it has printed enough, as Ctrl-C would."""


class Examples:
    """The examples of a page; each can use the names of the earlier ones."""

    def __init__(self) -> None:
        self._printed: list[object] = []
        self._names: dict[str, Any] = {"print": self._print}

    def run(self, name: str, text: str, print_seconds: float = PRINT_SECONDS) -> None:
        """Run an example; if it contains `print`, it must print something within `print_seconds`."""
        self._printed.clear()
        code = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            if inspect.iscoroutine(made := eval(code, self._names)):
                asyncio.run(made)
        except EnoughError:
            pass
        deadline = time.monotonic() + print_seconds
        while "print" in text and not self._printed:
            assert time.monotonic() < deadline, f"{name} has printed nothing"
            time.sleep(0.01)

    def _print(self, *shown: object) -> None:
        """Record a printed line, and end an endless loop after enough lines; callbacks print on other threads."""
        self._printed.append(shown)
        if threading.current_thread() is threading.main_thread() and len(self._printed) >= ENOUGH:
            raise EnoughError

    def close(self) -> None:
        """Close the clients that examples left open."""
        for value in self._names.values():
            if isinstance(value, Client):
                value.close()


def main() -> None:
    examples, told = Examples(), dict[str, Any]()
    for name, text in json.load(sys.stdin):
        began = time.monotonic()
        try:
            examples.run(name, text)
            told[name] = round(time.monotonic() - began, 2)
        except TurnoutError as error:
            told[name] = error.code
    examples.close()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
