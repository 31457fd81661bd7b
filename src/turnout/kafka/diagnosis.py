"""Why Kafka cannot be used, in words for people: one cause with its remedy, from what a client said or what was seen.

Knows the words of both clients, Java's and librdkafka's. Clients often say only that they could not connect; then the
steps of a connection are tried without a client (name, port, TLS, token endpoint), each for a bounded time.
"""

import re
import socket
import ssl
from dataclasses import dataclass, replace

import httpx

from turnout.config import KafkaSettings
from turnout.config.auth import AuthSettings, OAuthSettings
from turnout.config.secrets import masked, secrets_of
from turnout.errors import TurnoutError
from turnout.kafka.security import revealed, trusted

SECONDS = 3.0
# How long a broker gets to complain about a client's certificate, which in TLS 1.3 comes after the handshake.
_COMPLAINT_SECONDS = 0.5
# OpenSSL's numbers for why a certificate was not accepted.
_EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 10, 62, 64


@dataclass(frozen=True, slots=True)
class Cause:
    """Why Kafka cannot be used, and what to do."""

    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}"


CREDENTIALS = Cause(
    "the broker refused the user name or the password",
    "correct auth.username and auth.password, and check that auth.mechanism is that of the user",
)
TOKEN_REFUSED = Cause(
    "the broker refused the token",
    "check that its issuer, audience and scope are those that the broker expects (auth.oauth)",
)
CLIENT_CERTIFICATE = Cause(
    "the broker did not accept Turnout's client certificate: it has none, it has expired, or its authority is unknown",
    "give a valid one with auth.certificate_file and auth.key_file, or auth.keystore_file",
)
EXPIRED = Cause(
    "the broker's certificate has expired",
    "have it renewed on the broker; no setting of Turnout helps",
)
UNTRUSTED = Cause(
    "the broker's certificate is of an authority that is not trusted",
    "give the PEM file of that authority as auth.ca_file",
)
WRONG_NAME = Cause(
    "the broker's certificate is not for the name in bootstrap_servers",
    "use the name that the certificate has, or set auth.verify_hostname: false",
)
NO_SUCH_NAME = Cause(
    "the name of the broker is not known",
    "correct bootstrap_servers, or check that this machine can look up names of that network",
)
NOT_RUNNING = Cause(
    "nothing listens at that address",
    "start the broker, or correct the port in bootstrap_servers",
)
TOPIC_DENIED = Cause(
    "the topic may not be read with Turnout's Kafka identity",
    "grant it Describe and Read on the topic, or name another topic",
)

NOT_BY_WAITING = (CLIENT_CERTIFICATE, EXPIRED, UNTRUSTED, WRONG_NAME)
"""Causes that another try a moment later does not remove."""

