"""The button that cancels a build, in a real browser: operators have it beside the progress, viewers do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import STATUS, FakeOrchestrator
from filled_store import filled
from http_server import serving
from page_visit import visiting
from turnout.config import Role
from turnout.plan.control import ControlMessage, Outcome
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.store.ledger import MessageRecord
from turnout.swap.control_queue import QueuedMessage, Reply
from visited_site import OPERATOR, VIEWER

PROGRESS = {"generation": 2, "state": "catching_up", "plan": "users=users2 join=left", "records": 10, "lag": 1_500}


class Building(FakeOrchestrator):
    """An orchestrator with a build under way, until a message cancels it."""

    def __init__(self) -> None:
        super().__init__(queue=self)
        self.asked: list[dict[str, str]] = []

    def status(self) -> dict[str, Any]:
        more = {"percent": 42.7, "step": "reading", "secondsLeft": 83.2}
        return {**STATUS, "progress": None if self.asked else {**PROGRESS, **more}}

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        text = raw.decode() if isinstance(raw, bytes) else raw
        self.asked.append({requester: text})
        answer = Reply(Outcome.CANCELLED, "the build of generation 2 was ended", 1)
        message = QueuedMessage(MessageRecord(text, requester), ControlMessage(), answer=answer)
        message.done.set()
        return message


@pytest.fixture
def building() -> Building:
    return Building()


@pytest.fixture
def url(building: Building, tmp_path: Path) -> Iterator[str]:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPERATOR), (Identity("wall", Role.VIEWER), VIEWER)])
    with filled(tmp_path) as filling:
        services = Services(filling.database, building)
        with serving(create_app(services, Access(tokens))) as address:
            yield address


def test_operator_cancels_a_build_beside_its_progress(browser: Browser, url: str, building: Building) -> None:
    with visiting(browser, url) as visit:
        visit.remember(OPERATOR)
        page = visit.open()
        text = "Generation 2: reading records, 42 %, 1,500 records to go, about 1 min 24 s left"
        expect(page.locator("#progress-text")).to_have_text(text)
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(page.locator("#outcome")).to_contain_text("Cancelled")
        expect(page.locator("#outcome")).to_contain_text("the build of generation 2 was ended")
        expect(page.locator("#building")).to_be_hidden()
        assert [list(asked) for asked in building.asked] == [["ops"]]
        assert '"cancel"' in building.asked[0]["ops"]


def test_viewer_sees_the_progress_and_no_button(browser: Browser, url: str) -> None:
    with visiting(browser, url) as visit:
        visit.remember(VIEWER)
        page = visit.open()
        expect(page.locator("#progress-text")).to_contain_text("42 %")
        expect(page.locator("#viewer")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
