"""What stands between Turnout and Kafka: from the words of clients, which differ from release to release."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr

from certificates import Authority
from turnout.config import KafkaSettings
from turnout.config.auth import OAuthSettings
from turnout.errors import TurnoutError
from turnout.kafka import diagnosis
from turnout.kafka.diagnosis import Cause, ask_for_token, cause_in, walk
from turnout.kafka.topics import Topics

FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism"


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (f"sasl_ssl://b:1/bootstrap: SASL authentication error: {FAILED} SCRAM-SHA-512", diagnosis.CREDENTIALS),
        (f"SaslAuthenticationException: {FAILED} SCRAM-SHA-512", diagnosis.CREDENTIALS),
        ("SASL authentication error: Authentication failed: Invalid username or password", diagnosis.CREDENTIALS),
        (f"SASL authentication error: {FAILED} OAUTHBEARER", diagnosis.TOKEN_REFUSED),
        ('SaslAuthenticationException: {"status":"invalid_token"}', diagnosis.TOKEN_REFUSED),
        ("b:1: Failed to resolve 'b:1': Name or service not known", diagnosis.NO_SUCH_NAME),
        ("ConfigException: No resolvable bootstrap urls given in bootstrap.servers", diagnosis.NO_SUCH_NAME),
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", diagnosis.NOT_RUNNING),
        (
            "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed",
            diagnosis.UNTRUSTED,
        ),
        ("SSLHandshakeException: PKIX path building failed: unable to find", diagnosis.UNTRUSTED),
        ("CertPathValidatorException: validity check failed", diagnosis.EXPIRED),
        ("error:0A000412:SSL routines::ssl/tls alert bad certificate", diagnosis.CLIENT_CERTIFICATE),
        ("SSLHandshakeException: Received fatal alert: certificate_unknown", diagnosis.CLIENT_CERTIFICATE),
        ("CertificateException: No subject alternative names matching IP address", diagnosis.WRONG_NAME),
        ("Broker: Topic authorization failed", diagnosis.TOPIC_DENIED),
        ("TopicAuthorizationException: Not authorized to access topics: [a]", diagnosis.TOPIC_DENIED),
    ],
)
def test_cause_is_known_by_the_words_of_either_client(words: str, known: Cause) -> None:
    assert cause_in(words) is known
    assert known.text and known.hint


@pytest.mark.parametrize(
    "words",
    [
        "mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN",
        "Client SASL mechanism 'SCRAM-SHA-256' not enabled in the server, enabled mechanisms are [PLAIN]",
    ],
)
def test_wrong_mechanism_names_those_of_the_broker(words: str) -> None:
    cause = cause_in(words)
    assert cause is not None
    assert str(cause) == "the broker does not have this SASL mechanism (it has: PLAIN); choose another auth.mechanism"


def test_other_words_have_no_cause() -> None:
    assert cause_in("1/1 brokers are down") is None


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:1/token", "cannot be reached (Connection refused)"),
        ("https://127.0.0.1:1/token", "cannot be reached (Connection refused)"),
        ("https://no-such-host.invalid/token", "its name is not known"),
    ],
)
def test_token_endpoint_that_cannot_be_reached_says_why(endpoint: str, said: str) -> None:
    cause = ask_for_token(OAuthSettings(token_endpoint=endpoint, client_id="c", client_secret=SecretStr("s")))
    assert cause is not None and said in cause.text


_BAD_STATE = "mechanism handshake failed: Broker: Request not valid in current SASL state"


@pytest.mark.parametrize(
    ("answered", "words", "code"),
    [
        (True, _BAD_STATE, "kafka_unreachable"),
        (False, _BAD_STATE, "not_authorized"),
        (True, "SASL authentication error: invalid credentials", "not_authorized"),
    ],
)
def test_connection_that_authenticates_anew_at_a_bad_moment_is_not_taken_for_wrong_credentials(
    answered: bool, words: str, code: str
) -> None:
    topics = Topics(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout_seconds=0.05)

    def question(_: float) -> None:
        topics._note(KafkaError(KafkaError._AUTHENTICATION, words))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    try:
        if answered:
            topics._ask(lambda _: None)
        with pytest.raises(TurnoutError) as caught, topics._question():
            topics._ask(question)
    finally:
        topics.close()
    assert caught.value.code == code


@pytest.fixture
def tls_address(tmp_path: Path) -> Iterator[str]:
    """The address of a port that speaks TLS."""
    certificate = Authority(tmp_path).issue("broker", ("localhost",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key_file)
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = listening.accept()
                with contextlib.suppress(OSError), context.wrap_socket(link, server_side=True):
                    pass

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_tls_of_raw_properties_is_not_taken_for_a_missing_one(tls_address: str) -> None:
    plain = walk(KafkaSettings(bootstrap_servers=tls_address))
    assert plain is not None and plain.text == "the broker's port speaks TLS"
    for name in ("properties", "librdkafka_properties"):
        raw = {name: {"security.protocol": "sasl_ssl"}}
        assert walk(KafkaSettings.model_validate({"bootstrap_servers": tls_address} | raw)) is None
