"""What the claims of a checked token say of its owner: who it is, which role that gives, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.config.config_errors import describe
from turnout.config.server import Role, RoleSettings
from turnout.errors import TurnoutError

Claims = Mapping[str, Any]
NEW_TOKEN = "get a new one from the issuer of access.oidc"

NAMES = ("name", "preferred_username", "email")
"""The claims that may have somebody's name."""

_MOST_CHARACTERS = 80
_MOST_OF_SUBJECT = 255
_FAR_AWAY = 2**53


class ForgedTokenError(TurnoutError):
    """A token that the issuer has not signed, as far as one can see."""

    def __init__(self, reason: str) -> None:
        super().__init__("unauthorized", f"the token is not known here: {reason}", NEW_TOKEN)


@dataclass(frozen=True, slots=True)
class Person:
    """The owner of a token: a person, or a program with a client of its own."""

    subject: str
    name: str
    role: Role
    until: float
    """When the token expires, in seconds since 1970."""

    @property
    def requester(self) -> str:
        """The text that history and logs have. Names are chosen freely, so the subject always stands behind."""
        return f"{self.name} ({self.subject})"


def person_of(claims: Claims, roles: RoleSettings) -> Person:
    """The owner of a token with these claims; TurnoutError where it has no role."""
    subject = claims["sub"]
    if not subject or len(subject) > _MOST_OF_SUBJECT or not subject.isprintable():
        raise TurnoutError("unauthorized", "the token has a subject ('sub') that cannot be shown", NEW_TOKEN)
    given = (claims.get(name) for name in NAMES)
    name = next((plain for text in given if isinstance(text, str) and (plain := _plain(text))), subject)
    return Person(subject, name, _role(claims, roles), float(min(claims["exp"], _FAR_AWAY)))


def claim_at(claims: Claims, path: str) -> Any:
    """A claim by its name, or by names with dots for one inside another; None where there is none."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _role(claims: Claims, roles: RoleSettings) -> Role:
    given = claim_at(claims, roles.claim)
    values = [given] if isinstance(given, str) else given
    if values is None:
        reason = f"there is no claim '{roles.claim}'"
    elif not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        reason = f"the claim '{roles.claim}' must be text or a list of texts, got {describe(given)}"
    elif set(values) & set(roles.operator):
        return Role.OPERATOR
    elif set(values) & set(roles.viewer):
        return Role.VIEWER
    else:
        reason = f"no value of the claim '{roles.claim}' gives a role"
    hint = "access.oidc.roles of this server says which values do; the issuer gives people these values"
    raise TurnoutError("forbidden", f"you have no role on this server: {reason}", hint)


def _plain(text: str) -> str:
    """A name without signs that could be taken for another subject, or for another line."""
    signs = (sign for sign in text if sign.isprintable() and sign not in "()")
    return " ".join("".join(signs).split())[:_MOST_CHARACTERS]
