"""Which settings of an `auth` block go together, and which raw properties the block sets itself."""

from collections.abc import Iterator

from turnout.config.auth import AuthSettings, Mechanism, OAuthSettings, RegistrySettings
from turnout.config.config_errors import SettingPath

Faults = Iterator[tuple[SettingPath, str]]

_TLS_ONLY = ("ca_file", "truststore_file", "certificate_file", "keystore_file")
# A setting, and the one without which it means nothing.
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
            yield (*path, name), f"has no use without {needed}; add that or remove it"
    if not registry.url.startswith("https:"):
        for name in ("ca_file", "certificate_file"):
            if getattr(auth, name) is not None:
                yield (*path, name), "has no use with a url of http:; use https: or remove it"
    yield from _oauth(path, auth.oauth)


def _oauth(path: SettingPath, oauth: OAuthSettings | None) -> Faults:
    if oauth is not None and oauth.ca_file is not None and not oauth.token_endpoint.startswith("https:"):
        yield (*path, "oauth", "ca_file"), "has no use with a token_endpoint of http:; use https: or remove it"


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
            yield (*path, name), f"has no use with protocol {auth.protocol}; use SASL_SSL or remove it"
        elif given and name not in needed:
            yield (*path, name), f"has no use with mechanism {auth.mechanism}; remove it"


def _trust(path: SettingPath, auth: AuthSettings) -> Faults:
    given = {name for name in (*_TLS_ONLY, *_GOES_WITH) if getattr(auth, name) is not None}
    if not auth.tls:
        for name in sorted(given):
            yield (*path, name), f"has no use with protocol {auth.protocol}; use SSL or SASL_SSL, or remove it"
        return
    for name in sorted(given & _GOES_WITH.keys()):
        if not given.intersection(_GOES_WITH[name]):
            yield (*path, name), f"has no use without {' or '.join(_GOES_WITH[name])}; add that or remove it"
    for one, other in _EITHER:
        if {one, other} <= given:
            yield (*path, other), f"says the same as {one}; remove one of them"
    if "keystore_file" in given and auth.keystore_password is None:
        yield (*path, "keystore_password"), "is missing, and keystore_file needs it; add it"
