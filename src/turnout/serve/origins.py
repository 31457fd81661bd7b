"""The sites whose pages may use the server: checks Host and Origin of a request, and adds the CORS headers.

Browsers set both, and no page can change them. Programs can send any, so this protects the visitors of pages and never
replaces a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from turnout.config.values import is_loopback
from turnout.errors import TurnoutError
from turnout.plan.filter_values import show

_PORTS = {"http": 80, "https": 443}
_PREFLIGHT_SECONDS = 600
_REQUEST_HEADERS = "Authorization, Content-Type, X-Turnout-Client"
_ANSWER_HEADERS = "X-Turnout-Generation, X-Turnout-Version, X-Turnout-Total, X-Turnout-Complete, Retry-After"


@dataclass(frozen=True, slots=True)
class Site:
    """An origin: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Site | None:
        try:
            parts = urlsplit(text)
            more = parts.path or parts.query or parts.fragment or "@" in parts.netloc
            if parts.scheme not in _PORTS or not parts.hostname or more:
                return None
            return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
        except ValueError:
            return None


class Origins:
    """The allowed sites; `rebound` says whether to refuse names that a site gave this machine."""

    def __init__(self, allowed: Iterable[str] = (), *, rebound: bool = True) -> None:
        self._allowed = frozenset(site for site in map(Site.parse, allowed) if site)
        self._names = frozenset(site.host for site in self._allowed)
        self._rebound = rebound

    def check_host(self, scope: Scope, headers: Headers) -> None:
        """Refuse, over loopback, a name that is not of this machine.

        A site can give its own name the address 127.0.0.1; its page then is of one origin with this server, and
        only the Host header shows it.
        """
        host = headers.get("host")
        server = scope.get("server")
        if host is None or not self._rebound or not (server and is_loopback(str(server[0]))):
            return
        site = Site.parse(f"http://{host}")
        if site and (is_loopback(site.host) or site.host in self._names):
            return
        raise TurnoutError(
            "foreign_host",
            f"Host {show(host)} is not a name of this machine",
            "use localhost or 127.0.0.1; behind a proxy, set access: or add its address to server.allowed_origins",
        )

    def check_origin(self, headers: Headers) -> None:
        """Refuse what another site's page sends by its visitor's browser. Programs send no Origin."""
        origin = headers.get("origin")
        if origin is None or self.allows(origin) or _is_own(origin, headers):
            return
        raise TurnoutError(
            "foreign_origin",
            f"Origin {show(origin)} is not this server",
            "open the page at the server's own address, or add the site to server.allowed_origins; "
            "programs leave the Origin header out",
        )

    def check_own(self, headers: Headers) -> None:
        """Refuse what may change something by a cookie, unless a page of this server says that it sent it."""
        origin = headers.get("origin")
        if origin is None or not _is_own(origin, headers):
            raise TurnoutError(
                "foreign_origin",
                "a session is valid for the server's own page only" + (f", not for {show(origin)}" if origin else ""),
                "other pages and programs send a token",
            )

    def check_site(self, headers: Headers) -> None:
        """Refuse what another site's page makes a browser read by an image or a script, which sends no Origin."""
        if headers.get("sec-fetch-site") != "cross-site" or self.allows(headers.get("origin")):
            return
        raise TurnoutError(
            "foreign_origin",
            "a page of another site asked for this (Sec-Fetch-Site: cross-site)",
            "open its address in a new tab, or add the site to server.allowed_origins",
        )

    def allows(self, origin: str | None) -> bool:
        return origin is not None and Site.parse(origin) in self._allowed

    def answer_headers(self, origin: str | None) -> dict[str, str]:
        """Headers that let an allowed site's page read an answer; without them the browser withholds it."""
        if not self._allowed:
            return {}
        if origin is None or not self.allows(origin):
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _ANSWER_HEADERS,
        }


PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": _REQUEST_HEADERS,
    "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
}
"""The answer to a browser that asks before it sends."""


def is_preflight(scope: Scope, headers: Headers) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "OPTIONS"
        and "origin" in headers
        and "access-control-request-method" in headers
    )


def _is_own(origin: str, headers: Headers) -> bool:
    """Whether a page of this server sent the request."""
    sender = Site.parse(origin)
    # By the scheme of the page, because a proxy in front may speak TLS for this server.
    return sender is not None and sender == Site.parse(f"{sender.scheme}://{headers.get('host', '')}")
