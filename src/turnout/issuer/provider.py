"""The identity provider: its discovery document and keys, its token endpoint, and the check of what it has signed.

Only the event loop calls it. Nothing is asked for before it is needed, so that a server starts without it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from joserfc import jws, jwt
from joserfc.errors import (
    BadSignatureError,
    ClaimError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import KeySet

from turnout.config.config_errors import describe
from turnout.config.server import OidcSettings, is_protected
from turnout.errors import ConfigError, TurnoutError
from turnout.issuer.people import NEW_TOKEN, Claims, ForgedTokenError

log = logging.getLogger(__name__)

LEEWAY_SECONDS = 30
"""How far the clocks of the issuer and of this machine may be apart."""

# By keys that the issuer keeps to itself: no `none`, and no HMAC, whose key would be the public one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
# ID tokens and access tokens; not, for one, those of a logout.
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_ANSWER_SECONDS = 10.0
"""One answer in all, however slowly it comes."""
_MOST_BYTES = 1_000_000
"""Bytes of an answer: keys and claims have a few thousand."""
_KEYS_SECONDS = 3600.0
# Between two requests for keys, whatever comes: anybody can send a token with a made-up key.
_PAUSE_SECONDS = 20.0
_WRONG = {
    "iss": "it is from another issuer",
    "aud": "it is for another audience",
    "azp": "it was issued to another client",
    "exp": "it has expired",
    "nbf": "it is not valid yet; the clocks may differ",
    "iat": "it was issued in the future; the clocks may differ",
    "nonce": "it belongs to another sign-in",
}


class IdentityProvider:
    """The issuer of `access.oidc`."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca_file)
        except OSError as error:
            raise ConfigError([f"access.oidc.ca_file: cannot be read ({error.strerror}); check the path"]) from error
        self._renewing = asyncio.Lock()
        self._metadata: Mapping[str, Any] = {}
        self._keys = KeySet([])
        self._fetched = self._tried = float("-inf")

    # -- what it is

    async def metadata(self) -> Mapping[str, Any]:
        """The discovery document; TurnoutError `issuer_unreachable` where it cannot be had."""
        if not self._metadata:
            await self._renew()
        return self._metadata

    async def prepare(self, token: str) -> None:
        """Fetch keys before a check wants them: there is none, they are old, or the token's is not among them."""
        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid")
        except Exception:  # the check says what is wrong with it
            return
        unknown = not self._keys or (kid is not None and kid not in [key.kid for key in self._keys])
        # One request that waits for an issuer that hangs is enough.
        old = self.clock() - self._fetched > _KEYS_SECONDS and not self._renewing.locked()
        if unknown or old:
            try:
                await self._renew()
            except TurnoutError as error:
                log.warning("%s; %s", error.message, error.hint)

    async def _renew(self) -> None:
        async with self._renewing:
            if 0 <= self.clock() - self._tried < _PAUSE_SECONDS:
                if self._keys:
                    return
                raise self._unusable("did not answer a moment ago")
            self._tried = self.clock()
            issuer = self.settings.issuer
            metadata = await self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if metadata.get("issuer") != issuer:
                raise self._unusable(f"calls itself {describe(metadata.get('issuer'))}; set access.oidc.issuer to that")
            for name in _ENDPOINTS:
                if not is_protected(str(metadata.get(name))):
                    raise self._unusable(f"has no {name} that can be used, got {describe(metadata.get(name))}")
            try:
                keys = KeySet.import_key_set({"keys": (await self._fetch(metadata["jwks_uri"]))["keys"]})
            except (JoseError, ValueError, TypeError, KeyError, AttributeError):
                raise self._unusable("has no keys that can be read") from None
            self._metadata, self._keys, self._fetched = metadata, keys, self._tried

    # -- what it has signed

    def bearer(self, token: str) -> Claims:
        """The claims of an access token that somebody sends; ForgedTokenError or TurnoutError where it is refused."""
        claims = self._signed(token)
        self._check(claims, {self.settings.client_id, *self.settings.audience})
        # An ID token proves to this server who signed in, and passes through addresses at a logout.
        if "nonce" in claims:
            raise _refused("it is an ID token, and an access token is required")
        return claims

    def signed_in(self, token: str, nonce: str, *, renewed: bool) -> Claims:
        """The claims of an ID token that the token endpoint gave; one that is `renewed` need not repeat the nonce."""
        claims, client = self._signed(token), self.settings.client_id
        self._check(claims, {client})
        audiences = claims["aud"]
        several = isinstance(audiences, list) and len(audiences) > 1
        if claims.get("azp", None if several else client) != client:
            raise _refused(_WRONG["azp"])
        if claims.get("nonce", nonce if renewed else None) != nonce:
            raise _refused(_WRONG["nonce"])
        return claims

    def _signed(self, token: str) -> dict[str, Any]:
        if not self._keys:
            raise self._unusable("did not give its keys")
        try:
            found = jwt.decode(token, self._keys, registry=_REGISTRY)
        except UnsupportedAlgorithmError:
            raise ForgedTokenError(f"it must be signed by one of {', '.join(_ALGORITHMS)}") from None
        except InvalidKeyIdError:
            raise ForgedTokenError("the issuer has no key of its 'kid'") from None
        except BadSignatureError:
            raise ForgedTokenError("its signature is wrong") from None
        except Exception:  # whatever a hostile text does to a library, it is not let in
            raise ForgedTokenError("it cannot be read") from None
        kind = found.header.get("typ")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise ForgedTokenError(f"it is of the type {describe(kind)}")
        return found.claims

    def _check(self, claims: dict[str, Any], audiences: set[str]) -> None:
        wanted: Any = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "values": sorted(audiences)},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }
        try:
            jwt.JWTClaimsRegistry(lambda: int(self.clock()), LEEWAY_SECONDS, **wanted).validate(claims)
        except MissingClaimError as error:
            raise _refused(f"it has no claim '{error.claim}'") from None
        except ClaimError as error:
            what = _WRONG.get(error.claim, "a claim is wrong")
            raise _refused(f"{what} ('{error.claim}' is {describe(claims[error.claim])})") from None

    # -- what it is asked for

    async def authorization_url(self, redirect: str, state: str, nonce: str, verifier: str, *, again: bool) -> str:
        """The address that a browser is sent to, to sign in."""
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": self.settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            **({"prompt": "login"} if again else {}),
        }
        return _with_query((await self.metadata())["authorization_endpoint"], asked)

    async def tokens(self, **asked: str) -> Mapping[str, Any]:
        """Ask the token endpoint, for a code or a refresh token; TurnoutError `sign_in_failed` where it refuses."""
        metadata, client, secret = await self.metadata(), self.settings.client_id, self.settings.client_secret
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" in methods:
            given: dict[str, Any] = {"auth": (quote(client, safe=""), quote(secret.get_secret_value(), safe=""))}
        else:
            asked |= {"client_id": client, "client_secret": secret.get_secret_value()}
            given = {}
        return await self._fetch(metadata["token_endpoint"], "POST", data=asked, **given)

    async def user_info(self, access_token: str, subject: str) -> Claims:
        """What the issuer tells of somebody beyond the ID token; nothing where it has no such call."""
        endpoint = str((await self.metadata()).get("userinfo_endpoint"))
        headers = {"Authorization": f"Bearer {access_token}"}
        told = await self._fetch(endpoint, headers=headers) if is_protected(endpoint) else {}
        return told if told.get("sub") == subject else {}

    async def logout_url(self, id_token: str, back: str) -> str:
        """The address that ends the issuer's own session, too, and leads back; `back` where it has none."""
        endpoint = str((await self.metadata()).get("end_session_endpoint"))
        asked = {"client_id": self.settings.client_id, "id_token_hint": id_token, "post_logout_redirect_uri": back}
        return _with_query(endpoint, asked) if is_protected(endpoint) else back

    async def _fetch(self, url: str, method: str = "GET", **asked: Any) -> Mapping[str, Any]:
        """The JSON object that an endpoint answers; its words are not repeated, since they could hold secrets."""
        content = bytearray()
        try:
            async with (
                asyncio.timeout(_ANSWER_SECONDS),
                httpx.AsyncClient(verify=self._tls, timeout=_ANSWER_SECONDS) as http,
                http.stream(method, url, **asked) as response,
            ):
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise self._unusable(f"gave an answer of more than {_MOST_BYTES:,} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._unusable(f"cannot be reached: {type(error).__name__}") from error
        answer = None
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(content)
        if isinstance(answer, dict) and response.status_code == 200:
            return answer
        if isinstance(answer, dict) and method == "POST" and 400 <= response.status_code < 500:
            raise sign_in_failed(f"the identity provider refused: {describe(answer.get('error'))}")
        raise self._unusable(f"answered {response.status_code} to {url.partition('?')[0]}")

    def _unusable(self, reason: str) -> TurnoutError:
        return TurnoutError(
            "issuer_unreachable",
            f"the issuer {self.settings.issuer} {reason}",
            "check that it runs, that this machine may reach it, and access.oidc; `turnout check` tries it",
        )


_REGISTRY = jws.JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)


def sign_in_failed(message: str) -> TurnoutError:
    """The refusal of a sign-in that can be begun anew."""
    return TurnoutError("sign_in_failed", message, "sign in again; if that does not help, ask whoever runs this server")


def _refused(reason: str) -> TurnoutError:
    return TurnoutError("unauthorized", f"the token is refused: {reason}", NEW_TOKEN)


def _with_query(endpoint: str, asked: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"
