"""A real server with two tokens and a store with real batches and swaps, for tests of charts, SQL and views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser

from filled_store import Filling
from http_server import HTTP, patient, serving
from page_visit import Visit, visiting
from turnout.config import Role
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import create_app
from turnout.store.database import Database

OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"
KINDS = ("gold", "silver", "silver", "platinum")


@dataclass(frozen=True)
class Asked:
    """The server, the writer of its store, and a browser."""

    url: str
    filling: Filling
    browser: Browser

    def fill(self, rows: int) -> None:
        """Publish a new generation with `rows` users, some of them without an account."""
        users = [user(number) for number in range(rows)]
        accounts = [account(number, KINDS[number % 4]) for number in range(rows) if number % 4 or number % 8]
        self.filling.swap(users=users, accounts=accounts)

    def summary(self, **query: str) -> dict[str, list[str]]:
        """Return the groups of a summary in the format of the page's table of numbers."""
        answer = HTTP.get(f"{self.url}/api/tables/final_ui/summary", params=query, headers=_bearer(VIEWER))
        assert answer.status_code == 200, answer.text
        names = [column["name"] for column in answer.json()["columns"]]
        groups = [[group[name] for name in names] for group in answer.json()["groups"]]
        return {_text(first): [f"{value:,}" for value in rest] for first, *rest in groups}

    @contextmanager
    def visit(self, token: str = OPERATOR, place: dict[str, Any] | None = None, **options: Any) -> Iterator[Visit]:
        """Open a tab with a token in its own browser context, and assert that its console has no errors."""
        with visiting(self.browser, self.url, **options) as tab:
            tab.remember(token)
            tab.open(f"#{urlencode(texts(place))}" if place else "")
            yield tab
            assert tab.console == [], tab.console


def texts(place: dict[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in place.items()}


def user(number: int) -> dict[str, Any]:
    name = f"u{number:04d}"
    return {"userId": name, "name": f"Name {number}", "email": f"{name}@example.org", "age": 20 + number % 50}


def account(number: int, kind: str, balance: float | None = None) -> dict[str, Any]:
    return {"userId": f"u{number:04d}", "accountType": kind, "balance": number * 1.5 if balance is None else balance}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _text(value: object) -> str:
    return "null" if value is None else str(value)


@contextmanager
def asked(folder: Path, browser: Browser) -> Iterator[Asked]:
    database = Database.open(folder)
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPERATOR), (Identity("wall", Role.VIEWER), VIEWER)])
    app = create_app(patient(database), Access(tokens))
    try:
        with serving(app) as url:
            found = Asked(url, Filling(database), browser)
            found.fill(200)
            yield found
    finally:
        database.close()
