"""Kafka client properties, for Java and for librdkafka."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from turnout.config import AuthSettings, KafkaSettings
from turnout.kafka.security import java_properties, librdkafka_properties, masked

SCRAM = AuthSettings.model_validate(
    {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": "ann",
        "password": "pa$$ \"w\\ord';\n",
        "ca_file": "/etc/ca.pem",
    }
)


def test_properties_without_auth_are_the_address_only() -> None:
    kafka = KafkaSettings(bootstrap_servers="a:1,b:2")
    assert java_properties(kafka) == librdkafka_properties(kafka) == {"bootstrap.servers": "a:1,b:2"}


def test_properties_of_scram_for_java() -> None:
    assert java_properties(KafkaSettings(auth=SCRAM)) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="pa$$ \\"w\\\\ord\';\\n";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(Path("/etc/ca.pem")),
    }


def test_properties_of_scram_for_librdkafka() -> None:
    assert librdkafka_properties(KafkaSettings(auth=SCRAM)) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "pa$$ \"w\\ord';\n",
        "ssl.ca.location": str(Path("/etc/ca.pem")),
    }


def test_properties_of_plain_use_its_login_module() -> None:
    auth = AuthSettings.model_validate(
        {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": "p"}
    )
    jaas = java_properties(KafkaSettings(auth=auth))["sasl.jaas.config"]
    assert jaas == ('org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";')


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_properties_are_accepted_by_librdkafka(mechanism: str) -> None:
    properties = {
        "client.id": "t",
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "500",
        "client.dns.lookup": "use_all_dns_ips",
        "client.rack": "r",
        "connections.max.idle.ms": "540000",
        "metadata.max.age.ms": "300000",
        "socket.connection.setup.timeout.ms": "10000",
        "sasl.kerberos.service.name": "kafka",
        "ssl.endpoint.identification.algorithm": "",
    }
    auth = AuthSettings.model_validate(
        {"protocol": "SASL_SSL", "mechanism": mechanism, "username": "u", "password": "p"}
    )
    kafka = KafkaSettings(bootstrap_servers="localhost:1", auth=auth, properties=properties)
    rendered = librdkafka_properties(kafka)
    assert rendered["ssl.endpoint.identification.algorithm"] == "none"
    assert properties.keys() <= rendered.keys()
    Producer(rendered)  # raises on a name or a value that it does not know


def test_raw_properties_reach_librdkafka_only_where_it_shares_the_name() -> None:
    kafka = KafkaSettings(properties={"client.id": "t", "ssl.keystore.location": "k.jks", "max.poll.records": "9"})
    assert java_properties(kafka) | {"bootstrap.servers": ""} == kafka.properties | {"bootstrap.servers": ""}
    assert librdkafka_properties(kafka) == {"bootstrap.servers": "localhost:9092", "client.id": "t"}


def test_masked_properties_show_no_secret() -> None:
    kafka = KafkaSettings(auth=SCRAM, properties={"ssl.key.password": "pa$$word2"})
    shown = masked(java_properties(kafka)) | masked(librdkafka_properties(kafka))
    assert not re.search(r"pa\$\$", str(shown))
    assert shown["sasl.username"] == "ann"
    assert shown["sasl.jaas.config"] == shown["sasl.password"] == shown["ssl.key.password"] == "********"
