"""The embedded broker with security as in production: Kafka's listeners, users and rights, on one node.

It owns the authority and certificates, the users, and the ports of the listeners. Clients get their `kafka` settings
from it as a document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from certificates import DAYS, Authority, Certificate
from turnout.config.auth import ALLOWED_URLS, Mechanism, Protocol
from turnout.kafka.security import jaas_quoted
from turnout.local.broker import HOST, EmbeddedBroker, free_port
from turnout.testing import patience

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SUPER_USERS = ("broker", "admin")
_ADMIN, _CONTROLLER = "ADMIN", "CONTROLLER"
_NAMES = (HOST, "localhost")
_LOGIN = "org.apache.kafka.common.security"
_SCRAM = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


@dataclass(frozen=True, slots=True)
class Listener:
    """The security of a port of the broker."""

    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism | None = None
    client_certificate: bool = False
    """With TLS: whether clients need a certificate of the broker's authority, whose name is then their user."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that an OAUTHBEARER listener accepts; `reauthenticate_ms` limits the use of a token."""

    jwks_endpoint: str
    issuer: str
    audience: str
    reauthenticate_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class Security:
    """The listeners by name, the users, and whether rights are checked.

    `users` are names and passwords for PLAIN and SCRAM. With `acls`, only what a rule allows is allowed; a client with
    a certificate of one of SUPER_USERS may do everything.
    """

    listeners: Mapping[str, Listener]
    users: Mapping[str, str] = field(default_factory=dict)
    tokens: Tokens | None = None
    acls: bool = True


