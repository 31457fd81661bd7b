"""The page before people of a real identity provider: signing in, sessions that end or are renewed, and signing out."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from login_site import TOKEN, LoginSite
from page_visit import DESKTOP, Visit, visiting, wait_until

HOUR = 3600.0


@pytest.fixture
def site(login_site: LoginSite) -> LoginSite:
    return login_site


@pytest.fixture
def visit(browser: Browser, site: LoginSite) -> Iterator[Visit]:
    """A tab that goes to the server and to the issuer alone."""
    with visiting(browser, site.url) as tab:
        yield tab
        # The issuer's own page wants a font, which it does not get.
        expected = (site.provider.issuer, "https://fonts.")
        assert [url for url in tab.foreign if not url.startswith(expected)] == []
        tab.foreign.clear()


def sign_in(page: Page, person: str) -> None:
    """Sign in at the issuer's own page."""
    page.locator("input[name=login]").fill(person)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()


def wait_inside(visit: Visit) -> None:
    """Wait for rows, also over redirects, in the middle of which nothing can be asked."""
    expect(visit.page.locator("#connection")).to_have_text("live")
    visit.wait_for_rows("u1")


def enter(visit: Visit, person: str, hash_: str = "") -> Page:
    page = visit.open(hash_)
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, person)
    wait_inside(visit)
    return page


def test_person_signs_in_comes_back_to_the_same_place_and_signs_out(visit: Visit, site: LoginSite) -> None:
    page = visit.open("#table=users_ui&where=age%3E30")
    expect(page.locator("#token")).to_be_visible()
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()
    wanted = visit.place()
    page.keyboard.press("Enter")
    sign_in(page, "ada-1")
    wait_inside(visit)
    assert visit.place() == wanted
    expect(page.locator("#token")).to_be_hidden()
    expect(page.locator("#person")).to_have_text("Ada Lovelace")
    for width in (1300, 390):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("#theme")).to_be_in_viewport(ratio=1)
        assert width == 390 or page.evaluate("document.querySelector('#top').offsetHeight") < 60
    page.set_viewport_size(DESKTOP)
    expect(page.locator("#swap").get_by_role("button", name="Swap")).to_be_enabled()
    assert page.evaluate("document.cookie + JSON.stringify(localStorage) + sessionStorage.length") == "{}0"
    page.reload()
    wait_inside(visit)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(page.locator("#person")).to_be_hidden()
    # The issuer has ended its session, too.
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("input[name=login]")).to_be_visible()


def test_viewer_sees_what_viewers_see_and_a_token_is_the_second_way(visit: Visit, site: LoginSite) -> None:
    page = enter(visit, "ben-2")
    expect(page.locator("#person")).to_have_text("Ben")
    expect(page.locator("#swap").get_by_role("button", name="Swap")).to_be_disabled()
    expect(page.locator("#viewer")).to_contain_text("role operator")
    page.context.clear_cookies()
    page.reload()
    page.locator("#token-text").fill("not-the-token-0123456789")
    page.keyboard.press("Enter")
    expect(page.locator("#token-problem")).to_contain_text("token is wrong")
    page.locator("#token-text").fill(TOKEN)
    page.keyboard.press("Enter")
    wait_inside(visit)
    expect(page.locator("#person")).to_be_hidden()


def test_person_without_a_role_is_told_so_and_can_take_another_account(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, "cy-3")
    expect(page.get_by_role("heading")).to_have_text("You are not signed in")
    expect(page.locator("#reason")).to_contain_text("have no role")
    page.get_by_role("link", name="another account").click()
    sign_in(page, "ada-1")
    wait_inside(visit)
    expect(page.locator("#person")).to_have_text("Ada Lovelace")


def test_session_that_ends_asks_again_over_what_is_shown_and_leads_back_to_it(visit: Visit, site: LoginSite) -> None:
    page = enter(visit, "ada-1", "#table=users_ui&where=age%3E30")
    wanted = visit.place()
    site.clock.ahead = HOUR + 60
    expect(page.locator("#token")).to_be_visible()
    expect(page.locator("#sign-in-why")).to_contain_text("Your session has ended")
    assert visit.keys()[0] == "u1", "what was shown is still there"
    site.clock.ahead = 0.0
    page.get_by_role("button", name="Sign in").click()
    # The issuer knows the browser, and asks nothing.
    wait_inside(visit)
    expect(page.locator("#person")).to_have_text("Ada Lovelace")
    assert visit.place() == wanted


def test_session_is_renewed_without_a_word(visit: Visit, site: LoginSite) -> None:
    with site.provider.with_refresh():
        page = enter(visit, "ada-1")
        before = site.provider.refreshed()
        site.clock.ahead = HOUR - 20
        wait_until(lambda: site.provider.refreshed() > before, what="a new token")
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#token")).to_be_hidden()


@contextmanager
def another_site(body: str) -> Iterator[str]:
    """A page of another site, which the browser knows by another name."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


ATTACK = """<body><form method="post" enctype="text/plain" action="SERVER/api/control" target="frame">
<input name='{"joinType":"inner","x":"' value='"}'></form><iframe name="frame"></iframe><script>
const done = [];
const tell = (text) => { done.push(text); document.title = done.join(" "); };
document.forms[0].submit();
document.querySelector("iframe").addEventListener("load", () => tell("form"));
for (const credentials of ["include", "omit"]) {
  fetch("SERVER/api/control", { method: "POST", mode: "no-cors", credentials, body: "{}" }).finally(() => tell("post"));
  fetch("SERVER/api/me", { credentials }).then(() => tell("READ"), () => tell("get"));
}
fetch("SERVER/logout", { method: "POST", mode: "no-cors", credentials: "include" }).finally(() => tell("out"));
const socket = new WebSocket("WS/api/live");
socket.onmessage = () => tell("HEARD");
socket.onclose = () => tell("socket");
</script></body>"""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_page_of_another_origin_can_do_nothing_with_the_session(browser: Browser, site: LoginSite, host: str) -> None:
    """One of another site, to which the browser sends no cookie, and one of the same site on another port."""
    text = ATTACK.replace("SERVER", site.url).replace("WS", site.url.replace("http", "ws", 1))
    with visiting(browser, site.url) as tab, another_site(text) as address:
        page = enter(tab, "ada-1")
        page.goto(address.replace("localhost", host))
        wait_until(lambda: len(page.title().split()) >= 7, what="the end of all attacks")
        assert not {"READ", "HEARD"} & set(page.title().split())
        assert site.queue.requesters == []
        page.goto(site.url)
        wait_inside(tab)
        expect(page.locator("#person")).to_have_text("Ada Lovelace")
        tab.foreign.clear()
        tab.errors.clear()
