"""The `auth` block of a Kafka cluster as types: how Turnout's clients prove who they are, and whom they trust.

Which of its settings belong together is `auth_checks.py`; `kafka/security.py` renders it for each client.
"""

import re
import ssl
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property without which Kafka's Java client refuses to ask a token endpoint."""


class Protocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Mechanism(StrEnum):
    """The SASL mechanisms that both of Turnout's Kafka clients can use."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


def _url(example: str, instead: str) -> AfterValidator:
    """A URL without a user in it: it goes on command lines and into messages, where no secret may be."""

    def check(text: str) -> str:
        try:
            parts = urlsplit(text)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            good = False
        if not good or re.search(r"[\s,\"'\\]", text):
            raise ValueError(f"must be a URL such as {example}; correct it")
        if "@" in parts.netloc:
            raise ValueError(f"must not have a user or a password in it; use {instead}")
        return text

    return AfterValidator(check)


def _extensions(given: dict[str, str]) -> dict[str, str]:
    """Refuse what RFC 7628 or a client cannot send: librdkafka takes all extensions as one text with commas."""
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z]+", name) or name == "auth":
            raise ValueError(f"the name {name!r} must be letters only, and not 'auth'; correct it")
        if not re.fullmatch(r"[ -+\--~]*", value) or value != value.strip():
            raise ValueError(f"the value of {name!r} must be plain ASCII, without commas or outer spaces; correct it")
    return given


def located(path: Path, info: ValidationInfo) -> Path:
    """An absolute path; a relative one begins at the folder of the file, which is the context of a validation."""
    return path if info.context is None else (info.context / path.expanduser()).resolve()


Located = Annotated[Path, AfterValidator(located)]


class Section(BaseModel):
    """A part of the configuration: unknown settings are refused, and errors show no input, which may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class OAuthSettings(Section):
    """Where tokens come from: an OpenID provider's token endpoint, by the client credentials grant."""

    token_endpoint: Annotated[str, _url("https://login.example.com/oauth2/token", "client_id and client_secret")]
    client_id: str
    client_secret: SecretStr
    scope: str | None = None
    extensions: Annotated[dict[str, str], AfterValidator(_extensions)] = Field(default_factory=dict)
    ca_file: Located | None = None

    def token_request(self) -> dict[str, Any]:
        """A request for a token by the client credentials grant, as the arguments of `httpx.post`."""
        return {
            "url": self.token_endpoint,
            "data": {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {}),
            "auth": (self.client_id, self.client_secret.get_secret_value()),
            "verify": ssl.create_default_context(cafile=self.ca_file),
        }


class AuthSettings(Section):
    """How Turnout's Kafka clients prove who they are, and how they know the brokers."""

    protocol: Protocol
    mechanism: Mechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    oauth: OAuthSettings | None = None
    ca_file: Located | None = None
    truststore_file: Located | None = None
    truststore_password: SecretStr | None = None
    certificate_file: Located | None = None
    key_file: Located | None = None
    keystore_file: Located | None = None
    keystore_password: SecretStr | None = None
    key_password: SecretStr | None = None
    verify_hostname: bool = True

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")


class RegistryAuthSettings(Section):
    """How Turnout proves who it is to a schema registry, and how it knows the registry; names as for Kafka."""

    username: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    oauth: OAuthSettings | None = None
    ca_file: Located | None = None
    certificate_file: Located | None = None
    key_file: Located | None = None
    key_password: SecretStr | None = None


class RegistrySettings(Section):
    """A schema registry that speaks Confluent's REST interface: where it is and how to get in."""

    url: Annotated[
        str,
        _url("https://registry.example.com", "auth.username and auth.password"),
        AfterValidator(lambda url: url.rstrip("/")),
    ]
    auth: RegistryAuthSettings | None = None
