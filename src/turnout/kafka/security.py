"""Kafka client properties, made from one description of a cluster for the Java client and for librdkafka.

Both clients get the same address and the same identity. Connecting is left to the clients' owners.
"""

import re
from collections.abc import Mapping

from turnout.config import AuthSettings, KafkaSettings

# The Java names of raw properties that librdkafka has under the same name and with the same values. The
# others, such as key stores and JAAS, mean nothing to it.
SHARED_PROPERTIES = frozenset(
    {
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
_HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
_SECRET_NAME = re.compile(r"password|secret|jaas|credential|ssl\.keystore\.key|ssl\.key\.pem|token$", re.IGNORECASE)
_MASK = "********"


def java_properties(kafka: KafkaSettings) -> dict[str, str]:
    """The properties of Kafka's Java client; raw ones are passed as they are."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers, **kafka.properties}
    auth = kafka.auth
    if auth is None:
        return properties
    properties["security.protocol"] = auth.protocol.value
    if auth.ca_file is not None:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(auth.ca_file)}
    if auth.mechanism is not None:
        properties |= {"sasl.mechanism": auth.mechanism.value, "sasl.jaas.config": _jaas(auth)}
    return properties


def librdkafka_properties(kafka: KafkaSettings) -> dict[str, str]:
    """The properties of librdkafka's clients; of the raw ones only those that it shares."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    properties |= {name: value for name, value in kafka.properties.items() if name in SHARED_PROPERTIES}
    if _HOSTNAME_CHECK in kafka.properties:
        # Java switches the check off with an empty text, librdkafka with this word.
        properties[_HOSTNAME_CHECK] = kafka.properties[_HOSTNAME_CHECK] or "none"
    auth = kafka.auth
    if auth is None:
        return properties
    properties["security.protocol"] = auth.protocol.value
    if auth.ca_file is not None:
        properties["ssl.ca.location"] = str(auth.ca_file)
    if auth.mechanism is not None:
        username, password = _identity(auth)
        properties |= {
            "sasl.mechanism": auth.mechanism.value,
            "sasl.username": username,
            "sasl.password": password,
        }
    return properties


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without their secrets, for logs."""
    return {name: _MASK if _SECRET_NAME.search(name) else value for name, value in properties.items()}


def _identity(auth: AuthSettings) -> tuple[str, str]:
    return auth.username or "", auth.password.get_secret_value() if auth.password else ""


def _jaas(auth: AuthSettings) -> str:
    module = "plain.PlainLoginModule" if auth.mechanism == "PLAIN" else "scram.ScramLoginModule"
    username, password = _identity(auth)
    return (
        f"org.apache.kafka.common.security.{module} required "
        f"username={_jaas_quoted(username)} password={_jaas_quoted(password)};"
    )


def _jaas_quoted(text: str) -> str:
    """Text in JAAS quotes; Java's tokenizer takes backslash escapes, and ends a quote at a line break."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
