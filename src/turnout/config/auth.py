"""The `auth` block of a Kafka cluster and of a schema registry: how Turnout proves who it is, and whom it trusts.

Its types, which of its settings go together, and which raw properties it sets itself; `kafka/security.py` renders it
for each client.
"""

import re
import ssl
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from turnout.config.config_errors import Faults, SettingPath
from turnout.config.values import Located, Section

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property without which Kafka's Java client refuses to ask a token endpoint."""

_TLS_ONLY = ("ca_file", "truststore_file", "certificate_file", "keystore_file")
# A setting, and those of which it needs one.
_GOES_WITH = {
    "truststore_password": ("truststore_file",),
    "key_file": ("certificate_file",),
    "keystore_password": ("keystore_file",),
    "key_password": ("certificate_file", "keystore_file"),
}
# Two settings for the same thing.
_EITHER = (("ca_file", "truststore_file"), ("certificate_file", "keystore_file"))
_KEYSTORE = ("ssl.keystore.location", "ssl.keystore.type")
# The Java properties that a setting of the block becomes.
_RENDERED = {
    "mechanism": ("sasl.mechanism", "sasl.jaas.config"),
    "oauth": ("sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"),
    "ca_file": ("ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.type"),
    "truststore_file": ("ssl.truststore.location", "ssl.truststore.type"),
    "truststore_password": ("ssl.truststore.password",),
    "certificate_file": ("ssl.keystore.certificate.chain", "ssl.keystore.key", *_KEYSTORE),
    "keystore_file": _KEYSTORE,
    "keystore_password": ("ssl.keystore.password",),
    "key_password": ("ssl.key.password",),
}


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


def url(example: str, instead: str) -> AfterValidator:
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


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """TLS that trusts the authorities of a file, or else the system's; an OSError names a file that cannot be read."""
    if ca_file is not None:
        ca_file.open("rb").close()
    return ssl.create_default_context(cafile=ca_file)


class OAuthSettings(Section):
    """The OpenID provider that gives tokens, by the client credentials grant."""

    token_endpoint: Annotated[str, url("https://login.example.com/oauth2/token", "client_id and client_secret")]
    """The OpenID provider's token endpoint, a URL."""
    client_id: str
    """The client id at the provider."""
    client_secret: SecretStr
    """The client's secret, such as `"${NAME}"` or `{file: PATH}`."""
    scope: str | None = None
    """The scope to request; separate several by spaces."""
    extensions: Annotated[dict[str, str], AfterValidator(_extensions)] = Field(default_factory=dict)
    """SASL extensions for the broker, such as `{logicalCluster: lkc-1, identityPoolId: pool-1}`; for Confluent
    Cloud's registry `{logicalCluster: lsrc-1, identityPoolId: pool-1}`."""
    ca_file: Located | None = None
    """PEM file of the authority of the token endpoint; without it, the system's."""

    def token_request(self) -> dict[str, Any]:
        """A request for a token by the client credentials grant, as the arguments of `httpx.post`."""
        return {
            "url": self.token_endpoint,
            "data": {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {}),
            "auth": (self.client_id, self.client_secret.get_secret_value()),
            "verify": trusting(self.ca_file),
        }


class AuthSettings(Section):
    """How Turnout's Kafka clients prove who they are, and how they know the brokers."""

    protocol: Protocol
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    mechanism: Mechanism | None = None
    """With SASL: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`."""
    username: str | None = None
    """With PLAIN and SCRAM: the name of the user."""
    password: SecretStr | None = None
    """With PLAIN and SCRAM: the password, such as `"${NAME}"` or `{file: PATH}`."""
    oauth: OAuthSettings | None = None
    """With OAUTHBEARER: where tokens come from, by the client credentials grant."""
    ca_file: Located | None = None
    """With SSL: PEM file of the authority that signed the brokers' certificates; without it, the system's."""
    truststore_file: Located | None = None
    """Instead of `ca_file`: a JKS or PKCS#12 trust store."""
    truststore_password: SecretStr | None = None
    """The password of the trust store."""
    certificate_file: Located | None = None
    """With SSL: PEM file of Turnout's own certificate, with its chain."""
    key_file: Located | None = None
    """PEM file of the private key of that certificate, PKCS#8; without it, the key is in `certificate_file`."""
    keystore_file: Located | None = None
    """Instead of `certificate_file` and `key_file`: a PKCS#12 key store."""
    keystore_password: SecretStr | None = None
    """The password of the key store."""
    key_password: SecretStr | None = None
    """The password of the private key, where it has one."""
    verify_hostname: bool = True
    """With SSL: whether the brokers' certificates must be for the names that are connected to."""

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")


