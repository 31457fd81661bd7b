"""Why on the page: the panel of a row shows the records that it is made of, and those that were not chosen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import FakeOrchestrator
from http_server import patient, serving
from oracle import Sent
from page_visit import PHONE, Visit, visiting
from reason_oracle import Fed
from turnout.config import Role, parse
from turnout.config.configuration import Configuration
from turnout.local.broker import EmbeddedBroker
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import create_app
from turnout.store.database import Database
from turnout.store.ledger import Ledger
from turnout.swap import explainer
from turnout.swap.explainer import Explainer
from turnout.testing import Record, create_topic, patience, produce
from visited_site import OPERATOR, VIEWER

USERS, ACCOUNTS = "page-why-users", "page-why-accounts"
COLUMNS = {"userId": "string", "name": "string"}


@pytest.fixture(scope="module")
def site(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Fed]]:
    folder, bootstrap = tmp_path_factory.mktemp("why"), broker.bootstrap_servers
    create_topic(bootstrap, USERS)
    create_topic(bootstrap, ACCOUNTS)
    sources = {
        "users": {"topic": USERS, "table": "users_ui", "key": "userId", "columns": COLUMNS},
        "accounts": {"topic": ACCOUNTS, "table": "accounts_ui", "key": "userId"}
        | {"columns": {"userId": "string", "balance": "double"}},
    }
    views = {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}}
    document = {"kafka": {"bootstrap_servers": bootstrap}, "sources": sources, "views": views}
    database = Database.open(folder)
    fed = Fed(database, parse(document, folder, {}))
    balances = [json.dumps({"userId": "u7", "balance": number}).encode() for number in range(3)]
    records = [
        Sent(USERS, 0, 0, 1_767_225_600_000, b"u7", json.dumps({"userId": "u7", "name": "Ada", "secret": 7}).encode()),
        Sent(USERS, 0, 1, 1_767_225_601_000, b"bad", b"no json"),
        *(Sent(ACCOUNTS, 0, number, 1_767_225_602_000, b"u7", value) for number, value in enumerate(balances)),
    ]
    for one in records:
        produce(bootstrap, one.topic, [Record(one.value, one.key, 0, one.timestamp_ms, {"trace": "t-1"})])
    fed.feed(records)
    with database.write() as cursor:
        cursor.execute(
            "INSERT INTO turnout.control_raw (_id, ts, requester, raw, outcome, detail) "
            "VALUES (1, now(), 'ops', '{\"joinType\": \"left\"}', 'applied', 'generation 1: users')"
        )
    steering = FakeOrchestrator()
    generation: Any = SimpleNamespace(number=1, tables=fed.tables)
    steering.explainer = Explainer(lambda: [generation], Configuration(fed.settings), Ledger(database, list(sources)))
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPERATOR), (Identity("wall", Role.VIEWER), VIEWER)])
    with serving(create_app(patient(database, steering), Access(tokens))) as url:
        yield url, fed
    database.close()


@pytest.fixture(autouse=True)
def patient_with_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explainer, "KAFKA_SECONDS", patience())


def opened(visit: Visit, token: str, table: str) -> None:
    visit.remember(token)
    visit.open(f"#table={table}")
    visit.page.locator("#grid .ag-cell").first.dblclick()
    visit.page.get_by_role("button", name="Why").click()


def test_panel_of_a_row_shows_its_records_and_those_not_chosen(browser: Browser, site: tuple[str, Fed]) -> None:
    url, fed = site
    with visiting(browser, url) as visit:
        opened(visit, OPERATOR, "final_ui")
        why = visit.page.locator("#row .why")
        expect(why.locator(".record:not(.other)")).to_have_count(2)
        expect(why).to_contain_text('Generation 1 was made by a message from ops{"joinType": "left"}')
        first = why.locator(".record").first
        expect(first).to_contain_text("partition 0, offset 0")
        expect(first).to_contain_text('"secret": 7')
        expect(first).to_contain_text("header trace")
        expect(why.locator(".record.other .reason")).to_have_text(["older", "older"])
        fed.feed([Sent(ACCOUNTS, 0, 3, 1_767_225_603_000, b"u7", b'{"userId": "u7", "balance": 9}')])
        again = visit.page.get_by_role("button", name="Ask again: the row has changed")
        again.click()
        expect(why.locator(".record.other")).to_have_count(3)
        # Another row is another question, and the tables of the server itself have none.
        visit.open("#table=bad_records")
        visit.page.locator("#grid .ag-cell").first.dblclick()
        expect(why.locator(".record")).to_have_count(0)
        visit.page.get_by_role("button", name="Why").click()
        expect(why.locator(".record")).to_contain_text("no json")
        expect(why.locator(".record")).to_contain_text("bad")
        visit.open("#table=control_raw")
        visit.page.locator("#grid .ag-cell").first.dblclick()
        expect(visit.page.locator("#row")).to_contain_text("joinType")
        expect(why).to_be_hidden()
        assert visit.console == []


def test_viewers_see_places_and_reasons_and_are_told_so(browser: Browser, site: tuple[str, Fed]) -> None:
    with visiting(browser, site[0], viewport=PHONE) as visit:
        opened(visit, VIEWER, "final_ui")
        why = visit.page.locator("#row .why")
        expect(why.locator(".record.other .reason").first).to_have_text("older")
        expect(why).to_contain_text("are for operators")
        expect(why).not_to_contain_text("secret")
        assert visit.console == []
