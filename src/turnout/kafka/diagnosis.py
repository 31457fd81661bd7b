"""Why Kafka cannot be used, in words for people: one cause with its remedy, from what a client said or what was seen.

Knows the words of both clients, Java's and librdkafka's. `probe.py` tries the connection itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnout.config import KafkaSettings
from turnout.config.secrets import masked
from turnout.kafka.hidden_texts import secrets_of


@dataclass(frozen=True, slots=True)
class Cause:
    """Why Kafka cannot be used: a code for programs, a text and a remedy for people."""

    code: str
    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}"


CREDENTIALS = Cause(
    "wrong_credentials",
    "the broker refused the user name or the password",
    "correct auth.username and auth.password, and see that auth.mechanism is the user's",
)
TOKEN_REFUSED = Cause(
    "token_refused_by_broker",
    "the broker refused the token",
    "check that its issuer, audience and scope are those that the broker expects (auth.oauth)",
)
CLIENT_CERTIFICATE = Cause(
    "client_certificate_refused",
    "the broker did not accept Turnout's client certificate: it has none, it has expired, or its authority is unknown",
    "give a valid one with auth.certificate_file and auth.key_file, or auth.keystore_file",
)
EXPIRED = Cause(
    "certificate_expired",
    "the broker's certificate has expired",
    "have it renewed on the broker; no setting of Turnout helps",
)
UNTRUSTED = Cause(
    "certificate_not_trusted",
    "the broker's certificate is of an authority that is not trusted",
    "give the PEM file of that authority as auth.ca_file",
)
WRONG_NAME = Cause(
    "certificate_of_another_name",
    "the broker's certificate is not for the name in bootstrap_servers",
    "use the name that the certificate has, or set auth.verify_hostname: false",
)
NO_SUCH_NAME = Cause(
    "name_not_resolved",
    "the name of the broker is not known",
    "correct bootstrap_servers, or see that this machine can look up names of that network",
)
NOT_RUNNING = Cause(
    "connection_refused",
    "nothing listens at that address",
    "start the broker, or correct the port in bootstrap_servers",
)
TOPIC_DENIED = Cause(
    "topic_denied",
    "the topic may not be read with Turnout's Kafka identity",
    "grant it Describe and Read on the topic, or name another topic",
)
GROUP_DENIED = Cause(
    "group_denied",
    "the consumer group may not be used with Turnout's Kafka identity",
    "Turnout joins no group, so nothing is lost; grant Read on the group to end the broker's complaints",
)

NOT_BY_WAITING = (CLIENT_CERTIFICATE, EXPIRED, UNTRUSTED, WRONG_NAME)
"""Causes that another try a moment later does not remove."""

# The first match counts, so specific patterns come first.
_WORDS = (
    (r"group.?authorization|not authorized to access group", GROUP_DENIED),
    (r"topic.?authorization|not authorized to access topics", TOPIC_DENIED),
    (r"invalid_token|error validating the access token|\{\"status\":\"invalid", TOKEN_REFUSED),
    (r"invalid credentials with SASL mechanism OAUTHBEARER", TOKEN_REFUSED),
    (r"invalid credentials|invalid username or password", CREDENTIALS),
    (r"certificate has expired|validity check failed|CertificateExpired|NotAfter", EXPIRED),
    (r"alert (bad.certificate|certificate.(unknown|required|expired)|unknown.ca)", CLIENT_CERTIFICATE),
    (r"alert: (bad_certificate|certificate_(unknown|required|expired)|unknown_ca)", CLIENT_CERTIFICATE),
    (r"hostname mismatch|IP address mismatch|No subject alternative|No name matching", WRONG_NAME),
    (r"failed to resolve|no resolvable bootstrap|UnknownHostException", NO_SUCH_NAME),
    (r"connection refused", NOT_RUNNING),
    (r"PKIX path|certificate verify failed|could not be verified", UNTRUSTED),
)
_MECHANISMS = re.compile(r"supported mechanisms: ([A-Z0-9, -]+)|enabled mechanisms are \[([^\]]*)\]")


def cause_in(words: str) -> Cause | None:
    """The cause that a client's error text names; None where it names none."""
    if "mechanism" in words and (found := _MECHANISMS.search(words)):
        has = (found[1] or found[2]).strip()
        text = f"the broker does not have this SASL mechanism (it has: {has})"
        return Cause("wrong_mechanism", text, "choose another auth.mechanism")
    return next((cause for pattern, cause in _WORDS if re.search(pattern, words, re.IGNORECASE)), None)


def without_secrets(text: str, kafka: KafkaSettings) -> str:
    """A client's words with every secret of its settings masked, and without a stack trace."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*(at |\.\.\. \d+ more|Caused by:)", line)]
    text = "\n".join(lines) if lines else text
    return masked(text, secrets_of(kafka))
