"""People and programs of a real identity provider: whose tokens are taken, and how each other one is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk
from joserfc.jwk import ECKey
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_socket

from serving import SECONDS
from signing_in import SECRET, TOKEN, LoginSite, login_site, unsigned, with_signature
from test_access import error_of
from turnout.preflight.machine import check_issuer
from turnout_client.messages import CloseCode

OTHER_KEY = ECKey.generate_key("P-256")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginSite]:
    with login_site(tmp_path_factory.mktemp("login")) as found:
        yield found


@pytest.fixture
def site(running: LoginSite) -> Iterator[LoginSite]:
    """The one server of the file, with the time of today and a desk that nobody wrote to."""
    running.queue.requesters.clear()
    yield running
    running.clock.ahead = 0.0


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
        (["others"], "nothing in the claim 'groups'"),
        ([], "nothing in the claim 'groups'"),
        (["TURNOUT-OPS"], "nothing in the claim 'groups'"),
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
    with caplog.at_level(logging.DEBUG):
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
    assert check_issuer(right).text == f"{right.issuer} answers: 1 keys"
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
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (CloseCode.SIGNED_OUT, "the token has expired")
