"""The client of identity providers: what it makes of answers that are too large, too deep, too slow, or elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from joserfc.jwk import ECKey

from scripted_registry import Scripted, scripted
from turnout.config.server import OidcSettings
from turnout.errors import TurnoutError
from turnout.issuer import provider
from turnout.issuer.provider import IdentityProvider

DISCOVERY = "/.well-known/openid-configuration"


def metadata(script: Scripted) -> Mapping[str, Any]:
    roles = {"claim": "groups", "viewer": ["staff"]}
    given = {"issuer": script.url, "client_id": "turnout", "client_secret": "secret", "roles": roles}
    return asyncio.run(IdentityProvider(OidcSettings.model_validate(given)).metadata())


def described(script: Scripted, **more: Any) -> tuple[int, dict[str, Any]]:
    """The answer with the addresses of the provider."""
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    return 200, {"issuer": script.url, **dict.fromkeys(names, f"{script.url}/keys"), **more}


def endless(handler: Any) -> None:
    for _ in range(100):  # or until the client has gone
        handler.wfile.write(b" " * 1_000_000)


def test_addresses_and_keys_are_read() -> None:
    key = ECKey.generate_key("P-256").as_dict(private=False)
    with scripted({"/keys": (200, {"keys": [key]})}) as script:
        script.answers[DISCOVERY] = described(script)
        assert metadata(script)["token_endpoint"] == f"{script.url}/keys"


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(endless, "gave an answer of more than 1,000,000 bytes", id="endless"),
        pytest.param({"keys": ["x" * 1_000_001]}, "gave an answer of more than 1,000,000 bytes", id="large"),
        pytest.param("[" * 100_000, "answered 200 to", id="deep"),
        pytest.param("9" * 10_000, "answered 200 to", id="a long number"),
    ],
)
def test_answer_that_is_too_large_or_too_deep_is_an_error(path: str, answer: Any, said: str) -> None:
    with scripted({}) as script:
        script.answers |= {DISCOVERY: described(script), path: (200, answer)}
        with pytest.raises(TurnoutError, match=said) as caught:
            metadata(script)
    assert caught.value.code == "issuer_unreachable"


def test_answer_ends_after_a_time_however_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_ANSWER_SECONDS", 0.5)
    over = threading.Event()

    def drip(handler: Any) -> None:
        for _ in range(500):  # without a bound of time the whole answer comes, and is no JSON
            handler.wfile.write(b" ")
            if over.wait(0.02):
                return

    with scripted({DISCOVERY: (200, drip)}) as script, pytest.raises(TurnoutError, match="cannot be reached: Timeout"):
        metadata(script)
    over.set()


def test_redirect_is_not_followed() -> None:
    with scripted({DISCOVERY: (307, "")}) as script, pytest.raises(TurnoutError, match="answered 307"):
        metadata(script)
    assert len(script.heard) == 1
