"""Kafka's Java client by itself: that it reads JAAS as it was written, whatever is in a password."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from lengths import JAAS_EXAMPLES
from turnout.config import AuthSettings, KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.security import java_properties
from turnout.spark.jvm.java_client import JavaClient, causes, java_client

# Whatever YAML and the environment can hold: everything but surrogates and the null character.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
TRICKY = st.text(st.sampled_from("\"\\';= \n\r\t/*#$0123abn"))


@pytest.fixture(scope="module")
def client() -> Iterator[JavaClient]:
    with java_client() as running:
        yield running


def parsed_jaas(client: JavaClient, text: str) -> dict[str, str]:
    """The options of a `sasl.jaas.config`, as Kafka reads them."""
    found = client.jvm.java.util.HashMap()
    found.put("sasl.jaas.config", client.jvm.org.apache.kafka.common.config.types.Password(text))
    context = client.jvm.org.apache.kafka.common.security.JaasContext.loadClientContext(found)
    options = context.configurationEntries().get(0).getOptions()
    return {str(name): str(options.get(name)) for name in options}


@given(username=TEXT, password=TEXT | TRICKY)
@settings(max_examples=JAAS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_jaas_is_read_by_kafka_as_it_was_written(client: JavaClient, username: str, password: str) -> None:
    auth = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": username, "password": password}
    rendered = java_properties(KafkaSettings(auth=AuthSettings.model_validate(auth)))
    assert parsed_jaas(client, rendered["sasl.jaas.config"]) == {"username": username, "password": password}


@given(secret=TEXT | TRICKY)
@settings(max_examples=JAAS_EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
def test_jaas_of_tokens_is_read_by_kafka_as_it_was_written(client: JavaClient, secret: str) -> None:
    oauth = {
        "token_endpoint": "https://a/b",
        "client_id": "c",
        "client_secret": secret,
        "scope": "a b",
        "extensions": {"logicalCluster": "lkc-1"},
    }
    auth = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": oauth}
    rendered = java_properties(KafkaSettings(auth=AuthSettings.model_validate(auth)))
    assert parsed_jaas(client, rendered["sasl.jaas.config"]) == {
        "clientId": "c",
        "clientSecret": secret,
        "scope": "a b",
        "extension_logicalCluster": "lkc-1",
    }


def test_java_client_that_cannot_connect_says_all_causes(client: JavaClient) -> None:
    with pytest.raises(TurnoutError, match="No resolvable bootstrap urls"):
        client.topics({"bootstrap.servers": "no-such-host.invalid:9092"}, [])


def test_causes_are_those_behind_an_error_of_pyspark(client: JavaClient) -> None:
    """PySpark, in a process with a session, asks its own JVM for the text of an exception that is another's."""
    with pytest.raises(Py4JError) as raised:
        try:
            client.jvm.java.lang.Integer.parseInt("x")
        except Py4JError:
            raise Py4JError("An error occurred while calling z:org.apache.spark.util.Utils.exceptionString")  # noqa: B904
    assert causes(raised.value) == 'NumberFormatException: For input string: "x"'


def test_java_client_whose_jvm_ended_says_what_py4j_says() -> None:
    with java_client() as running:
        with contextlib.suppress(Py4JError):
            running.jvm.java.lang.System.exit(0)
        with pytest.raises(TurnoutError, match="An error occurred while"):
            running.topics({"bootstrap.servers": "localhost:1"}, [])
