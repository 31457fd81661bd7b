"""Access: admits or refuses every request and every WebSocket handshake, before anything else.

`origins.py` has the rules about sites, `limits.py` those about amounts.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import hashlib
import hmac
import re
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.config import AccessSettings, McpAccess, Role, Settings, SqlAccess, TokenSettings, config_errors
from turnout.config.checks import TAKEN_NAMES, token_faults
from turnout.config.secrets import read_small
from turnout.config.values import is_loopback
from turnout.errors import ConfigError, TurnoutError
from turnout.issuer.people import ForgedTokenError, Person
from turnout.serve.limits import CLIENT, Buckets, Rates, TooOften, check_size, client_host, client_of
from turnout.serve.origins import PREFLIGHT_HEADERS, Origins, is_preflight
from turnout.serve.responses import SECURITY_HEADERS, error_response
from turnout_client.messages import PROTOCOL, TOKEN_PROTOCOL

if TYPE_CHECKING:
    from turnout.serve.login import Login

IDENTITY = "turnout.identity"
"""In the scope of an admitted request: its Identity. The page and the probes are served without one, too."""

PUBLIC = ("/", "/docs", "/healthz", "/readyz", "/login", "/login/callback")
"""Paths that everybody may read."""

SIGN_IN_SECONDS = 600
"""How long a sign-in may take."""

_PUBLIC_FOLDERS = ("/static/", "/docs/")
_READING = ("GET", "HEAD", "OPTIONS")
# Reads whose question does not fit an address (`check_sql`, `check_mcp` say who may), and what changes only the sender.
_FOR_VIEWERS = ("/api/sql", "/mcp", "/logout")
_FORWARDED = ("forwarded", "x-forwarded-for")
_CLIENT_NAME = re.compile("[a-z][a-z0-9_-]{0,31}")
_REMEMBERED = 10_000
_LOOK_SECONDS, _LONG_SECONDS = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request, as history and logs name it, and its role."""

    name: str
    role: Role
    owns_server: bool = False
    """Whether it has proven to be the server's user, on a server without tokens."""
    person: Person | None = None
    """Who it is to the identity provider, where that has let it in."""
    session: str | None = None
    """The session of a browser that has signed in."""

    def __str__(self) -> str:
        """The sender, where a viewer is refused."""
        return f"the token '{self.name}' is a viewer's" if self.person is None else f"{self.name} is a viewer"

    def check_operator(self, what: str) -> None:
        """Refuse a sender that may only look: TurnoutError `forbidden`, which says what it may not do."""
        if self.role is not Role.OPERATOR:
            raise TurnoutError("forbidden", f"{self}: {what}", "ask an operator, or use the token of one")


class Tokens:
    """The tokens; only their hashes are kept."""

    def __init__(self, tokens: Iterable[tuple[Identity, str]]) -> None:
        self._known = [(_hash(token), identity) for identity, token in tokens]

    @classmethod
    def read(cls, access: AccessSettings) -> Tokens:
        """The tokens of the settings and of their files; ConfigError has all faults."""
        wrong: list[str] = []
        values: list[tuple[config_errors.SettingPath, str]] = []
        tokens: list[tuple[Identity, str]] = []
        for place, entry in enumerate(access.tokens):
            path: config_errors.SettingPath = ("access", "tokens", place, "token_file" if entry.token_file else "token")
            try:
                value = _value(entry)
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                wrong.append(
                    f"{config_errors.place(path)}: {entry.token_file} cannot be read ({reason}); check the path"
                )
                continue
            values.append((path, value))
            tokens.append((Identity(entry.name, entry.role), value))
        wrong += [f"{config_errors.place(path)}: {text}" for path, text in token_faults(values)]
        if wrong:
            raise ConfigError(wrong)
        return cls(tokens)

    def find(self, token: str) -> Identity | None:
        """The owner of a token. Takes as long for a token that is nearly right as for any other."""
        given, found = _hash(token), None
        for known, identity in self._known:
            if hmac.compare_digest(known, given):
                found = identity
        return found


