"""A Turnout with a real identity provider for sign-in, and tokens with valid and invalid signatures."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey

from access_site import UNLIMITED, Site, settings
from fake_orchestrator import FakeOrchestrator, FakeQueue
from http_server import SECONDS, serving, small_store
from openid_provider import API, LoginProvider
from turnout.local.broker import free_port
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app
from turnout.serve.limits import Rates
from turnout.serve.login import Login

SECRET = "client-secret-of-turnout-0123 /+?"
PEOPLE = {
    "ada-1": {"name": "Ada Lovelace", "groups": ["turnout-ops", "all"]},
    "ben-2": {"name": "Ben", "groups": ["turnout-look"]},
    "cy-3": {"name": "Cy", "groups": ["others"]},
    "dee-4": {"name": "Dee"},
    "eve-5": {"name": "Eve", "groups": 7},
}
TOKEN = "token-of-the-file-0123456789"


def configuration(issuer: str, server: dict[str, Any]) -> str:
    """Return the configuration file as JSON, which is valid YAML."""
    roles = {"claim": "groups", "operator": ["turnout-ops"], "viewer": "turnout-look"}
    oidc = {"issuer": issuer, "client_id": "turnout", "client_secret": SECRET, "roles": roles, "audience": API}
    tokens = [{"name": "file", "role": "viewer", "token": TOKEN}]
    return json.dumps({"access": {"tokens": tokens, "oidc": oidc}, "server": server})


class Clock:
    """The clock of the server, which a test can move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class LoginSite(Site):
    """A running Turnout and its identity provider."""

    provider: LoginProvider
    login: Login
    clock: Clock

    def signed(self, key: ECKey | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed token with changed claims; None omits a claim. By default the provider's key signs it."""
        kept = {name: value for name, value in (self.good_claims() | claims).items() if value is not None}
        given = {"alg": "ES256", "kid": self.provider.kid, "typ": "at+jwt"} | (header or {})
        return jwt.encode(given, kept, key or ECKey.import_key(self.provider.signing_key))

    def browser(self) -> httpx.Client:
        """Return a new HTTP client that follows redirects and keeps cookies, as a browser does."""
        return httpx.Client(
            base_url=self.url, timeout=SECONDS, verify=False, follow_redirects=True, headers={"Accept": "text/html"}
        )

    def sign_in(self, browser: httpx.Client, person: str, path: str = "/login") -> httpx.Response:
        """Sign in as a person, and return the last page."""
        asked = browser.get(path)
        assert "/interaction/" in str(asked.url), asked.text
        form = {"prompt": "login", "login": person, "password": "any"}
        return browser.post(str(asked.url), data=form)

    def good_claims(self) -> dict[str, Any]:
        now = int(self.clock())
        who = {"iss": self.provider.issuer, "aud": API, "sub": "robot", "groups": ["turnout-ops"]}
        return who | {"iat": now, "nbf": now, "exp": now + 600}


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Return the first two parts of a token."""
    return ".".join(_part(json.dumps(part).encode()) for part in (header, claims))


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def with_signature(first: str, signature: bytes) -> str:
    return f"{first}.{_part(signature)}"


@contextmanager
def login_site(folder: Path, rates: Rates = UNLIMITED, server: dict[str, Any] | None = None) -> Iterator[LoginSite]:
    """Run the server with a provider, which the test starts itself, so that it can change its options."""
    port = free_port()
    queue, clock = FakeQueue(), Clock()
    page = f"http://127.0.0.1:{port}"
    provider = LoginProvider(folder, "turnout", SECRET, page, PEOPLE)
    provider.client_claims = {"groups": ["turnout-ops"]}
    access = Access.of(settings(folder, configuration(provider.issuer, server or {})), rates)
    assert access.login is not None
    access.login.provider.clock = clock
    with ExitStack() as stack:
        database = stack.enter_context(small_store(folder / "store"))
        app = create_app(Services(database, FakeOrchestrator(queue)), access)
        url = stack.enter_context(serving(app, port, trusted_proxies=["127.0.0.1"]))
        assert url == page
        stack.enter_context(provider)
        found = LoginSite(url, database, queue)
        found.provider, found.login, found.clock = provider, access.login, clock
        stack.callback(found.http.close)
        yield found
