"""The HTTP calls of a login: to the issuer and back, out again, and who somebody is."""

from __future__ import annotations

import html
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.serve.access import SIGN_IN_SECONDS, Access, cookie_name, identity_of, session_of
from turnout.serve.limits import client_of
from turnout.serve.origins import Site
from turnout.serve.responses import content_security_policy, error_response, json_response
from turnout.serve.routes import Call
from turnout.serve.schemas import SignedOut, WhoAmI

log = logging.getLogger(__name__)

_CALLBACK = "/login/callback"
# A path of this server, and nothing that a browser takes for another one: no //host, no \host, no control characters.
_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")
_BROWSER = re.compile(r"[\w-]{43}")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign-in · Turnout</title><style nonce="{nonce}">:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em }}
#reason::first-letter {{ text-transform: uppercase }}</style></head>
<body><main><h1>You are not signed in</h1><p id="reason">{message}.</p><p>{hint}.</p>
<p><a href="/login?again=1">Sign in with another account</a> · <a href="/">Open the page</a></p></main></body></html>
"""


@dataclass(frozen=True, slots=True)
class LoginApi:
    """The calls, bound to who may come in."""

    _access: Access

    def routes(self) -> list[Route]:
        """The addresses that browsers are sent to; programs have no use for them."""
        ways = {"/login": self._begin, _CALLBACK: self._finish} if self._access.login else {}
        return [Route(path, _for_people(way), methods=["GET"]) for path, way in ways.items()]

    @Call("/api/me", WhoAmI)
    async def me(self, request: Request) -> Response:
        """Who the sender is to this server: name, role, and how it is known."""
        identity = identity_of(request.scope)
        person = identity.person
        by = "session" if identity.session else "issuer" if person else "token" if self._access.wants_token else "none"
        name, subject = (person.name, person.subject) if person else (identity.name, None)
        return json_response({"name": name, "subject": subject, "role": identity.role, "by": by})

    @Call("/logout", SignedOut, method="POST")
    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser; answers the address at which the issuer ends its own."""
        session, login, url = identity_of(request.scope).session, self._access.login, "/"
        if session and login:
            url = await login.sign_out(session, f"{_base(request)}/")
        response = json_response({"url": url})
        response.delete_cookie(**_cookie(request, "session"))
        return response

    async def _begin(self, request: Request) -> Response:
        assert self._access.login is not None
        page = request.query_params.get("next", "/")
        if not _OWN_PATH.fullmatch(page):
            raise TurnoutError(
                "bad_parameter", f"next: {show(page)} is not a path of this server", "begin it with one /"
            )
        known = request.cookies.get(cookie_name(request.scope, "browser"), "")
        # The same for sign-ins in several tabs at once.
        browser = known if _BROWSER.fullmatch(known) else secrets.token_urlsafe(32)
        again = request.query_params.get("again") == "1"
        url = await self._access.login.begin(browser, f"{_base(request)}{_CALLBACK}", page, again=again)
        response = _redirect(url)
        response.set_cookie(value=browser, max_age=SIGN_IN_SECONDS, **_cookie(request, "browser"))
        return response

    async def _finish(self, request: Request) -> Response:
        login = self._access.login
        assert login is not None
        browser, client = request.cookies.get(cookie_name(request.scope, "browser"), ""), client_of(request.scope)
        self._access.check_guessing(client)
        try:
            secret, page = await login.finish(browser, request.query_params)
        except TurnoutError as error:
            raise self._access.wrong(client, error) from None
        if (before := session_of(request.scope)) is not None:
            login.forget(before)
        response = _redirect(page)
        response.set_cookie(value=secret, **_cookie(request, "session"))
        return response


def _for_people(call: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The call with its errors as a page, for who looks at them in a browser."""

    async def answered(request: Request) -> Response:
        try:
            return await call(request)
        except TurnoutError as error:
            log.warning("a sign-in was refused: %s", error.message)
            if "text/html" not in request.headers.get("accept", ""):
                return error_response(error)
            nonce = secrets.token_urlsafe(16)
            body = _PAGE.format(nonce=nonce, message=html.escape(error.message), hint=html.escape(error.hint))
            policy = content_security_policy(f"'nonce-{nonce}'")
            headers = {"Cache-Control": "no-store", "Content-Security-Policy": policy}
            return HTMLResponse(body, error.status, headers=headers)

    return answered


def _base(request: Request) -> str:
    """The address of this server as the browser knows it; a proxy that is trusted says whether it is https."""
    base = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
    if Site.parse(base) is None:
        raise TurnoutError("bad_request", "the request has no Host header that can be used", "let the proxy pass it on")
    return base


def _cookie(request: Request, kind: str) -> dict[str, Any]:
    """The attributes of a cookie that only this server sees, and that only its own pages and links send."""
    secure = request.scope["scheme"] == "https"
    return {"key": cookie_name(request.scope, kind), "path": "/", "httponly": True, "samesite": "lax", "secure": secure}


def _redirect(url: str) -> Response:
    return RedirectResponse(url, 303, headers={"Cache-Control": "no-store"})