class Access:
    """The rules of one server, and what each client has used. Only the event loop calls it."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        allowed_origins: Iterable[str] = (),
        rates: Rates | None = None,
        sql: SqlAccess = SqlAccess.OPERATOR,
        login: Login | None = None,
        mcp: McpAccess = McpAccess.PROPOSE,
    ) -> None:
        rates = rates or Rates()
        self._sql, self._mcp = sql, mcp
        self.login = login
        self.origins = Origins(allowed_origins, rebound=tokens is None)
        self._tokens = tokens
        self._owner = Tokens(())
        self._reads, self._controls = Buckets(rates.reads), Buckets(rates.controls)
        self._wrong_tokens = Buckets(rates.wrong_tokens)
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()

    @classmethod
    def of(cls, settings: Settings, rates: Rates | None = None) -> Access:
        """Reads the files of tokens."""
        access = settings.access or AccessSettings()
        tokens = Tokens.read(access) if settings.access else None
        login = None
        if access.oidc:
            from turnout.serve.login import Login

            login = Login(access.oidc)
        return cls(tokens, settings.server.allowed_origins, rates, access.sql, login, access.mcp)

    def know_owner(self, token: str) -> None:
        """Take the bearer of this token for the server's user, where there are no other tokens."""
        self._owner = Tokens([(Identity("", Role.OPERATOR), token)])

    @property
    def wants_token(self) -> bool:
        return self._tokens is not None

    async def prepare(self, scope: Scope) -> None:
        """Ask the identity provider for what `admit` needs to know, which asks nobody."""
        if self.login is None or _is_public(scope):
            return
        token, session = _token(scope, Headers(scope=scope)), session_of(scope)
        if token is not None and _is_issued(token):
            await self.login.provider.prepare(token)
        elif token is None and session is not None:
            await self.login.renewed(session)

    def admit(self, scope: Scope) -> Identity | None:
        """The sender of a request; None if everybody may read it, TurnoutError if it is refused."""
        headers = Headers(scope=scope)
        check_size(scope)
        self.origins.check_host(scope, headers)
        sends = scope["type"] == "http" and scope["method"] not in _READING
        if sends or scope["type"] == "websocket" or is_preflight(scope, headers):
            self.origins.check_origin(headers)
        if self._tokens is None and scope["path"].startswith(("/api/", "/mcp")):
            self.origins.check_site(headers)
        if is_preflight(scope, headers) or _is_public(scope):
            self._count(self._reads, scope, None)
            # A wrong token counts against its client, and is ignored.
            with contextlib.suppress(TurnoutError):
                return self._identify(scope, headers) if scope["path"] == "/readyz" else None
            return None
        return self.authorize(scope, self._identify(scope, headers))

    def authorize(self, scope: Scope, identity: Identity | None) -> Identity:
        """Count a request for its sender; TurnoutError if the sender may not send it."""
        steers = scope["type"] == "http" and scope["method"] not in _READING and scope["path"] not in _FOR_VIEWERS
        self._count(self._controls if steers else self._reads, scope, identity)
        if identity is None:
            raise _unauthorized(
                "this server requires a token" if self.login is None else "this server requires a sign-in"
            )
        if steers:
            identity.check_operator("viewers may read, but not change anything")
        return identity

    def check_mcp(self, level: McpAccess = McpAccess.READ) -> None:
        """Refuse agents what `access.mcp` does not allow: TurnoutError `forbidden`."""
        levels = list(McpAccess)
        if levels.index(level) > levels.index(self._mcp):
            reason = f"access.mcp is {self._mcp} on this server: agents may not {level}"
            raise TurnoutError("forbidden", reason, "access.mcp says what they may; a change of it needs a restart")

    def check_sql(self, scope: Scope) -> None:
        """Refuse SQL of an admitted sender that may not send it: TurnoutError `forbidden`."""
        if self._tokens is None:
            if _is_local(scope):
                return
            reason, hint = "without `access:` only this machine may send SQL", "set access: with tokens"
        elif self._sql is SqlAccess.OFF:
            reason, hint = "SQL is off on this server", "access.sql says who may run it"
        elif self._sql is SqlAccess.OPERATOR and identity_of(scope).role is not Role.OPERATOR:
            reason = f"{identity_of(scope)}: viewers may not send SQL"
            hint = "use the token of an operator, or set access.sql to viewer"
        else:
            return
        raise TurnoutError("forbidden", reason, hint)

    def check_apply(self, scope: Scope) -> None:
        """Refuse a configuration of somebody who may not be the server's user, where there are no tokens."""
        if self._tokens is None and not (identity_of(scope).owns_server and _is_local(scope)):
            raise TurnoutError(
                "forbidden",
                "without `access:` only the user that runs the server may send a configuration, from this machine",
                "run `turnout apply -c FILE` there as that user: it finds the server's token by data_dir of the file",
            )

    async def ended(self, scope: Scope) -> str:
        """Wait until an admitted sender is let in no more, and return why; for ever where that cannot come."""
        identity, login = identity_of(scope), self.login
        while login is None or identity.person is None:
            await asyncio.sleep(_LONG_SECONDS)
        while True:
            person = await login.renewed(identity.session) if identity.session else identity.person
            if person is None or login.is_over(person):
                return f"the {'session' if identity.session else 'token'} has ended"
            if person.role is not identity.role:
                return f"the role is {person.role} now"
            await asyncio.sleep(_LOOK_SECONDS)

    def _identify(self, scope: Scope, headers: Headers) -> Identity | None:
        token = _token(scope, headers)
        if self._tokens is None:
            owns_server = token is not None and self._owner.find(token) is not None
            return Identity(_client_name(headers), Role.OPERATOR, owns_server)
        if token is None:
            return self._signed_in(scope, headers)
        known = self._tokens.find(token)
        if known is None and self.login is not None and _is_issued(token):
            return self._issued(self.login, token, scope)
        return self._bearer(known, client_of(scope))

    def _signed_in(self, scope: Scope, headers: Headers) -> Identity | None:
        """The person of a session. Browsers send the cookie whoever's page asks: what changes something is checked."""
        session = session_of(scope)
        person = self.login.person(session) if self.login is not None and session is not None else None
        if person is None:
            return None
        if scope["type"] == "websocket" or scope["method"] not in _READING:
            self.origins.check_own(headers)
        return Identity(person.requester, person.role, person=person, session=session)

    def _issued(self, login: Login, token: str, scope: Scope) -> Identity:
        """The owner of a token of the identity provider; one that it has not signed counts as a wrong token."""
        try:
            person = login.bearer(token)
        except ForgedTokenError as error:
            raise self.wrong(client_of(scope), error) from None
        except TurnoutError:
            self._count(self._reads, scope, None)
            raise
        return Identity(person.requester, person.role, person=person)

    def _bearer(self, identity: Identity | None, client: str) -> Identity:
        """The bearer of a token, unless too many wrong ones came from its address.

        Even a right token is refused then, or guessing would go on. A bearer that was admitted from there before is
        still admitted: one wrong client behind a proxy does not lock out the others.
        """
        visit = (client, identity.name) if identity else None
        if visit not in self._welcome:
            self.check_guessing(client)
        if identity is None or visit is None:
            raise self.wrong(client, _unauthorized("the token is not known here"))
        self._welcome[visit] = None
        self._welcome.move_to_end(visit)
        if len(self._welcome) > _REMEMBERED:
            self._welcome.popitem(last=False)
        return identity

    def wrong(self, client: str, error: TurnoutError) -> TurnoutError:
        """Count a wrong token or a sign-in that failed; the error to answer."""
        self.check_guessing(client)
        self._wrong_tokens.take(client)
        return error

    def check_guessing(self, client: str) -> None:
        """Refuse an address from which too many wrong tokens came: TooOften."""
        wait = self._wrong_tokens.wait_seconds(client)
        if wait:
            hint = "then send a token that is known here, or sign in again"
            raise TooOften("this address sent too many wrong tokens", wait, hint)

    def _count(self, buckets: Buckets, scope: Scope, identity: Identity | None) -> None:
        # A probe that is refused would restart a server that is only busy.
        if scope["path"] == "/healthz":
            return
        wait = buckets.take(self.client(scope, identity))
        if wait:
            hint = "for rows as they change, subscribe at /api/live instead of asking again"
            raise TooOften("this client sent too many requests", wait, hint)

    def client(self, scope: Scope, identity: Identity | None) -> str:
        """The client that a request counts for."""
        if identity and identity.person:
            return f"subject {identity.person.subject}"
        return f"token {identity.name}" if identity and self._tokens else client_of(scope)


