"""The people of an identity provider: whose tokens are taken, and who has signed in.

`access.py` decides what they may do. Only a server with `access.oidc` imports this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from turnout.config.server import OidcSettings
from turnout.issuer.people import Person, person_of
from turnout.issuer.provider import LEEWAY_SECONDS, IdentityProvider


class Login:
    """Who the identity provider lets in. Only the event loop calls it."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        self.provider = IdentityProvider(settings, clock)

    def bearer(self, token: str) -> Person:
        """The owner of a bearer token; TurnoutError where it is refused. `prepare` of the provider comes before."""
        return person_of(self.provider.bearer(token), self.provider.settings.roles)

    def is_over(self, person: Person) -> bool:
        """Whether the token of somebody has expired."""
        return self.provider.clock() > person.until + LEEWAY_SECONDS