class RegistryAuthSettings(Section):
    """How Turnout proves who it is to a schema registry, and how it knows the registry; names as for Kafka."""

    username: str | None = None
    """The name of the user."""
    password: SecretStr | None = None
    """The password, such as `"${NAME}"` or `{file: PATH}`."""
    token: SecretStr | None = None
    """A bearer token, such as `"${NAME}"` or `{file: PATH}`."""
    oauth: OAuthSettings | None = None
    """A token of an OpenID provider, by the client credentials grant."""
    ca_file: Located | None = None
    """With https: PEM file of the authority that signed the registry's certificate; without it, the system's."""
    certificate_file: Located | None = None
    """With https: PEM file of Turnout's own certificate."""
    key_file: Located | None = None
    """PEM file of the private key of that certificate; without it, the key is in `certificate_file`."""
    key_password: SecretStr | None = None
    """The password of the private key, where it has one."""


class RegistrySettings(Section):
    """A schema registry that speaks Confluent's REST interface: where it is and how to get in."""

    url: Annotated[
        str,
        url("https://registry.example.com", "auth.username and auth.password"),
        AfterValidator(lambda url: url.rstrip("/")),
    ]
    """The address of the registry, with the path of Confluent's interface, such as `http://registry:8080/apis/ccompat/v7`."""
    auth: RegistryAuthSettings | None = None
    """How to authenticate, by one of `username`, `token` and `oauth`, and which certificates to trust."""


def rendered_names(auth: AuthSettings) -> list[str]:
    given = [name for name in _RENDERED if getattr(auth, name) is not None]
    hostname = [] if auth.verify_hostname else ["ssl.endpoint.identification.algorithm"]
    return ["security.protocol", *hostname, *dict.fromkeys(p for name in given for p in _RENDERED[name])]


def auth_faults(path: SettingPath, auth: AuthSettings) -> Faults:
    yield from _identity(path, auth)
    yield from _trust(path, auth)
    yield from _oauth(path, auth.oauth)


def registry_faults(path: SettingPath, registry: RegistrySettings) -> Faults:
    auth = registry.auth
    if auth is None:
        return
    path = (*path, "auth")
    ways = [name for name in ("username", "token", "oauth") if getattr(auth, name) is not None]
    for name in ways[1:]:
        yield (*path, name), f"is given beside {ways[0]}; remove one of them"
    if auth.username is not None and auth.password is None:
        yield (*path, "password"), "is missing, and username needs it; add it"
    for name in ("password", "key_file", "key_password"):
        needed = "username" if name == "password" else "certificate_file"
        if getattr(auth, name) is not None and getattr(auth, needed) is None:
            yield (*path, name), f"has no effect without {needed}; add that or remove it"
    if not registry.url.startswith("https:"):
        for name in ("ca_file", "certificate_file"):
            if getattr(auth, name) is not None:
                yield (*path, name), "has no effect with a url of http:; use https: or remove it"
    yield from _oauth(path, auth.oauth)


def _oauth(path: SettingPath, oauth: OAuthSettings | None) -> Faults:
    if oauth is not None and oauth.ca_file is not None and not oauth.token_endpoint.startswith("https:"):
        yield (*path, "oauth", "ca_file"), "has no effect with a token_endpoint of http:; use https: or remove it"


def _identity(path: SettingPath, auth: AuthSettings) -> Faults:
    needed: tuple[str, ...] = ()
    if auth.sasl:
        oauth = auth.mechanism is Mechanism.OAUTHBEARER
        needed = ("mechanism", "oauth") if oauth else ("mechanism", "username", "password")
    for name in ("mechanism", "username", "password", "oauth"):
        given = getattr(auth, name) is not None
        if name in needed and not given:
            by = f"mechanism {auth.mechanism}" if auth.mechanism else f"protocol {auth.protocol}"
            yield (*path, name), f"is missing, and {by} needs it; add it"
        elif given and not auth.sasl:
            yield (*path, name), f"has no effect with protocol {auth.protocol}; use SASL_SSL or remove it"
        elif given and name not in needed:
            yield (*path, name), f"has no effect with mechanism {auth.mechanism}; remove it"


def _trust(path: SettingPath, auth: AuthSettings) -> Faults:
    given = {name for name in (*_TLS_ONLY, *_GOES_WITH) if getattr(auth, name) is not None}
    if not auth.tls:
        for name in sorted(given):
            yield (*path, name), f"has no effect with protocol {auth.protocol}; use SSL or SASL_SSL, or remove it"
        return
    for name in sorted(given & _GOES_WITH.keys()):
        if not given.intersection(_GOES_WITH[name]):
            yield (*path, name), f"has no effect without {' or '.join(_GOES_WITH[name])}; add that or remove it"
    for one, other in _EITHER:
        if {one, other} <= given:
            yield (*path, other), f"says the same as {one}; remove one of them"
    if "keystore_file" in given and auth.keystore_password is None:
        yield (*path, "keystore_password"), "is missing, and keystore_file needs it; add it"