@dataclass(frozen=True, slots=True)
class Gate:
    """Passes requests that `Access` admits to the application, with their Identity, and answers the others itself."""

    _app: ASGIApp
    _access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = self._with_headers(headers.get("origin"), send)
        try:
            await self._access.prepare(scope)
            identity = self._access.admit(scope)
        except TurnoutError as error:
            await error_response(error)(scope, receive, send)
            return
        if is_preflight(scope, headers):
            await Response(status_code=204, headers=PREFLIGHT_HEADERS)(scope, receive, send)
            return
        admitted = {**_without_token(scope, identity), CLIENT: self._access.client(scope, identity)}
        await self._app(admitted, receive, send)

    def _with_headers(self, origin: str | None, send: Send) -> Send:
        """Add the headers of every answer: security, and CORS for pages of allowed sites."""
        added = SECURITY_HEADERS | self._access.origins.answer_headers(origin)

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        return send_with_headers


def identity_of(scope: Scope) -> Identity:
    identity = scope[IDENTITY]
    assert isinstance(identity, Identity)
    return identity


def cookie_name(scope: Scope, kind: str) -> str:
    """The name of a cookie: over TLS with a prefix that nobody else can set, and with the port, which share cookies."""
    prefix = "__Host-" if scope["scheme"] in ("https", "wss") else ""
    return f"{prefix}turnout-{kind}-{(scope.get('server') or ('', 0))[1]}"