class SecuredBroker:
    """A broker with `security` in the folder `data`; certificates are issued on demand, and ports are reused."""

    def __init__(
        self,
        data: Path,
        security: Security,
        properties: Mapping[str, str] = {},
        *,
        classpath: Sequence[Path] = (),
    ) -> None:
        data = data.absolute()
        self.security = security
        self.authority = Authority(data / "security")
        self._certificates = {name: self._issued(name, data / "security") for name in SUPER_USERS}
        self._ports = _kept_ports(data / "security" / "ports.json", [*security.listeners, _ADMIN, _CONTROLLER])
        self._admin: AdminClient | None = None
        tokens = security.tokens
        self.broker = EmbeddedBroker(
            data / "kafka",
            self._ports[_ADMIN],
            {**self._properties(), **properties},
            client=self._admin_properties(),
            java_options=[f"-D{ALLOWED_URLS}={tokens.jwks_endpoint}"] if tokens else [],
            classpath=classpath,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.stop()

    def start(self) -> None:
        """Start the broker, and create its SCRAM users."""
        self.broker.start()
        if any(listener.mechanism in _SCRAM for listener in self.security.listeners.values()):
            for user, password in self.security.users.items():
                self.set_password(user, password)

    def stop(self) -> None:
        self.broker.stop()

    def address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def admin(self) -> AdminClient:
        """Return the admin client; it is created once, because a request ends with its client."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(self.admin_properties())
        return self._admin

    def admin_properties(self) -> dict[str, Any]:
        """Return librdkafka's properties of an admin client."""
        return {"bootstrap.servers": self.address(_ADMIN), "log_level": "0", **self._admin_properties()}

    def kafka(self, listener: str, user: str = "") -> dict[str, Any]:
        """Return the `kafka` section of a turnout.yaml for a listener, with secrets in files."""
        kind = self.security.listeners[listener]
        auth: dict[str, Any] = {"protocol": kind.protocol.value}
        if kind.protocol.endswith("SSL"):
            auth["ca_file"] = str(self.authority.ca_file)
        if kind.client_certificate:
            shown = self.authority.issue(user)
            auth |= {"certificate_file": str(shown.file), "key_file": str(shown.key_file)}
        if kind.mechanism in (Mechanism.PLAIN, *_SCRAM):
            assert kind.mechanism is not None
            secret = self.authority.ca_file.with_name(f"{user}.password")
            secret.touch(mode=0o600)
            secret.write_text(self.security.users[user], encoding="utf-8")
            auth |= {"mechanism": kind.mechanism.value, "username": user, "password": {"file": str(secret)}}
        return {"bootstrap_servers": self.address(listener), "auth": auth}

    def renew_certificate(self, listener: str, days: int = DAYS) -> None:
        """Give a listener a new certificate for new connections; with `days` 0 it is expired."""
        kinds = _admin_types()
        made = self.authority.issue("broker", _NAMES, days)
        changes = [
            kinds.ConfigEntry(
                f"listener.name.{listener.lower()}.{name}", value, incremental_operation=kinds.AlterConfigOpType.SET
            )
            for name, value in broker_certificate(made).items()
        ]
        resource = kinds.ConfigResource(kinds.ConfigResource.Type.BROKER, "1", incremental_configs=changes)
        self.admin().incremental_alter_configs([resource])[resource].result(patience())

    def set_password(self, user: str, password: str) -> None:
        """Create a SCRAM user, or change its password."""
        kinds = _admin_types()
        for mechanism in (kinds.ScramMechanism.SCRAM_SHA_256, kinds.ScramMechanism.SCRAM_SHA_512):
            info = kinds.ScramCredentialInfo(mechanism, 4096)
            asked = kinds.UserScramCredentialUpsertion(user, info, password.encode())
            self.admin().alter_user_scram_credentials([asked])[user].result(patience())  # Kafka accepts one at a time

    def allow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """Allow a user operations (READ, WRITE, DESCRIBE ...) on a TOPIC or a GROUP; `*` is any name."""
        for made in self.admin().create_acls(self._rules(user, resource, name, operations, "AclBinding")).values():
            made.result(patience())

    def disallow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """Remove rights that `allow` added."""
        rules = self._rules(user, resource, name, operations, "AclBindingFilter")
        for done in self.admin().delete_acls(rules).values():
            done.result(patience())

    @staticmethod
    def _rules(user: str, resource: str, name: str, operations: Iterable[str], kind: str) -> list[Any]:
        kinds = _admin_types()
        on = (kinds.ResourceType[resource], name, kinds.ResourcePatternType.LITERAL)
        allowed = kinds.AclPermissionType.ALLOW
        return [
            getattr(kinds, kind)(*on, f"User:{user}", "*", kinds.AclOperation[operation], allowed)
            for operation in operations
        ]

    def _issued(self, name: str, folder: Path) -> Certificate:
        there = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
        return there if there.file.exists() else self.authority.issue(name, _NAMES)

    def _admin_properties(self) -> dict[str, str]:
        own = self._certificates["admin"]
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.ca_file),
            "ssl.certificate.location": str(own.file),
            "ssl.key.location": str(own.key_file),
        }

    def _properties(self) -> dict[str, str]:
        tls = Listener(Protocol.SSL, client_certificate=True)
        listeners = {**self.security.listeners, _ADMIN: tls, _CONTROLLER: tls}
        places = {name: f"{name}://{HOST}:{self._ports[name]}" for name in listeners}
        properties = {
            "listeners": ",".join(places.values()),
            "advertised.listeners": ",".join(place for name, place in places.items() if name != _CONTROLLER),
            "listener.security.protocol.map": ",".join(f"{n}:{listener.protocol}" for n, listener in listeners.items()),
            "inter.broker.listener.name": _ADMIN,
            "controller.quorum.voters": f"1@{HOST}:{self._ports[_CONTROLLER]}",
            # The user is the name of the certificate without `CN=`.
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "super.users": ";".join(f"User:{name}" for name in SUPER_USERS),
        }
        if self.security.acls:
            properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        for name, listener in listeners.items():
            rendered = {**self._tls(listener), **self._sasl(listener)}
            properties |= {f"listener.name.{name.lower()}.{key}": value for key, value in rendered.items()}
        return properties

    def _tls(self, listener: Listener) -> dict[str, str]:
        if not listener.protocol.endswith("SSL"):
            return {}
        return {
            **broker_certificate(self._certificates["broker"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca_file),
            "ssl.client.auth": "required" if listener.client_certificate else "none",
        }

    def _sasl(self, listener: Listener) -> dict[str, str]:
        mechanism = listener.mechanism
        if mechanism is None:
            return {}
        under = mechanism.value.lower()
        rendered = {"sasl.enabled.mechanisms": mechanism.value}
        if mechanism is Mechanism.PLAIN:
            users = "".join(f" user_{name}={jaas_quoted(word)}" for name, word in self.security.users.items())
            rendered[f"{under}.sasl.jaas.config"] = f"{_LOGIN}.plain.PlainLoginModule required{users};"
        elif mechanism in _SCRAM:
            rendered[f"{under}.sasl.jaas.config"] = f"{_LOGIN}.scram.ScramLoginModule required;"
        else:
            rendered |= self._oauth(under)
        return rendered

    def _oauth(self, under: str) -> dict[str, str]:
        tokens = self.security.tokens
        if tokens is None:
            raise ValueError("an OAUTHBEARER listener needs Security.tokens")
        return {
            f"{under}.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            f"{under}.sasl.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{under}.sasl.oauthbearer.jwks.endpoint.url": tokens.jwks_endpoint,
            f"{under}.sasl.oauthbearer.expected.issuer": tokens.issuer,
            f"{under}.sasl.oauthbearer.expected.audience": tokens.audience,
            f"{under}.connections.max.reauth.ms": str(tokens.reauthenticate_ms),
        }


def broker_certificate(certificate: Certificate) -> dict[str, str]:
    """Return the properties of a broker for its certificate, without the listener's prefix.

    They contain the PEM text, because Java needs key and certificate in one file, and they are in two.
    """
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.file.read_text(),
        "ssl.keystore.key": certificate.key_file.read_text(),
    }


def _admin_types() -> Any:
    """Return the client's module, which does not export its classes to type checkers."""
    from confluent_kafka import admin

    return admin


def _kept_ports(file: Path, names: Iterable[str]) -> dict[str, int]:
    """Return a port for each name, the same as last time, because clients know it."""
    kept: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    ports = {name: kept.get(name) or free_port() for name in names}
    file.write_text(json.dumps(ports))
    return ports
