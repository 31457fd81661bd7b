"""Kafka client properties, for Java and for librdkafka."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from certificates import Authority
from turnout.config import AuthSettings, KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import bulk_properties
from turnout.kafka.diagnosis import without_secrets
from turnout.kafka.security import java_properties, librdkafka_properties, masked

SCRAM = AuthSettings.model_validate(
    {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": "ann",
        "password": "pa$$ \"w\\ord';\n",
    }
)
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----"
OAUTH = {
    "token_endpoint": "https://login.example.com/token",
    "client_id": "turnout",
    "client_secret": 'a"b',
    "scope": "kafka read",
    "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"},
}


def settings(**auth: Any) -> KafkaSettings:
    return KafkaSettings(auth=AuthSettings.model_validate(auth))


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


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
    }


def test_properties_of_scram_for_librdkafka() -> None:
    assert librdkafka_properties(KafkaSettings(auth=SCRAM)) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "pa$$ \"w\\ord';\n",
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
    assert shown["sasl.password"] == shown["ssl.key.password"] == "********"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert shown["sasl.jaas.config"] == f'{module} required username="ann" password="********";'


@pytest.mark.parametrize("jaas", ["a.B required password=hunter2;", "a.B required password='hunter2';", "hunter2"])
def test_masked_jaas_of_another_form_is_a_secret_as_a_whole(jaas: str) -> None:
    assert masked({"sasl.jaas.config": jaas}) == {"sasl.jaas.config": "********"}


SECRETS = st.text(st.characters(codec="utf-8"), min_size=1).map(lambda text: f"<<{text}>>")


@given(SECRETS, SECRETS)
@hypothesis_settings(deadline=None)
def test_masked_properties_never_show_a_secret(password: str, client_secret: str) -> None:
    kafkas = [
        settings(protocol="SASL_SSL", mechanism="PLAIN", username="u", password=password),
        settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH | {"client_secret": client_secret}),
        KafkaSettings(properties={"ssl.key.password": password}, librdkafka_properties={"sasl.password": password}),
    ]
    for kafka in kafkas:
        shown = masked(java_properties(kafka)) | masked(librdkafka_properties(kafka))
        assert "<<" not in str(shown)
        assert "<<" not in repr(kafka)


def test_oauth_for_java_has_extensions_scope_and_the_trust_of_its_endpoint(tmp_path: Path) -> None:
    ca_file = written(tmp_path, "ca.pem", f"text before\n{PEM}\n")
    rendered = java_properties(
        settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth={**OAUTH, "ca_file": ca_file})
    )
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    pem = PEM.replace("\n", "\\n")
    assert rendered["sasl.jaas.config"] == (
        f'{module} required clientId="turnout" clientSecret="a\\"b" scope="kafka read" '
        f'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2" '
        f'ssl.truststore.type="PEM" ssl.truststore.certificates="{pem}";'
    )
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert rendered["sasl.login.callback.handler.class"] == handler
    assert rendered["sasl.oauthbearer.token.endpoint.url"] == "https://login.example.com/token"


def test_oauth_for_librdkafka_is_its_oidc_method(tmp_path: Path) -> None:
    ca_file = written(tmp_path, "ca.pem", PEM)
    kafka = settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth={**OAUTH, "ca_file": ca_file})
    assert librdkafka_properties(kafka) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
        "sasl.oauthbearer.client.id": "turnout",
        "sasl.oauthbearer.client.secret": 'a"b',
        "sasl.oauthbearer.scope": "kafka read",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
        "https.ca.location": ca_file,
    }


def test_token_endpoint_without_ca_file_is_trusted_by_the_authorities_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", written(tmp_path, "system.pem", f"# public\n{PEM}\n"))
    kafka = settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH)

    def trust(kafka: KafkaSettings, *, anywhere: bool = False) -> dict[str, str]:
        rendered = librdkafka_properties(kafka, anywhere=anywhere)
        return {name: value for name, value in rendered.items() if name.startswith("https.")}

    assert trust(kafka) == {"https.ca.location": str(tmp_path / "system.pem")}
    assert trust(kafka, anywhere=True) == {"https.ca.pem": PEM}
    own = kafka.model_copy(update={"librdkafka_properties": {"https.ca.pem": "own"}})
    assert trust(own) == {"https.ca.pem": "own"}
    plain = OAUTH | {"token_endpoint": "http://login.example.com/token"}
    assert trust(settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=plain)) == {}


def test_client_certificate_in_pem_is_text_for_java_and_files_for_librdkafka(tmp_path: Path) -> None:
    ca, own, key = (written(tmp_path, n, t) for n, t in (("ca", PEM), ("own", f"{PEM}\n{PEM}"), ("key", KEY)))
    kafka = settings(protocol="SSL", ca_file=ca, certificate_file=own, key_file=key, verify_hostname=False)
    assert java_properties(kafka) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": PEM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": f"{PEM}\n{PEM}",
        "ssl.keystore.key": KEY,
    }
    assert librdkafka_properties(kafka) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": ca,
        "ssl.certificate.location": own,
        "ssl.key.location": key,
    }
    shown = masked(java_properties(kafka))
    assert shown["ssl.keystore.key"] == "********"
    assert shown["ssl.truststore.certificates"] == f"(PEM, {len(PEM)} characters)"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "-----BEGIN RSA PRIVATE KEY-----",
            "not in PKCS#8 form, the only one that Java reads; convert it: openssl",
        ),
        ("nothing", "has no PEM private key; give key_file"),
    ],
)
def test_private_key_that_java_cannot_read_says_what_to_do(tmp_path: Path, key: str, said: str) -> None:
    kafka = settings(protocol="SSL", certificate_file=written(tmp_path, "c", PEM), key_file=written(tmp_path, "k", key))
    with pytest.raises(TurnoutError) as caught:
        java_properties(kafka)
    assert said in str(caught.value)


def test_files_that_are_missing_or_of_another_kind_are_named(tmp_path: Path) -> None:
    none, jks = tmp_path / "none", written(tmp_path, "store", "")
    Path(jks).write_bytes(b"\xfe\xed\xfe\xed")
    for auth, said in (
        ({"ca_file": none}, f"ca_file {none} cannot be read (No such file or directory)"),
        ({"ca_file": jks}, f"ca_file {jks} has no PEM certificate"),
        ({"truststore_file": none}, f"{none} cannot be read"),
        ({"keystore_file": none, "keystore_password": "x"}, f"{none} cannot be read"),
    ):
        with pytest.raises(TurnoutError) as caught:
            java_properties(settings(protocol="SSL", **auth))
        assert said in str(caught.value)
    with pytest.raises(TurnoutError, match=r"only Java can read.*keytool -importkeystore"):
        librdkafka_properties(settings(protocol="SSL", keystore_file=jks, keystore_password="x"))


def test_stores_are_opened_for_executors_on_other_machines(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("turnout")
    store = certificate.keystore("store-password")
    kafka = settings(protocol="SSL", keystore_file=store, keystore_password="store-password", ca_file=authority.ca_file)
    rendered = java_properties(kafka, anywhere=True)
    assert {name: value for name, value in rendered.items() if "location" in name} == {}
    assert rendered["ssl.keystore.type"] == "PEM"
    assert rendered["ssl.keystore.certificate.chain"] == certificate.file.read_text().strip()
    assert rendered["ssl.keystore.key"] == certificate.key_file.read_text().strip()


def test_consumers_on_other_machines_get_no_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("turnout")
    files = {"ca_file": authority.ca_file, "certificate_file": own.file, "key_file": own.key_file}
    oauth = {**OAUTH, "ca_file": authority.ca_file}
    for auth in ({"protocol": "SSL", **files}, {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": oauth}):
        rendered = bulk_properties(settings(**auth), anywhere=True)
        assert {name: value for name, value in rendered.items() if str(tmp_path) in str(value)} == {}
        assert any(name.endswith("ca.pem") for name in rendered)
        Consumer(rendered).close()


def test_secrets_are_taken_out_of_what_clients_say() -> None:
    kafka = settings(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH | {"client_secret": "s3cr3t"})
    said = "IOException: 401 for s3cr3t\n\tat org.apache.X(X.java:1)\n\t... 3 more\nCaused by: y s3cr3t"
    assert without_secrets(said, kafka) == "IOException: 401 for ********"