def session_of(scope: Scope) -> str | None:
    """The session that the cookie of a request names, which may have ended."""
    secret = HTTPConnection(scope).cookies.get(cookie_name(scope, "session"))
    return session_key(secret) if secret else None


def session_key(secret: str) -> str:
    """What the server keeps of the secret of a session."""
    return _hash(secret).hex()


def subprotocol_of(scope: Scope) -> str | None:
    """The subprotocol to accept a WebSocket with: a browser that offered some wants one of them."""
    return PROTOCOL if PROTOCOL in scope.get("subprotocols", ()) else None


def _is_local(scope: Scope) -> bool:
    """Whether a program of this machine asks. A proxy on this machine would make everybody look local."""
    return is_loopback(client_host(scope)) and not any(name in Headers(scope=scope) for name in _FORWARDED)


def _is_public(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["type"] == "http" and (path in PUBLIC or path.startswith(_PUBLIC_FOLDERS))


def _client_name(headers: Headers) -> str:
    """The name that a client gives itself, if it is a plain one."""
    name = headers.get("x-turnout-client", "").strip().lower()
    return name if _CLIENT_NAME.fullmatch(name) and name not in TAKEN_NAMES else "http"


def _token(scope: Scope, headers: Headers) -> str | None:
    """The token of a request: a header, or the subprotocol of a browser's WebSocket. Never a part of the address."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(TOKEN_PROTOCOL):
            return _decoded(offered.removeprefix(TOKEN_PROTOCOL))
    return None


def _is_issued(token: str) -> bool:
    """Whether it looks like a token of an identity provider, a JWT."""
    return token.count(".") == 2


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


def _without_token(scope: Scope, identity: Identity | None) -> Scope:
    """The scope with the identity instead of the token, so that no error or log can show the token."""
    hidden = (b"authorization", b"sec-websocket-protocol", *((b"cookie",) if identity is not None else ()))
    kept = [(name, value) for name, value in scope["headers"] if name not in hidden]
    cleaned = {**scope, "headers": kept}
    if "subprotocols" in scope:
        cleaned["subprotocols"] = [item for item in scope["subprotocols"] if not item.startswith(TOKEN_PROTOCOL)]
    if identity is not None:
        cleaned[IDENTITY] = identity
    return cleaned


def _unauthorized(message: str) -> TurnoutError:
    return TurnoutError(
        "unauthorized", message, "send `Authorization: Bearer TOKEN`; on the command line, set TURNOUT_TOKEN"
    )


def _value(entry: TokenSettings) -> str:
    if entry.token_file is not None:
        return read_small(entry.token_file).strip()
    return entry.token.get_secret_value() if entry.token else ""


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
