"""The people of an identity provider: whose tokens are taken, who is signing in, and the sessions of who has.

Sessions are in memory: a browser has a random text alone, nothing of the issuer. They end with this process, and then
a sign-in begins anew, which takes no password where the issuer still knows the browser. A sign-in under way is kept
nowhere: all of it is in its `state`, encrypted, and counts only in the browser that began it. `access.py` decides what
people may do. Only a server with `access.oidc` imports this.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from turnout.config.config_errors import describe
from turnout.config.server import OidcSettings
from turnout.errors import TurnoutError
from turnout.issuer.people import NAMES, Person, claim_at, person_of
from turnout.issuer.provider import LEEWAY_SECONDS, IdentityProvider, sign_in_failed
from turnout.serve.access import SIGN_IN_SECONDS, session_key

log = logging.getLogger(__name__)

_MOST_SESSIONS, _MOST_OF_ONE = 10_000, 20
# However often its tokens are renewed.
_LONGEST_SECONDS = 24 * 3600.0
_EARLY_SECONDS, _RETRY_SECONDS = 60.0, 10.0


@dataclass(slots=True)
class Session:
    """A browser that has signed in, and what its issuer gave for it."""

    person: Person
    nonce: str
    id_token: str
    refresh_token: str | None
    began: float
    tried: float = float("-inf")
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Login:
    """Who the identity provider lets in. Only the event loop calls it."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        self.provider = IdentityProvider(settings, clock)
        self._seal = Fernet(Fernet.generate_key())
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    # -- bearer tokens

    def bearer(self, token: str) -> Person:
        """The owner of a bearer token; TurnoutError where it is refused. `prepare` of the provider comes before."""
        return person_of(self.provider.bearer(token), self.provider.settings.roles)

    def is_over(self, person: Person) -> bool:
        """Whether the token of somebody has expired."""
        return self.provider.clock() > person.until + LEEWAY_SECONDS

    # -- signing in

    async def begin(self, browser: str, redirect: str, page: str, *, again: bool) -> str:
        """The address at which the browser signs in; `page` is where it goes after. `again` asks for the password."""
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        sealed = json.dumps([browser, verifier, nonce, redirect, page]).encode()
        state = self._seal.encrypt_at_time(sealed, int(self.provider.clock())).decode()
        return await self.provider.authorization_url(redirect, state, nonce, verifier, again=again)

    async def finish(self, browser: str, given: Mapping[str, str]) -> tuple[str, str]:
        """Open a session by what the issuer sent the browser back with; the session's secret, and where to go."""
        try:
            sealed = self._seal.decrypt_at_time(given.get("state", ""), SIGN_IN_SECONDS, int(self.provider.clock()))
            begun_by, verifier, nonce, redirect, page = json.loads(sealed)
        except (InvalidToken, ValueError):  # the latter where it is not even ASCII
            raise sign_in_failed("this sign-in is not known here: it took too long, or this server restarted") from None
        if not hmac.compare_digest(begun_by.encode(), browser.encode()):
            raise sign_in_failed("this sign-in was begun in another browser")
        if (given.get("iss") or self.provider.settings.issuer) != self.provider.settings.issuer:
            raise sign_in_failed(f"another issuer answered: {describe(given['iss'])}")
        if "code" not in given:
            raise sign_in_failed(f"the identity provider refused: {describe(given.get('error'))}")
        tokens = await self.provider.tokens(
            grant_type="authorization_code", code=given["code"], redirect_uri=redirect, code_verifier=verifier
        )
        person = await self._person(tokens, nonce, renewed=False)
        now = self.provider.clock()
        session = Session(person, nonce, tokens["id_token"], _text(tokens.get("refresh_token")), now)
        log.info("%s signed in as %s", person.requester, person.role)
        return self._open(session), page

    async def _person(self, tokens: Mapping[str, Any], nonce: str, *, renewed: bool) -> Person:
        """Who has signed in, by the ID token, and by the userinfo endpoint for what that does not say."""
        if (id_token := _text(tokens.get("id_token"))) is None:
            raise sign_in_failed("the identity provider gave no ID token")
        await self.provider.prepare(id_token)
        claims = self.provider.signed_in(id_token, nonce, renewed=renewed)
        roles = self.provider.settings.roles
        says_all = claim_at(claims, roles.claim) is not None and any(name in claims for name in NAMES)
        if not says_all and (access_token := _text(tokens.get("access_token"))) is not None:
            claims = {**await self.provider.user_info(access_token, claims["sub"]), **claims}
        return person_of(claims, roles)

    # -- sessions

    def _open(self, session: Session) -> str:
        """Keep a session, in place of the oldest where there are too many, and return its secret."""
        for key in list(self._sessions):
            self.person(key)
        own = [key for key, one in self._sessions.items() if one.person.subject == session.person.subject]
        for key in own[: max(0, len(own) + 1 - _MOST_OF_ONE)]:
            del self._sessions[key]
        if len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        secret = secrets.token_urlsafe(32)
        self._sessions[session_key(secret)] = session
        return secret

    def person(self, key: str) -> Person | None:
        """The person of a session as it is now; None where it has ended."""
        session = self._sessions.get(key)
        if session is None:
            return None
        over, too_old = self.is_over(session.person), self.provider.clock() - session.began > _LONGEST_SECONDS
        if too_old or (over and session.refresh_token is None):
            del self._sessions[key]
        return None if over or too_old else session.person

    async def renewed(self, key: str) -> Person | None:
        """The person of a session, asked for anew shortly before its token expires; None where it has ended."""
        session = self._sessions.get(key)
        if session is not None and self._is_due(session):
            async with session.renewing:
                if self._is_due(session):
                    await self._renew(key, session)
        return self.person(key)

    def _is_due(self, session: Session) -> bool:
        now = self.provider.clock()
        waited = not 0 <= now - session.tried < _RETRY_SECONDS
        return session.refresh_token is not None and waited and now > session.person.until - _EARLY_SECONDS

    async def _renew(self, key: str, session: Session) -> None:
        """Ask for new tokens. Without them a session goes on to its end, unless its person has no role any more."""
        session.tried, before = self.provider.clock(), session.person
        try:
            tokens = await self.provider.tokens(grant_type="refresh_token", refresh_token=session.refresh_token or "")
            person = await self._person(tokens, session.nonce, renewed=True)
            if person.subject != before.subject:
                raise sign_in_failed("the identity provider answered for somebody else")
        except TurnoutError as error:
            log.warning("the session of %s is not renewed: %s", before.requester, error.message)
            if error.code == "forbidden":
                self._sessions.pop(key, None)
            elif error.code != "issuer_unreachable":
                session.refresh_token = None
            return
        session.person, session.id_token = person, tokens["id_token"]
        session.refresh_token = _text(tokens.get("refresh_token")) or session.refresh_token

    async def sign_out(self, key: str, back: str) -> str:
        """End a session; the address at which the issuer ends its own, or `back` where it has none."""
        session = self._sessions.pop(key, None)
        if session is None:
            return back
        log.info("%s signed out", session.person.requester)
        try:
            return await self.provider.logout_url(session.id_token, back)
        except TurnoutError:
            return back

    def forget(self, key: str) -> None:
        """End a session of a browser that has signed in anew."""
        self._sessions.pop(key, None)


def _text(given: object) -> str | None:
    return given if isinstance(given, str) and given else None
