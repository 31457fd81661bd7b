"""The review of a candidate in a real browser: its figures, its rows side by side, who decides, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from fake_orchestrator import STATUS, FakeOrchestrator
from filled_store import Filling
from http_server import patient, serving
from page_visit import FAINT, NAMELESS, PHONE, Visit, visiting, wait_until
from turnout.config import Role
from turnout.plan.control import ControlMessage, ControlRejected, Outcome
from turnout.plan.guards import Figures, GuardLimits, broken_guards
from turnout.plan.joins import Join
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import create_app
from turnout.store.database import Database
from turnout.store.ledger import CandidateRecord, Ledger, MessageRecord, SwapRecord
from turnout.swap.control_queue import QueuedMessage, Reply
from visited_site import OPERATOR, VIEWER, account, user

BEFORE, AFTER = "users=users accounts=accounts join=left", "users=users2 accounts=accounts join=inner"
ROWS = 40


class Reviewed(FakeOrchestrator):
    """An orchestrator over a filled store: it makes, publishes and discards candidates as it is asked."""

    def __init__(self, database: Database) -> None:
        super().__init__(queue=self)
        self.filling, self.ledger = Filling(database), Ledger(database, ["users", "accounts"])
        self.database = database
        self.published = 1
        self.candidate: int | None = None
        self.guard = ""
        self.expires = datetime.now(UTC) + timedelta(minutes=50)
        self.asked: list[dict[str, Any]] = []
        self.filling.swap(users=[user(number) for number in range(ROWS)], accounts=self.accounts(ROWS))
        self.note(1, None, BEFORE, "applied")

    @staticmethod
    def accounts(number: int, balance: float | None = None) -> list[dict[str, Any]]:
        return [account(one, "gold" if one % 2 else "silver", balance) for one in range(0, number, 2)]

    def make(self) -> None:
        """A candidate: five users are new, five are gone, ten have another age; one record cannot be read."""
        users = [{**user(one), "age": 99 if one % 4 == 0 else 20 + one % 50} for one in range(5, ROWS + 5)]
        self.filling.generation(Join.INNER if self.candidate is None else Join.LEFT)
        self.filling.batch(users=[*users, None], accounts=self.accounts(ROWS))
        assert self.filling.tables is not None
        made = self.filling.tables.generation
        if self.candidate is not None:
            self.note(self.candidate, BEFORE, AFTER, "discarded", f"replaced by generation {made}")
        self.note(made, BEFORE, AFTER, "candidate", self.guard)
        self.set(made)

    def set(self, candidate: int | None) -> None:
        self.candidate = candidate
        with self.database.write() as cursor:
            self.ledger.set_candidate(cursor, CandidateRecord(candidate, 0, None) if candidate else None)

    def end(self, why: str) -> None:
        assert self.candidate is not None
        self.note(self.candidate, BEFORE, AFTER, "discarded", why)
        self.set(None)

    def note(self, generation: int, before: str | None, after: str, outcome: str, detail: str = "") -> None:
        """A line of the history."""
        of: dict[str, Any] = {"requester": "ops", "request_id": None, "control_offset": None}
        swap = SwapRecord(generation=generation, before=before or "", after=after, outcome=outcome, detail=detail, **of)
        with self.database.write() as cursor:
            self.ledger.add_swap(cursor, swap)

    def status(self) -> dict[str, Any]:
        times = {"since": "2026-01-01T00:00:00Z", "expiresAt": self.expires.isoformat().replace("+00:00", "Z")}
        candidate = {"generation": self.candidate, "plan": AFTER, **times} if self.candidate else None
        more = {"sources": ["users", "accounts"], "joins": ["left", "inner"], "progress": None, "lingering": []}
        return {**STATUS, **more, "generation": self.published, "candidate": candidate}

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        asked = json.loads(raw)
        self.asked.append(asked)
        try:
            answer = self.answer(asked, requester)
        except ControlRejected as error:
            answer = Reply(Outcome.REJECTED, str(error), self.published, error)
        message = QueuedMessage(MessageRecord(json.dumps(asked), requester), ControlMessage(), answer=answer)
        message.done.set()
        return message

    def answer(self, asked: dict[str, Any], requester: str) -> Reply:
        action = asked.get("action", "change")
        if action == "change":
            assert asked["publish"] is False
            self.make()
            assert self.candidate is not None
            return Reply(Outcome.CANDIDATE, "generation 2: users=users2", self.candidate)
        if self.candidate is None or asked["expectedGeneration"] != self.candidate:
            hint, code = "read the status again", "generation_conflict"
            raise ControlRejected(f"generation {self.candidate} is the candidate", hint, code=code)
        if action == "discard":
            self.end(f"{requester} discarded it")
            return Reply(Outcome.APPLIED, "discarded", self.published)
        if self.guard and not asked.get("force"):
            raise ControlRejected(self.guard, "`force` ignores the guards", code="guard_broken")
        self.filling.publish()
        self.published, made = self.candidate, self.candidate
        self.note(made, BEFORE, AFTER, "applied")
        self.set(None)
        return Reply(Outcome.APPLIED, "published", self.published)


@pytest.fixture
def reviewed(tmp_path: Path) -> Iterator[Reviewed]:
    database = Database.open(tmp_path)
    try:
        yield Reviewed(database)
    finally:
        database.close()


@pytest.fixture
def url(reviewed: Reviewed) -> Iterator[str]:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPERATOR), (Identity("wall", Role.VIEWER), VIEWER)])
    with serving(create_app(patient(reviewed.database, reviewed), Access(tokens))) as address:
        yield address


@contextmanager
def looking_at(browser: Browser, url: str, place: str = "", token: str = OPERATOR, **options: Any) -> Iterator[Visit]:
    with visiting(browser, url, **options) as visit:
        visit.remember(token)
        visit.open(place)
        yield visit


CELLS = """(table) => [...document.querySelectorAll(`${table} tbody tr`)]
  .map((row) => [...row.cells].map((cell) => cell.textContent))"""


def figures(page: Page) -> dict[str, list[str]]:
    """The figures of each table, as they are read."""
    return {name: texts for name, *texts in page.evaluate(CELLS, "#review-tables")}


def lines(page: Page) -> list[list[str]]:
    """The rows side by side: the change, then the cells, where it changed with what was and what would be."""
    found: list[list[str]] = page.evaluate(CELLS, "#review-table")
    return found


USERS = ["40", "40", "+5", "−5", "8", "age 8"]
FINAL = ["40", "17", "0", "−23", "8", "age 8"]


def test_operator_makes_a_candidate_by_the_form_sees_what_differs_and_publishes_it(
    browser: Browser, url: str, reviewed: Reviewed
) -> None:
    with looking_at(browser, url, "#table=final_ui") as visit:
        page = visit.page
        visit.wait_for_rows("u")
        page.get_by_label("users topic").fill("users2")
        page.locator("#swap").get_by_role("button", name="Review", exact=True).click()
        expect(page.get_by_role("heading", name="Review of generation 2")).to_be_visible()
        assert reviewed.asked == [{"usersTopic": "users2", "publish": False}]
        expect(page.locator("#review-asked li")).to_have_text(["users: users → users2", "join: left → inner"])
        wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures of the users")
        wait_until(lambda: figures(page).get("final_ui") == FINAL, what="the figures of the join")
        expect(page.locator("#review-quality tbody tr").first).to_have_text(
            "Left rows with a match50.0 %20 of 4042.5 %17 of 40"
        )
        expect(page.locator("#review-bad li")).to_have_text(["users: 1 bad record (not valid JSON)"])
        expect(page.locator("#review-note")).to_contain_text("beside generation 1, expires in 49 min")
        wait_until(lambda: len(lines(page)) == 31, what="the rows of the join")
        page.get_by_role("button", name="users_ui", exact=True).click()
        wait_until(lambda: len(lines(page)) == 18, what="the rows of the users")
        assert ["changed", "u0008", "Name 8", "u0008@example.org", "28 99"] in lines(page)
        expect(page.locator("#review-table del")).to_have_count(8)
        assert visit.place().startswith("review=users_ui")
        page.get_by_role("button", name="Publish").click()
        expect(page.locator("#review-said")).to_contain_text("Generation 2 is published: all tables show it now.")
        expect(page.get_by_role("button", name="Publish")).to_be_hidden()
        assert reviewed.asked[-1] == {"action": "publish", "expectedGeneration": 2}
        expect(page.locator("#timeline li").first).to_contain_text("Generation 2")
        page.get_by_role("button", name="Look at users_ui").click()
        visit.wait_for_rows("u0005")
        page.go_back()
        expect(page.locator("#review-said")).to_contain_text("There is no candidate now.")


def test_rows_are_filtered_and_sorted_and_kept_in_the_address(browser: Browser, url: str, reviewed: Reviewed) -> None:
    reviewed.make()
    with looking_at(browser, url, "#review=users_ui") as visit:
        page = visit.page
        wait_until(lambda: len(lines(page)) == 18, what="the rows")
        page.get_by_role("button", name="userId").click()
        page.get_by_role("button", name="userId").click()
        expect(page.locator("#review-table th[aria-sort=descending]")).to_contain_text("userId")
        expect(page.locator("#review-where")).to_have_attribute("placeholder", "age >= 30, name contains an")
        wait_until(lambda: lines(page)[0][:2] == ["added", "u0044"], what="the order")
        page.get_by_label("Where, of either row").fill("age = 99")
        page.keyboard.press("Enter")
        wait_until(lambda: len(lines(page)) == 10, what="the rows with another age, and the new ones that have it")
        page.locator("#review-changes").get_by_text("changed").click()
        wait_until(lambda: {row[0] for row in lines(page)} == {"changed"} and len(lines(page)) == 8, what="the changed")
        page.get_by_label("Where, of either row").fill("ages = 99")
        page.keyboard.press("Enter")
        expect(page.locator("#review-problem")).to_contain_text("did you mean age")
        assert len(lines(page)) == 8, "the rows of before stay"
        page.get_by_label("Where, of either row").fill("age = 99")
        page.keyboard.press("Enter")
        expect(page.locator("#review-problem")).to_be_hidden()
        page.reload()
        wait_until(lambda: len(lines(page)) == 8 and lines(page)[0][1] == "u0036", what="the same after a reload")
        page.get_by_role("button", name="accounts_ui", exact=True).click()
        expect(page.locator("#review-shown")).to_have_text("")
        assert "differs=" not in visit.place()


def test_kind_of_change_is_asked_of_all_rows(browser: Browser, url: str, reviewed: Reviewed) -> None:
    reviewed.make()
    reviewed.filling.batch(users=[user(number) for number in range(1000, 2100)])
    with looking_at(browser, url, '#review=users_ui&order=[["userId",true]]') as visit:
        page = visit.page
        expect(page.locator("#review-shown")).to_have_text("The first 100 of 1,118 differences")
        page.locator("#review-changes").get_by_text("removed").click()
        expect(page.locator("#review-shown")).to_have_text("5 differences")
        assert [line[:2] for line in lines(page)] == [["removed", f"u000{number}"] for number in (4, 3, 2, 1, 0)]
        expect(page.locator("#review-changes")).to_contain_text("all 1,118changed 8added 1,105removed 5")


def test_everybody_sees_the_candidate_in_the_header_and_viewers_cannot_decide(
    browser: Browser, url: str, reviewed: Reviewed
) -> None:
    with looking_at(browser, url, "#table=users_ui", VIEWER) as visit:
        page = visit.page
        visit.wait_for_rows("u")
        expect(page.locator("#candidate")).to_be_hidden()
        expect(page.locator("#review-ask")).to_be_disabled()
        reviewed.make()
        expect(page.locator("#candidate")).to_contain_text("Generation 2 waits for review (users: users → users2, join")
        page.get_by_role("link", name="Review", exact=True).click()
        wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures")
        expect(page.locator("#review-viewer")).to_be_visible()
        expect(page.locator("#candidate")).to_be_hidden()
        for name in ("Publish", "Discard"):
            expect(page.get_by_role("button", name=name)).to_be_hidden()
        reviewed.end("it expired (swap.candidate_seconds: 3600)")
        expect(page.locator("#review-said")).to_contain_text(
            "Generation 2 is no longer a candidate: it expired (swap.candidate_seconds: 3600)."
        )
        page.get_by_role("button", name="Look at").click()
        visit.wait_for_rows("u0000")


def test_review_follows_its_rows_another_candidate_and_a_discard(
    browser: Browser, url: str, reviewed: Reviewed
) -> None:
    reviewed.make()
    with looking_at(browser, url) as visit:
        page = visit.page
        visit.wait_for_rows("u")
        page.keyboard.press("r")
        expect(page.locator("#review-title")).to_be_focused()
        wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures")
        reviewed.filling.batch(users=[user(100)])
        wait_until(lambda: figures(page)["users_ui"][1:3] == ["41", "+6"], what="another row of the candidate")
        reviewed.make()
        expect(page.locator("#review-title")).to_have_text("Review of generation 3")
        expect(page.locator("#review-said")).to_have_text("Generation 2 was replaced. This is generation 3.")
        wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures of the other")
        page.get_by_role("button", name="Discard").click()
        expect(page.locator("#review-said")).to_contain_text("Generation 3 is no longer a candidate: ops discarded it.")
        expect(page.locator("#timeline .tag").first).to_have_text("discarded")


def test_refusals_and_broken_guards_are_told_in_place(browser: Browser, url: str, reviewed: Reviewed) -> None:
    limits = GuardLimits(min_rows=Fraction(1, 2), max_bad=Fraction(1, 100))
    broken = broken_guards(limits, Figures(rows={"final_ui": 40}), Figures(rows={"final_ui": 17}, read=45, bad=1))
    reviewed.guard = f"it breaks guards: {'; '.join(map(str, broken))}"
    reviewed.make()
    with looking_at(browser, url, "#review=final_ui") as visit:
        page = visit.page
        expect(page.locator("#review-guards li")).to_have_text([str(guard) for guard in broken])
        assert len(broken) == 2
        page.get_by_role("button", name="Publish").click()
        expect(page.locator("#review-said")).to_contain_text("at least 50% of these")
        expect(page.get_by_role("button", name="Publish", exact=True)).to_be_focused()
        page.get_by_role("button", name="Publish anyway").click()
        expect(page.locator("#review-said")).to_contain_text("Generation 2 is published")
        assert reviewed.asked[-1] == {"action": "publish", "expectedGeneration": 2, "force": True}


def test_review_while_the_server_is_away_asks_for_nothing_and_comes_back(browser: Browser, reviewed: Reviewed) -> None:
    reviewed.make()
    app = create_app(patient(reviewed.database, reviewed))
    with ExitStack() as tab:
        with serving(app) as url:
            visit = tab.enter_context(visiting(browser, url))
            page = visit.open("#review=users_ui")
            wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures")
        expect(page.locator("#banner")).to_contain_text("does not answer")
        expect(page.get_by_role("button", name="Publish")).to_have_attribute("aria-disabled", "true")
        page.get_by_role("button", name="Publish").evaluate("(button) => button.click()")
        assert reviewed.asked == []
        reviewed.make()
        with serving(app, port=urlsplit(url).port or 0):
            page.locator("#banner button").evaluate("(button) => button.click()")
            expect(page.locator("#review-title")).to_have_text("Review of generation 3")
            wait_until(lambda: figures(page).get("users_ui") == USERS, what="the figures of the other")
            tab.close()


def test_review_is_readable_in_both_themes_named_for_those_who_hear_it_and_fits_a_phone(
    browser: Browser, url: str, reviewed: Reviewed
) -> None:
    reviewed.guard = "it breaks guards: min_rows of final_ui: 17 rows, at least 20 (50 % of 40)"
    reviewed.make()
    with looking_at(browser, url, "#review=users_ui", reduced_motion="reduce") as visit:
        wait_until(lambda: len(lines(visit.page)) == 18, what="the rows")
        for _ in visit.in_both_themes():
            visit.wait_for_none(FAINT)
            visit.wait_for_none(NAMELESS)
    with looking_at(browser, url, "#review=users_ui", viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        wait_until(lambda: len(lines(visit.page)) == 18, what="the rows")
        fits = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
        for _ in visit.in_both_themes():
            visit.wait_for(fits, "the page to fit")
            visit.wait_for_none(FAINT)
            expect(visit.page.get_by_role("button", name="Publish")).to_be_in_viewport()