# The first match counts, so specific patterns come first.
_WORDS = (
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
        return Cause(text, "choose another auth.mechanism")
    return next((cause for pattern, cause in _WORDS if re.search(pattern, words, re.IGNORECASE)), None)


def passes(words: str) -> bool:
    """Whether an error tells of one connection that authenticated anew at a bad moment: the client makes another."""
    return "not valid in current SASL state" in words


def without_secrets(text: str, kafka: KafkaSettings) -> str:
    """A client's words with every secret of its settings masked, and without a stack trace."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*(at |\.\.\. \d+ more|Caused by:)", line)]
    text = "\n".join(lines) if lines else text
    return masked(text, secrets_of(kafka))


def explain(kafka: KafkaSettings, words: str = "") -> Cause | None:
    """Why the cluster cannot be used: by a client's error text where that is specific, else by trying each step."""
    named = cause_in(words)
    if named is not None and named not in (UNTRUSTED, NOT_RUNNING, NO_SUCH_NAME):
        return named
    if kafka.auth is not None and kafka.auth.oauth is not None and (seen := ask_for_token(kafka.auth.oauth)):
        return seen
    return walk(kafka) or named


def cause_of(kafka: KafkaSettings, words: str, hint: str) -> Cause:
    """Explain a failure; without a known cause by the client's own words, secrets masked, and `hint`."""
    return explain(kafka, words) or Cause(without_secrets(words, kafka), hint)


def walk(kafka: KafkaSettings) -> Cause | None:
    """The first step that fails towards every one of the brokers; None where one can be reached."""
    first: Cause | None = None
    for address in kafka.bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        cause = _walk_to(host.strip("[]"), int(port), kafka)
        if cause is None:
            return None
        first = first or cause
    return first


def _walk_to(host: str, port: int, kafka: KafkaSettings) -> Cause | None:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return replace(NO_SUCH_NAME, text=f"the name {host!r} is not known")
    try:
        link = socket.create_connection((host, port), SECONDS)
    except TimeoutError:
        return Cause(f"{host}:{port} does not answer", "check that firewalls and proxies let this machine through")
    except OSError as error:
        return replace(NOT_RUNNING, text=f"nothing listens at {host}:{port} ({error.strerror or type(error).__name__})")
    with link:
        link.settimeout(SECONDS)
        if kafka.auth is not None and kafka.auth.tls:
            return _secure(link, host, kafka.auth)
        return None if _has_raw_tls(kafka) else _plain(link)


def _has_raw_tls(kafka: KafkaSettings) -> bool:
    """Whether raw properties ask for TLS; only the clients know the files and options that go with it."""
    raw = kafka.properties | kafka.librdkafka_properties
    return raw.get("security.protocol", "").upper().endswith("SSL")


def _plain(link: socket.socket) -> Cause | None:
    """A port that answers a TLS greeting is not one for plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(link):
            return Cause("the broker's port speaks TLS", "use auth.protocol SSL or SASL_SSL")
    except OSError:
        return None


def _secure(link: socket.socket, host: str, auth: AuthSettings) -> Cause | None:
    try:
        context = ssl.create_default_context(cadata=trusted(auth))
        context.check_hostname = auth.verify_hostname
        if auth.certificate_file is not None:
            context.load_cert_chain(auth.certificate_file, auth.key_file, revealed(auth.key_password))
    except (OSError, ValueError) as error:
        return Cause(f"the files of auth cannot be used ({_reason(error)})", "correct them")
    except TurnoutError as error:
        return Cause(error.message, error.hint)
    try:
        with context.wrap_socket(link, server_hostname=host) as secured:
            return None if auth.keystore_file is not None else _complaint(secured)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error)
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return CLIENT_CERTIFICATE
        return Cause(
            f"the broker's port does not speak TLS ({_reason(error)})",
            "use the port of its TLS listener, or auth.protocol PLAINTEXT or SASL_PLAINTEXT",
        )


def _complaint(secured: ssl.SSLSocket) -> Cause | None:
    secured.settimeout(_COMPLAINT_SECONDS)
    try:
        secured.recv(1)
    except ssl.SSLError as error:
        return CLIENT_CERTIFICATE if "ALERT" in (error.reason or "") else None
    except OSError:  # silence is the good answer: a broker waits for its client to speak
        return None
    return None


def _untrusted(error: ssl.SSLCertVerificationError) -> Cause:
    if error.verify_code == _EXPIRED:
        return EXPIRED
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return replace(WRONG_NAME, text=f"the broker's certificate is for another name ({error.verify_message})")
    return replace(UNTRUSTED, text=f"{UNTRUSTED.text} ({error.verify_message})")


def ask_for_token(oauth: OAuthSettings) -> Cause | None:
    """Why the token endpoint gives no token; None where it gives one."""
    where = f"the token endpoint {oauth.token_endpoint}"
    try:
        # Java and librdkafka ask without the proxies of the environment too.
        answer = httpx.post(**oauth.token_request(), timeout=SECONDS, trust_env=False)
    except (httpx.HTTPError, OSError) as error:
        return _endpoint_down(where, error)
    try:
        found = dict(answer.json())
    except (ValueError, TypeError):
        found = {}
    if answer.is_success and found.get("access_token"):
        return None
    why = "its answer has no access_token"
    if not answer.is_success:
        # The standard's fields of a refusal; nothing else of its text is repeated.
        words = ", ".join(str(found[name]) for name in ("error", "error_description") if found.get(name))
        said = f": {masked(words, [oauth.client_secret.get_secret_value()])}"[:200] if words else ""
        why = f"HTTP {answer.status_code}{said}"
    return Cause(
        f"{where} gave no token ({why})",
        "correct auth.oauth: token_endpoint, client_id, client_secret and scope",
    )


def _endpoint_down(where: str, error: BaseException) -> Cause:
    while (before := error.__cause__ or error.__context__) is not None:  # of a client's error, the socket's
        error = before
    if isinstance(error, ssl.SSLCertVerificationError):
        return Cause(
            f"{where} has a certificate that is not trusted ({error.verify_message})",
            "give the PEM file of its authority as auth.oauth.ca_file, or have the certificate renewed",
        )
    if isinstance(error, socket.gaierror):
        return Cause(f"{where}: its name is not known", "correct auth.oauth.token_endpoint")
    return Cause(
        f"{where} cannot be reached ({_reason(error)})",
        "check that it runs and that this machine may reach it, or correct auth.oauth.token_endpoint",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failed").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
