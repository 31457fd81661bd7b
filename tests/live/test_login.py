"""People and programs of a real identity provider: whose tokens are taken, and how each other one is refused."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk
from joserfc.jwk import ECKey
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_socket

from access_site import error_of
from http_server import SECONDS
from login_site import PEOPLE, SECRET, TOKEN, LoginSite, login_site, unsigned, with_signature
from openid_provider import API
from turnout.errors import ConfigError, TurnoutError
from turnout.issuer.provider import IdentityProvider
from turnout.preflight.findings import check_issuer
from turnout.serve.limits import Rate, Rates
from turnout.testing import wait_until
from turnout_client.messages import CloseCode

OTHER_KEY = ECKey.generate_key("P-256")


@pytest.fixture
def site(login_site: LoginSite) -> LoginSite:
    return login_site


# -- bearer tokens


def test_token_that_the_issuer_gave_a_program_reads_and_steers(site: LoginSite) -> None:
    token = site.provider.token()
    assert site.get(token=token).status_code == 200
    assert site.post(token).status_code == 200
    assert site.queue.requesters == ["turnout (turnout)"]
    assert site.get(token=TOKEN).status_code == 200, "tokens of the file go on working"
    error_of(site.get(), 401, "unauthorized")


def test_requester_is_the_name_and_always_the_subject(site: LoginSite) -> None:
    assert site.post(site.signed(sub="s-1", name="ops")).status_code == 200
    assert site.post(site.signed(sub="s-2", name="Eve (s-1)\n\u202e", preferred_username="e")).status_code == 200
    assert site.queue.requesters == ["ops (s-1)", "Eve s-1 (s-2)"]


@pytest.mark.parametrize(
    ("groups", "status"),
    [
        (["turnout-look"], 403),
        ("turnout-look", 403),
        (["turnout-look", "turnout-ops"], 200),
        ("turnout-ops", 200),
    ],
)
def test_role_is_by_text_or_list_and_operator_wins(site: LoginSite, groups: Any, status: int) -> None:
    token = site.signed(groups=groups)
    assert site.get(token=token).status_code == 200
    assert site.post(token).status_code == status
    if status == 403:
        assert "robot (robot) is a viewer" in site.post(token).json()["error"]["message"]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (["others"], "no value of the claim 'groups'"),
        ([], "no value of the claim 'groups'"),
        (["TURNOUT-OPS"], "no value of the claim 'groups'"),
        (None, "no claim 'groups'"),
        (7, "must be text or a list of texts, got 7"),
        ([["turnout-ops"]], "must be text or a list of texts"),
        ({"turnout-ops": True}, "must be text or a list of texts, got a mapping"),
    ],
)
def test_nobody_gets_in_without_a_role(site: LoginSite, groups: Any, said: str) -> None:
    assert said in error_of(site.get(token=site.signed(groups=groups)), 403, "forbidden")["message"]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"iss": None}, "no claim 'iss'"),
        ({"aud": "urn:other"}, "for another audience"),
        ({"aud": ["urn:other", "urn:more"]}, "for another audience"),
        ({"aud": None}, "no claim 'aud'"),
        ({"aud": 5}, "for another audience"),
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "no claim 'exp'"),
        ({"exp": "tomorrow"}, "has expired"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"iat": 2**40}, "issued in the future"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": 5}, "'sub' is 5"),
        ({"sub": "two\nlines"}, "subject"),
        ({"sub": "x" * 256}, "subject"),
        ({"nonce": "n"}, "an ID token"),
    ],
)
def test_claim_that_is_wrong_is_told_in_plain_words(site: LoginSite, claims: dict[str, Any], said: str) -> None:
    assert said in error_of(site.get(token=site.signed(**claims)), 401, "unauthorized")["message"]


def test_audience_is_the_client_or_one_that_is_named(site: LoginSite) -> None:
    for audience in ("turnout", ["urn:other", "turnout"]):
        assert site.get(token=site.signed(aud=audience)).status_code == 200
    error_of(site.get(token=site.provider.token(resource="urn:other")), 401, "unauthorized")


def test_clocks_may_differ_by_half_a_minute(site: LoginSite) -> None:
    now = int(site.clock())
    assert site.get(token=site.signed(exp=now - 15, nbf=now + 15, iat=now + 15)).status_code == 200
    token = site.provider.token()
    site.clock.ahead = 620.0  # it has 600 s
    assert site.get(token=token).status_code == 200
    site.clock.ahead = 632.0
    assert "expired" in error_of(site.get(token=token), 401, "unauthorized")["message"]


def forgeries(site: LoginSite) -> Iterator[tuple[str, str]]:
    """Tokens that the issuer has not signed, and what is said of each."""
    claims, real = site.good_claims(), ECKey.import_key(site.provider.signing_key)
    for algorithm in ("none", "None", "NONE"):
        head = unsigned({"alg": algorithm, "typ": "JWT"}, claims)
        yield f"{head}.", "must be signed by one of"
        yield f"{unsigned({'alg': algorithm, 'kid': site.provider.kid}, claims)}.", "must be signed by one of"
    # HMAC with what everybody knows: the public key, as it can be had and as it may be written.
    published = httpx.get(site.provider.jwks_endpoint).json()["keys"][0]
    for secret in (
        real.as_pem(private=False),
        real.as_der(private=False),
        json.dumps(published).encode(),
        published["x"].encode(),
        b"",
    ):
        head = unsigned({"alg": "HS256", "typ": "JWT", "kid": site.provider.kid}, claims)
        yield with_signature(head, hmac.digest(secret, head.encode(), hashlib.sha256)), "must be signed by one of"
    yield site.signed(OTHER_KEY), "signature is wrong"
    good = site.signed()
    head, body, signature = good.split(".")
    yield f"{head}.{unsigned({}, claims | {'sub': 'admin'}).split('.')[1]}.{signature}", "signature is wrong"
    yield f"{head}.{body}.", "not known"
    yield f"{head}.{body}.{signature[:-8]}", "not known"
    # The key comes with the token, or from an address that it names.
    own = {"jwk": OTHER_KEY.as_dict(private=False), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/x"}
    yield site.signed(OTHER_KEY, own), "signature is wrong"
    yield site.signed(OTHER_KEY, {"kid": "made-up"}), "no key"
    yield site.signed(OTHER_KEY, {"kid": "../../../../dev/null"}), "no key"
    yield site.signed(header={"typ": "logout+jwt"}), "of the type"
    critical = unsigned({"alg": "ES256", "kid": site.provider.kid, "crit": ["exp"], "exp": 1}, claims)
    yield with_signature(critical, b"\0" * 64), "not known"
    for text in ("..", "a.b.c", "e30.e30.e30", "e30.e30.", f"{base64.b64encode(b'[]').decode()}.e30.e30", "é.é.é"):
        yield text, "not known"
    deep = base64.urlsafe_b64encode(b"[" * 2000).decode().rstrip("=")
    yield f"{deep}.{deep}.e30", "not known"


def test_forged_token_is_refused_and_never_logged(site: LoginSite, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "turnout"):
        for token, said in forgeries(site):
            answer = site.http.get("/api/status", headers=[(b"Authorization", f"Bearer {token}".encode("latin-1"))])
            assert said in error_of(answer, 401, "unauthorized")["message"], token
            parts = [part for part in token.split(".") if len(part) > 20]
            assert not any(part in text for part in parts for text in (answer.text, caplog.text))
    assert site.queue.requesters == []
    assert SECRET not in caplog.text


def test_key_that_is_new_is_found_and_one_that_is_gone_is_not_taken(site: LoginSite) -> None:
    before = site.signed()
    old = ECKey.import_key(site.provider.signing_key)
    assert site.get(token=before).status_code == 200
    asked = site.login.provider
    site.provider.renew_key()
    site.clock.ahead += 60  # keys are asked for at most every 20 s, whoever sends what
    assert site.get(token=site.provider.token()).status_code == 200
    assert "no key" in error_of(site.get(token=before), 401, "unauthorized")["message"]
    fetched = asked._fetched
    for number in range(20):
        error_of(site.get(token=site.signed(old, {"kid": f"made-up-{number}"})), 401, "unauthorized")
    assert asked._fetched == fetched, "made-up keys make no request for each"


def test_issuer_that_is_away_is_told_and_keys_that_are_known_go_on(site: LoginSite, tmp_path: Path) -> None:
    token = site.signed()
    assert site.get(token=token).status_code == 200
    site.provider.stop()
    try:
        site.clock.ahead += 7200
        late = site.signed()
        assert site.get(token=late).status_code == 200, "known keys are good although the issuer is away"
        asked = site.login.provider
        asked._keys, asked._tried = jwk.KeySet([]), float("-inf")
        error = error_of(site.get(token=late), 503, "issuer_unreachable")
        assert "access.oidc" in error["hint"]
        assert site.get(token=TOKEN).status_code == 200
        assert site.get("/readyz").status_code == 200
    finally:
        site.provider.start()
    site.clock.ahead += 60
    assert site.get(token=site.signed()).status_code == 200


def test_check_reaches_the_issuer_and_says_what_is_wrong(site: LoginSite) -> None:
    right = site.login.provider.settings
    assert check_issuer(right).text == f"{right.issuer} answers"
    for issuer, said in (
        (f"{right.issuer}/", f"calls itself '{right.issuer}'"),
        (f"{right.issuer}/nothing", "answered 404"),
        ("http://127.0.0.1:1", "cannot be reached"),
        (site.url, "answered 401"),
    ):
        found = check_issuer(right.model_copy(update={"issuer": issuer}))
        assert found.level == "fault" and said in found.text and "access.oidc" in found.hint


def test_server_without_oidc_does_not_import_the_library() -> None:
    script = "import sys, turnout.service; print([name for name in sys.modules if name in ('joserfc', 'cryptography')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_live_connection_ends_with_the_token(site: LoginSite) -> None:
    headers = {"Authorization": f"Bearer {site.provider.token()}"}
    url = f"{site.url.replace('http', 'ws', 1)}/api/live"
    with connect_socket(url, additional_headers=headers, open_timeout=SECONDS) as socket:
        assert json.loads(socket.recv(SECONDS))["role"] == "operator"
        site.clock.ahead = 700.0
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(SECONDS)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (CloseCode.SIGNED_OUT, "the token has ended")


# -- signing in


@pytest.fixture
def browser(site: LoginSite) -> Iterator[httpx.Client]:
    with site.browser() as client:
        yield client


def own(site: LoginSite) -> dict[str, str]:
    """The header by which a browser says that a page of this server asks."""
    return {"Origin": site.url}


def session_cookie(browser: httpx.Client) -> tuple[str, str]:
    ((name, value),) = [(one.name, one.value) for one in browser.cookies.jar if "session-" in one.name]
    return name, value or ""


def test_person_signs_in_reads_steers_and_signs_out(
    site: LoginSite, browser: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "turnout"):
        shown = site.sign_in(browser, "ada-1", "/login?next=/api/me%3F")
    assert shown.json() == {"name": "Ada Lovelace", "subject": "ada-1", "role": "operator", "by": "session"}
    assert browser.post("/api/control", json={}, headers=own(site)).status_code == 200
    assert site.queue.requesters == ["Ada Lovelace (ada-1)"]
    assert "Ada Lovelace (ada-1) signed in as operator" in caplog.text
    name, secret = session_cookie(browser)
    assert secret not in caplog.text and SECRET not in caplog.text
    out = browser.post("/logout", headers=own(site))
    assert out.json()["url"].startswith(f"{site.provider.issuer}/session/end?")
    error_of(site.get(Cookie=f"{name}={secret}"), 401, "unauthorized")
    assert not [one for one in browser.cookies.jar if "session-" in one.name]


def test_cookies_are_for_this_server_and_no_script(site: LoginSite) -> None:
    with site.browser() as browser:
        site.sign_in(browser, "ben-2")
        for cookie in [one for one in browser.cookies.jar if one.name.startswith("turnout-")]:
            assert cookie.has_nonstandard_attr("HttpOnly") and cookie.get_nonstandard_attr("SameSite") == "lax"
            assert cookie.path == "/" and not cookie.domain_specified and not cookie.secure
            assert cookie.name.endswith(f"-{site.port}")


def test_viewer_looks_and_has_no_more_rights_by_a_session(site: LoginSite, browser: httpx.Client) -> None:
    site.sign_in(browser, "ben-2", "/login?next=/api/status")
    error = error_of(browser.post("/api/control", json={}, headers=own(site)), 403, "forbidden")
    assert "Ben (ben-2) is a viewer" in error["message"]
    assert browser.post("/logout", headers=own(site)).status_code == 200


@pytest.mark.parametrize(
    ("person", "said"),
    [
        ("cy-3", "no value of the claim &#x27;groups&#x27;"),
        ("dee-4", "no claim &#x27;groups&#x27;"),
        ("eve-5", "must be text or a list of texts, got 7"),
    ],
)
def test_person_without_a_role_is_told_so_on_a_page(
    site: LoginSite, browser: httpx.Client, person: str, said: str
) -> None:
    shown = site.sign_in(browser, person)
    assert shown.status_code == 403
    assert shown.headers["content-type"].startswith("text/html")
    assert said in shown.text and "/login?again=1" in shown.text
    error_of(browser.get("/api/status"), 401, "unauthorized")


def callback_of(site: LoginSite, browser: httpx.Client, person: str = "ada-1", path: str = "/login") -> str:
    """Sign in up to the address that the provider sends the browser back to, which is not opened."""
    browser.follow_redirects = False
    answer = browser.get(path)
    while "location" in answer.headers and "/login/callback" not in answer.headers["location"]:
        answer = browser.get(str(answer.url.join(answer.headers["location"])))
        if "/interaction/" in str(answer.url) and answer.status_code == 200:
            answer = browser.post(str(answer.url), data={"prompt": "login", "login": person, "password": "any"})
    return str(answer.headers["location"])


def refused_sign_in(answer: httpx.Response, said: str) -> None:
    error = error_of(answer, 401, "sign_in_failed")
    assert said in error["message"], error
    assert not [name for name in answer.headers.get_list("set-cookie") if "session-" in name]


JSON = {"Accept": "application/json"}


def test_code_works_once_and_only_in_the_browser_that_began(site: LoginSite, browser: httpx.Client) -> None:
    callback = callback_of(site, browser)
    # A stolen address: no cookie, and the cookie of somebody else who signs in, too.
    with site.browser() as thief:
        thief.follow_redirects = False
        refused_sign_in(thief.get(callback, headers=JSON), "another browser")
        thief.get("/login")
        refused_sign_in(thief.get(callback, headers=JSON), "another browser")
    assert browser.get(callback).status_code == 303
    refused_sign_in(browser.get(callback, headers=JSON), "the identity provider refused: 'invalid_grant'")


def test_code_of_another_sign_in_does_not_work(site: LoginSite, browser: httpx.Client) -> None:
    """The code of somebody else, put into one's own sign-in, is not bound to one's verifier."""
    with site.browser() as other:
        code = httpx.URL(callback_of(site, other, "ben-2")).params["code"]
    mine = httpx.URL(callback_of(site, browser))
    refused_sign_in(browser.get(str(mine.copy_set_param("code", code)), headers=JSON), "invalid_grant")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": ""}, "not known here"),
        ({"state": "made-up"}, "not known here"),
        ({"state": "\u00e9"}, "not known here"),
        ({"iss": "https://evil.example"}, "another issuer answered: 'https://evil.example'"),
        ({"code": "made-up"}, "invalid_grant"),
    ],
)
def test_changed_answer_of_the_issuer_is_refused(
    site: LoginSite, browser: httpx.Client, change: dict[str, str], said: str
) -> None:
    callback = httpx.URL(callback_of(site, browser))
    refused_sign_in(browser.get(str(callback.copy_merge_params(change)), headers=JSON), said)


def test_refusal_of_the_issuer_is_told_and_nothing_that_a_link_could_say(
    site: LoginSite, browser: httpx.Client
) -> None:
    text = "call <b>0900</b>"
    refused_sign_in(browser.get("/login/callback", params={"error": text}, headers=JSON), "not known here")
    state = httpx.URL(callback_of(site, browser)).params["state"]
    answer = browser.get(
        "/login/callback", params={"state": state, "error": "access_denied", "error_description": text}
    )
    assert answer.status_code == 401 and "access_denied" in answer.text and "0900" not in answer.text
    answer = browser.get("/login/callback", params={"state": state, "error": text})
    assert "<b>" not in answer.text


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "mine"}, None),
        ({"nonce": "mine", "azp": "turnout"}, None),
        ({"nonce": "mine", "aud": ["turnout", "urn:other"], "azp": "turnout"}, None),
        ({"nonce": "of somebody else"}, "another sign-in"),
        ({}, "another sign-in"),
        ({"nonce": "mine", "azp": "other"}, "another client"),
        ({"nonce": "mine", "aud": ["turnout", "urn:other"]}, "another client"),
        ({"nonce": "mine", "aud": API}, "another audience"),
        ({"nonce": "mine", "iss": "https://evil.example"}, "another issuer"),
        ({"nonce": "mine", "exp": 1}, "expired"),
    ],
)
def test_id_token_must_be_of_this_sign_in_and_for_this_client(
    site: LoginSite, claims: dict[str, Any], said: str | None
) -> None:
    token = site.signed(**{"aud": "turnout", **claims})
    site.get(token=token)  # so that the keys are there
    if said is None:
        assert site.login.provider.signed_in(token, "mine", renewed=False)["sub"] == "robot"
        return
    with pytest.raises(TurnoutError, match=said):
        site.login.provider.signed_in(token, "mine", renewed=False)
    if not claims:  # a renewed one need not repeat the nonce
        assert site.login.provider.signed_in(token, "mine", renewed=True)["sub"] == "robot"


def test_sign_in_takes_ten_minutes_at_most_and_works_in_two_tabs(site: LoginSite, browser: httpx.Client) -> None:
    first = callback_of(site, browser)
    second = callback_of(site, browser)
    assert [browser.get(callback).status_code for callback in (first, second)] == [303, 303]
    late = callback_of(site, browser)
    site.clock.ahead = 601.0
    refused_sign_in(browser.get(late, headers=JSON), "took too long")


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "javascript:alert(1)",
        "evil.example",
        "",
        "/x\r\nSet-Cookie: a=b",
        "/" + "x" * 2001,
    ],
)
def test_sign_in_leads_nowhere_but_to_this_server(site: LoginSite, browser: httpx.Client, path: str) -> None:
    error_of(browser.get("/login", params={"next": path}, headers=JSON), 400, "bad_parameter")


def test_sign_in_leads_back_to_where_somebody_was(site: LoginSite, browser: httpx.Client) -> None:
    callback = callback_of(site, browser, path="/login?next=%2F%3Fembed%3D1%23final_ui%2Fwhere%3Da%253D1")
    assert "final_ui" not in callback, "the issuer does not learn what is looked at"
    assert browser.get(callback).headers["location"] == "/?embed=1#final_ui/where=a%3D1"


def test_session_is_new_at_each_sign_in_and_the_one_before_has_ended(site: LoginSite, browser: httpx.Client) -> None:
    planted = "planted-by-somebody-else"
    browser.cookies.set(f"turnout-session-{site.port}", planted, domain="127.0.0.1", path="/")
    site.sign_in(browser, "ada-1", "/login?next=/api/me")
    name, first = session_cookie(browser)
    assert first != planted
    error_of(site.get(Cookie=f"{name}={planted}"), 401, "unauthorized")
    assert site.get(Cookie=f"{name}={first}").status_code == 200
    answer = browser.get(callback_of(site, browser))
    (second,) = [text for text in answer.headers.get_list("set-cookie") if "session-" in text]
    assert first not in second
    error_of(site.get(Cookie=f"{name}={first}"), 401, "unauthorized")


# -- sessions

HOUR = 3600.0


def live(site: LoginSite, browser: httpx.Client, **headers: str) -> ClientConnection:
    """A live connection as the page opens it: with the cookie, and no token."""
    name, secret = session_cookie(browser)
    given = {"Cookie": f"{name}={secret}"} | own(site) | headers
    return connect_socket(
        f"{site.url.replace('http', 'ws', 1)}/api/live", additional_headers=given, open_timeout=SECONDS
    )


def end_of(socket: ClientConnection) -> tuple[int, str]:
    """How the server ends a connection."""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            socket.recv(SECONDS)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


def test_session_ends_with_its_token_and_ends_its_live_connection(site: LoginSite, browser: httpx.Client) -> None:
    site.sign_in(browser, "ada-1", "/login?next=/api/me")
    with live(site, browser) as socket:
        assert json.loads(socket.recv(SECONDS))["role"] == "operator"
        site.clock.ahead = HOUR + 40
        assert end_of(socket) == (CloseCode.SIGNED_OUT, "the session has ended")
    error_of(browser.get("/api/status"), 401, "unauthorized")
    # Signing in again takes no password: the issuer knows the browser.
    site.clock.ahead = 0
    assert browser.get("/login?next=/api/me").json()["name"] == "Ada Lovelace"


def test_signing_out_ends_live_connections_of_that_session_alone(site: LoginSite, browser: httpx.Client) -> None:
    site.sign_in(browser, "ada-1", "/login?next=/api/me")
    with site.browser() as other:
        site.sign_in(other, "ada-1", "/login?next=/api/me")
        with live(site, browser) as socket:
            browser.post("/logout", headers=own(site))
            assert end_of(socket) == (CloseCode.SIGNED_OUT, "the session has ended")
        assert other.get("/api/me").status_code == 200


def test_session_is_renewed_by_a_refresh_token_and_nothing_is_interrupted(
    site: LoginSite, browser: httpx.Client
) -> None:
    provider = site.provider
    with provider.with_refresh():
        site.sign_in(browser, "ada-1", "/login?next=/api/me")
        with live(site, browser) as socket:
            site.clock.ahead = HOUR - 20
            with ThreadPoolExecutor(8) as pool:
                answers = pool.map(lambda _: site.get("/api/me", Cookie="=".join(session_cookie(browser))), range(8))
                assert [answer.status_code for answer in answers] == [200] * 8
            # It logs a token after it has given it.
            wait_until(provider.refreshed, what="the renewal")
            assert provider.refreshed() == 1, "all who wait share one request"
            socket.send(json.dumps({"type": "status", "id": "s"}))
            assert [json.loads(socket.recv(SECONDS))["type"] for _ in range(2)] == ["hello", "status"]


def test_role_that_is_taken_away_ends_the_session_and_another_one_ends_the_connection(
    site: LoginSite, browser: httpx.Client
) -> None:
    provider = site.provider
    with provider.with_refresh():
        try:
            site.sign_in(browser, "ada-1", "/login?next=/api/me")
            with live(site, browser) as socket:
                provider.set_people(PEOPLE | {"ada-1": {"name": "Ada", "groups": "turnout-look"}})
                site.clock.ahead = HOUR - 20
                assert end_of(socket) == (CloseCode.SIGNED_OUT, "the role is viewer now")
            assert browser.get("/api/me").json()["role"] == "viewer"
            with live(site, browser) as socket:
                provider.set_people(PEOPLE | {"ada-1": {"name": "Ada", "groups": "none"}})
                site.clock.ahead = HOUR + 20
                assert end_of(socket) == (CloseCode.SIGNED_OUT, "the session has ended")
            error_of(browser.get("/api/status"), 401, "unauthorized")
        finally:
            provider.set_people(PEOPLE)


def test_session_that_cannot_be_renewed_goes_on_to_its_end(site: LoginSite, browser: httpx.Client) -> None:
    with site.provider.with_refresh():
        site.sign_in(browser, "ada-1", "/login?next=/api/me")
        site.provider.stop()
        site.clock.ahead = HOUR - 20
        assert browser.get("/api/me").status_code == 200
        site.clock.ahead = HOUR + 40
        error_of(browser.get("/api/me"), 401, "unauthorized")
        site.provider.start()  # it knows nothing of the refresh token any more
        site.clock.ahead = HOUR - 5
        assert browser.get("/api/me").status_code == 200
        site.clock.ahead = HOUR + 40
        error_of(browser.get("/api/me"), 401, "unauthorized")


def test_session_ends_after_a_day_however_often_it_is_renewed(site: LoginSite, browser: httpx.Client) -> None:
    site.sign_in(browser, "ada-1", "/login?next=/api/me")
    (session,) = [one for one in site.login._sessions.values() if one.person.subject == "ada-1"][-1:]
    session.person = dataclasses.replace(session.person, until=session.person.until + 100 * HOUR)
    site.clock.ahead = 23.9 * HOUR
    assert browser.get("/api/me").status_code == 200
    site.clock.ahead = 24.1 * HOUR
    error_of(browser.get("/api/me"), 401, "unauthorized")


def test_sessions_are_bounded_and_nobody_ends_those_of_others(site: LoginSite, browser: httpx.Client) -> None:
    site.sign_in(browser, "ben-2", "/login?next=/api/me")
    for _ in range(21):
        with site.browser() as another:
            site.sign_in(another, "ada-1", "/login?next=/api/me")
    assert len([one for one in site.login._sessions.values() if one.person.subject == "ada-1"]) == 20
    assert browser.get("/api/me").status_code == 200


# -- other sites


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", None])
def test_page_of_another_site_cannot_use_the_session(
    site: LoginSite, browser: httpx.Client, origin: str | None
) -> None:
    site.sign_in(browser, "ada-1", "/login?next=/api/me")
    headers = {"Origin": origin} if origin else {}
    for path in ("/api/control", "/api/rollback", "/api/sql", "/logout"):
        error_of(browser.post(path, json={}, headers=headers), 403, "foreign_origin")
    error_of(browser.put("/api/config", content="{}", headers=headers), 403, "foreign_origin")
    assert site.queue.requesters == []
    name, secret = session_cookie(browser)
    url = f"{site.url.replace('http', 'ws', 1)}/api/live"
    with pytest.raises(InvalidStatus) as caught:
        connect_socket(url, additional_headers={"Cookie": f"{name}={secret}"} | headers, open_timeout=SECONDS)
    assert caught.value.response.status_code == 403
    assert browser.get("/api/me").status_code == 200


def test_site_that_is_allowed_sends_tokens_and_cannot_use_the_session(tmp_path: Path) -> None:
    """A page of `server.allowed_origins` may be of the same site, whose requests have the cookie."""
    app = "http://127.0.0.1:4200"
    with login_site(tmp_path, server={"allowed_origins": [app]}) as site, site.browser() as browser:
        site.sign_in(browser, "ada-1", "/login?next=/api/me")
        error_of(browser.post("/api/control", json={}, headers={"Origin": app}), 403, "foreign_origin")
        answer = browser.get("/api/me", headers={"Origin": app})
        assert "access-control-allow-credentials" not in answer.headers
        assert site.post(site.provider.token(), Origin=app).status_code == 200


def test_proxy_with_tls_makes_cookies_secure(site: LoginSite) -> None:
    headers = {"Host": "turnout.example", "X-Forwarded-Proto": "https"}
    answer = httpx.get(f"{site.url}/login", headers=headers, timeout=SECONDS)
    assert httpx.URL(answer.headers["location"]).params["redirect_uri"] == "https://turnout.example/login/callback"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-turnout-browser-") and cookie.endswith("Path=/; SameSite=lax; Secure")
    # A cookie that was set without TLS does not count there.
    with site.browser() as browser:
        site.sign_in(browser, "ada-1", "/login?next=/api/me")
        assert browser.get("/api/me").status_code == 200
        error_of(browser.get("/api/me", headers=headers), 401, "unauthorized")


def test_sign_ins_that_fail_are_counted_as_wrong_tokens_are(tmp_path: Path) -> None:
    """Or anybody could have this server ask the issuer as often as it answers."""
    rates = Rates(Rate(1e6, 10**6), Rate(1e6, 10**6), Rate(0.001, 3))
    with login_site(tmp_path, rates) as site, site.browser() as browser:
        callback = httpx.URL(callback_of(site, browser)).copy_set_param("code", "made-up")
        for _ in range(3):
            refused_sign_in(browser.get(str(callback), headers=JSON), "invalid_grant")
        error_of(browser.get(str(callback), headers=JSON), 429, "too_many_requests")
        assert site.get(token=site.provider.token()).status_code == 200, "who has a right token goes on"


def test_file_of_an_authority_that_cannot_be_read_is_a_fault_of_the_configuration(site: LoginSite) -> None:
    settings = site.login.provider.settings.model_copy(update={"ca_file": Path("/nowhere.pem")})
    with pytest.raises(ConfigError, match=r"access.oidc.ca_file: cannot be read \(No such file"):
        IdentityProvider(settings)


def test_limits_count_for_each_subject(tmp_path: Path) -> None:
    rates = Rates(Rate(0.001, 12), Rate(0.001, 12), Rate(0.001, 1000))
    with login_site(tmp_path, rates) as site:
        token, same = site.signed(sub="one"), site.signed(sub="one", name="Another name")
        assert [site.get(token=token).status_code for _ in range(12)] == [200] * 12
        assert site.get(token=same).status_code == 429
        assert site.get(token=site.signed(sub="two")).status_code == 200
        assert site.get(token=TOKEN).status_code == 200
