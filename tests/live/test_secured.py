"""Turnout on secured brokers: TLS, mutual TLS, SCRAM with rights, and OAUTHBEARER with a real OpenID provider.

One broker has all listeners. Each scheme has one Turnout, which first meets what can be wrong with it, says so, stays
alive, and goes on when that is mended. That of OAUTHBEARER is a `turnout run`, since its JVM is started with what the
scheme needs.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from certificates import Authority
from in_process_turnout import ServedTurnout
from java_plugins import compiled
from lengths import TOKENS
from openid_provider import AUDIENCE, SCOPE, OpenIdProvider
from secret_search import assert_no_secret, files
from secured_broker import Listener, SecuredBroker, Security, Tokens
from shared_broker import formatted
from turnout.cli import app
from turnout.config import KafkaSettings
from turnout.config.auth import ALLOWED_URLS, Mechanism, Protocol
from turnout.java.runtime import find_java
from turnout.kafka.topics import Topics
from turnout.spark.jvm.java_client import JavaClient, java_client
from turnout.testing import EmbeddedBroker, patience, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout, lives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = 'scram "pass\\word" 7f3a'
CLIENT_SECRET = "oidc-client-secret-91c2"
KEY_PASSWORD = "key-password-55d0"
TOKEN_SECONDS = min(30, int(patience(6)))
EXTENSIONS = {"logicalCluster": "lkc-7", "identityPoolId": "pool-3"}
PRINCIPAL = "turnout.lkc-7.pool-3"
TLS = Listener(Protocol.SSL)


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`turnout check` gives up soon, as a person would; here a busy machine gets its time."""
    monkeypatch.setattr("turnout.kafka.diagnosis.SECONDS", patience(10))
    monkeypatch.setattr("turnout.kafka.diagnosis._COMPLAINT_SECONDS", patience(0.5))
    monkeypatch.setattr("turnout.spark.jvm.java_client.SECONDS", int(patience(30)))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClient]:
    with java_client() as running:
        yield running


class SharedJava:
    """One JVM for all checks, whose start takes longer than a check; the first with options of its own starts its own.

    What those options say is said to the shared one from then on.
    """

    def __init__(self, client: JavaClient) -> None:
        self._client = client
        self._own_started = False

    @contextmanager
    def given(self, allowed_urls: Sequence[str] = ()) -> Iterator[JavaClient]:
        if allowed_urls and not self._own_started:
            self._own_started = True
            with java_client(allowed_urls) as own:
                yield own
        else:
            if allowed_urls:
                self._client.jvm.java.lang.System.setProperty(ALLOWED_URLS, ",".join(allowed_urls))
            yield self._client


@pytest.fixture(scope="module")
def shared_java(java: JavaClient) -> SharedJava:
    return SharedJava(java)


@pytest.fixture
def one_java(shared_java: SharedJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.spark.jvm.java_client.java_client", shared_java.given)


class Cluster:
    """The broker, and what tests do to it as its owner."""

    def __init__(self, broker: SecuredBroker, provider: OpenIdProvider) -> None:
        self.broker = broker
        self.provider = provider
        self._producer = Producer({**broker.admin_properties(), "linger.ms": 1})
        own = broker.admin_properties()
        kafka = KafkaSettings(bootstrap_servers=own.pop("bootstrap.servers"), librdkafka_properties=own)
        self._topics = Topics(kafka, timeout_seconds=patience())

    def close(self) -> None:
        self._topics.close()

    def make_topics(self, prefix: str) -> dict[str, Any]:
        """Topics of one test, and the sections of a turnout.yaml that name them."""
        names = [f"{prefix}-{name}" for name in ("users", "accounts", "others", "control", "outcomes")]
        for made in self.broker.admin().create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(patience())
        kinds = {
            "users": {"userId": "string", "name": "string"},
            "accounts": {"userId": "string", "balance": "double"},
        }
        sources = {
            name: {"topic": f"{prefix}-{name}", "table": f"{name}_ui", "key": "userId", "columns": columns}
            for name, columns in kinds.items()
        }
        return {
            "sources": sources,
            "control": {"topic": f"{prefix}-control", "ack_topic": f"{prefix}-outcomes"},
            "start": "earliest",
        }

    def send(self, topic: str, *values: dict[str, Any]) -> None:
        for value in values:
            self._producer.produce(topic, json.dumps(value))
        assert self._producer.flush(patience()) == 0

    def records_in(self, topic: str) -> int:
        return sum(self._topics.end_offsets([topic]).next.values())

    def grant(self, user: str, prefix: str) -> None:
        for name in ("users", "accounts", "others", "control"):
            self.broker.allow(user, "TOPIC", f"{prefix}-{name}", "READ")
        self.broker.allow(user, "TOPIC", f"{prefix}-outcomes", "WRITE")

    def oauth(self, **changes: Any) -> dict[str, Any]:
        """The kafka section for the OAUTHBEARER listener."""
        kafka = self.broker.kafka("OIDC")
        kafka["auth"] |= {"mechanism": "OAUTHBEARER", "oauth": {
            "token_endpoint": self.provider.token_endpoint,
            "client_id": self.provider.client,
            "client_secret": CLIENT_SECRET,
            "scope": SCOPE,
            "extensions": EXTENSIONS,
            "ca_file": str(self.provider.authority.ca_file),
            **changes,
        }}  # fmt: skip
        return kafka


@pytest.fixture(scope="module")
def cluster(java: JavaClient, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    formatted(broker, folder / "broker" / "kafka")
    plugins = compiled(java, "ExtensionPrincipals", folder / "plugins")
    with OpenIdProvider(folder, "turnout", CLIENT_SECRET, TOKEN_SECONDS) as provider:
        security = Security(
            {
                "TLS": TLS,
                "MTLS": Listener(Protocol.SSL, client_certificate=True),
                "SCRAM": Listener(Protocol.SASL_SSL, Mechanism.SCRAM_SHA_512),
                "PLAIN": Listener(Protocol.SASL_PLAINTEXT, Mechanism.PLAIN),
                "OIDC": Listener(Protocol.SASL_SSL, Mechanism.OAUTHBEARER),
                "OPEN": Listener(),
            },
            users={"ann": PASSWORD},
            # A session never outlives its token: who does not renew it is cut off.
            tokens=Tokens(provider.jwks_endpoint, provider.issuer, AUDIENCE, reauthenticate_ms=60_000),
        )
        own = {"listener.name.oidc.principal.builder.class": "ExtensionPrincipals"}
        with SecuredBroker(folder / "broker", security, own, classpath=[plugins]) as secured:
            made = Cluster(secured, provider)
            yield made
            made.close()


def wait_reason(turnout: RunningTurnout, *parts: str) -> None:
    """Wait until Turnout is not ready for that reason; it answers all the while."""

    def told() -> bool:
        reason = turnout.http.get("/readyz").text
        return all(part in reason for part in parts)

    turnout.wait_answer()
    try:
        wait_until(told, interval=ASKED_SECONDS, what=f"the reason {parts}")
    except TimeoutError:
        raise AssertionError(f"{parts} is not in: {turnout.http.get('/readyz').text}\n{turnout.log()}") from None


def said(turnout: RunningTurnout, *parts: str) -> bool:
    lines = [row["msg"] for row in turnout.rows("orchestrator_logs")]
    return any(all(part in line for part in parts) for line in lines)


def wait_said(turnout: RunningTurnout, *parts: str) -> None:
    try:
        wait_until(lambda: said(turnout, *parts), interval=ASKED_SECONDS, what=f"the line {parts}")
    except TimeoutError:
        raise AssertionError(f"nobody said {parts}:\n{turnout.log()}") from None


def wait_rows(turnout: RunningTurnout, *names: str) -> None:
    """Wait until final_ui has exactly these names."""

    def shown() -> list[str]:
        return sorted(str(row["name"]) for row in turnout.rows("final_ui"))

    try:
        wait_until(lambda: shown() == sorted(names), interval=ASKED_SECONDS, what="rows")
    except TimeoutError:
        raise AssertionError(f"final_ui has {shown()}, not {names}:\n{turnout.log()}") from None


def swap_by_message(cluster: Cluster, turnout: RunningTurnout, prefix: str) -> None:
    """Data, control and acknowledgements all pass the secured listener: a message moves the users to `others`."""
    cluster.send(f"{prefix}-others", {"userId": "9", "name": "other"})
    cluster.send(f"{prefix}-control", {"usersTopic": f"{prefix}-others", "requestId": f"{prefix}-1"})
    wait_rows(turnout, "other")

    def outcomes() -> list[str | None]:
        return [row["outcome"] for row in turnout.rows("control_raw") if f"{prefix}-1" in str(row)]

    wait_until(lambda: None not in outcomes(), interval=ASKED_SECONDS, what="the outcome")
    assert outcomes() == ["applied"]
    wait_until(
        lambda: cluster.records_in(f"{prefix}-outcomes") == 1, interval=ASKED_SECONDS, what="the acknowledgement"
    )


def test_mutual_tls_what_is_wrong_with_certificates_is_told_and_their_renewal_taken_up(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    broker, prefix = cluster.broker, "mtls"
    document = cluster.make_topics(prefix)
    cluster.grant("eve", prefix)
    cluster.send(f"{prefix}-users", {"userId": "1", "name": "ann"})
    kafka = broker.kafka("MTLS", "eve")
    authority, ca_file = broker.authority, tmp_path / "ca.pem"
    # An authority that is not the broker's, and certificates of both sides that have expired.
    shutil.copy(Authority(tmp_path / "other").ca_file, ca_file)
    broker.renew_certificate("MTLS", days=-1)
    authority.issue("eve", days=-1, key_password=KEY_PASSWORD)
    secret = tmp_path / "key-password"
    secret.write_text(KEY_PASSWORD + "\n")
    kafka["auth"] |= {"ca_file": str(ca_file), "key_password": {"file": str(secret)}}
    turnout = ServedTurnout(tmp_path / "run", spark, kafka=kafka, **document)
    try:
        turnout.start(ready=False)
        wait_reason(turnout, "an authority that is not trusted", "auth.ca_file")
        shutil.copy(authority.ca_file, ca_file)
        wait_reason(turnout, "the broker's certificate has expired")
        wait_said(turnout, "control messages wait", "certificate")
        broker.renew_certificate("MTLS")
        wait_reason(turnout, "did not accept Turnout's client certificate")
        key = authority.issue("eve", key_password=KEY_PASSWORD).key_file
        turnout.wait_ready()
        wait_rows(turnout, "ann")
        swap_by_message(cluster, turnout, prefix)
        assert_no_secret(turnout, [KEY_PASSWORD, key.read_text().splitlines()[1]])
    finally:
        turnout.close()


@pytest.mark.usefixtures("one_java")
def test_scram_wrong_password_and_missing_rights_are_told_and_mended(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    broker, prefix = cluster.broker, "scram"
    document = cluster.make_topics(prefix)
    users, control = f"{prefix}-users", f"{prefix}-control"
    cluster.send(users, {"userId": "1", "name": "ann"})
    broker.set_password("ann", "another")
    kafka = broker.kafka("SCRAM", "ann")
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    kafka["auth"]["password"] = {"command": ["cat", str(secret)]}
    turnout = ServedTurnout(tmp_path / "run", spark, kafka=kafka, **document)
    try:
        turnout.start(ready=False)
        wait_reason(turnout, "refused the user name or the password", "auth.password")
        broker.set_password("ann", PASSWORD)
        wait_said(turnout, f"control topic '{control}' may not be read", "Describe and Read")
        broker.allow("ann", "TOPIC", control, "READ")
        wait_reason(turnout, f"topic '{prefix}-", "may not be read", "Describe and Read")
        wait_said(turnout, "an outcome was not written", "authorization failed")
        cluster.grant("ann", prefix)
        turnout.wait_ready()
        wait_rows(turnout, "ann")
        deny_while_reading(cluster, turnout, users)
        swap_by_message(cluster, turnout, prefix)
        findings = checked(turnout.config)
        # No group is joined, so the lack of a right to one ends nothing.
        assert findings["kafka java"][-1][1].startswith("Spark's Kafka client connects")
        assert_no_secret(turnout, [PASSWORD])
    finally:
        turnout.close()


def crashed_java(turnout: RunningTurnout) -> str:
    """What Spark's JVM writes when it crashes."""
    java = turnout.java()
    java.send_signal(signal.SIGSEGV)
    wait_until(lambda: not lives(java), what="the end of the JVM")
    (crash,) = (turnout.data_dir / "spark").glob("java-crash-*.log")
    assert not [where for where, _ in files(turnout.folder, set()) if Path(where).name.startswith("core")]
    return crash.read_text(errors="replace")


def deny_while_reading(cluster: Cluster, turnout: RunningTurnout, topic: str) -> None:
    """A topic that may not be seen for a while loses nothing and repeats nothing."""
    cluster.broker.disallow("ann", "TOPIC", topic, "READ")
    wait_reason(turnout, f"topic '{topic}' may not be read", "Describe and Read")
    cluster.send(topic, {"userId": "2", "name": "bob"})
    cluster.broker.allow("ann", "TOPIC", topic, "READ")
    turnout.wait_ready()
    wait_rows(turnout, "ann", "bob")
    cluster.send(topic, {"userId": "3", "name": "cid"})
    wait_rows(turnout, "ann", "bob", "cid")


def test_oauth_tokens_are_renewed_while_data_flows_and_extensions_arrive(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, prefix = cluster.provider, "oidc"
    document = cluster.make_topics(prefix)
    cluster.grant(PRINCIPAL, prefix)
    cluster.send(f"{prefix}-users", {"userId": "0", "name": "n0"})
    monkeypatch.setenv("OAUTH_SECRET", CLIENT_SECRET)
    kafka = cluster.oauth(client_secret="${OAUTH_SECRET}")
    turnout = RunningTurnout(tmp_path / "run", "", kafka=kafka, **document)
    try:
        turnout.start()
        issued = provider.issued()
        names = ["n0"]
        # Each client needs a token again after a few seconds; nothing may be missed or seen twice meanwhile.
        for more in range(TOKENS):
            wait_until(lambda more=more: provider.issued() > issued + more, what="another token")  # type: ignore[misc]
            names.append(f"n{len(names)}")
            cluster.send(f"{prefix}-users", {"userId": str(len(names)), "name": names[-1]})
            wait_rows(turnout, *names)
        swap_by_message(cluster, turnout, prefix)
        provider.stop()
        wait_reason(turnout, f"the token endpoint {provider.token_endpoint} cannot be reached", "Connection refused")
        provider.start()
        turnout.wait_ready()
        cluster.send(f"{prefix}-others", {"userId": "10", "name": "late"})
        wait_rows(turnout, "other", "late")
        assert_no_secret(turnout, [CLIENT_SECRET])
        crash = crashed_java(turnout)
        assert "SIGSEGV" in crash and CLIENT_SECRET not in crash
    finally:
        turnout.close()
        provider.stop()
        provider.start()


def test_token_endpoint_is_trusted_as_the_system_trusts_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.provider.authority.ca_file))
    users = cluster.make_topics("system")["sources"]["users"]["topic"]
    cluster.grant(PRINCIPAL, "system")
    topics = Topics(KafkaSettings.model_validate(cluster.oauth(ca_file=None)), timeout_seconds=patience())
    try:
        assert users in topics.names()
    finally:
        topics.close()


@pytest.mark.usefixtures("one_java")
def test_check_connects_with_both_clients_by_every_scheme(cluster: Cluster, tmp_path: Path) -> None:
    broker, prefix = cluster.broker, "both"
    document = cluster.make_topics(prefix)
    for user in ("ANONYMOUS", "ann", PRINCIPAL):
        cluster.grant(user, prefix)
    store = broker.authority.issue("ann").keystore("store-password-0")
    keystore = broker.kafka("TLS") | {"bootstrap_servers": broker.address("MTLS")}
    keystore["auth"] |= {"keystore_file": str(store), "keystore_password": "store-password-0"}
    truststore = broker.kafka("TLS")
    trusted = truststore_of(Path(truststore["auth"].pop("ca_file")), "trust-password-0")
    truststore["auth"] |= {"truststore_file": str(trusted), "truststore_password": "trust-password-0"}
    plain_endpoint = cluster.oauth(token_endpoint=cluster.provider.plain_token_endpoint)
    del plain_endpoint["auth"]["oauth"]["ca_file"]
    schemes = [broker.kafka("OPEN"), broker.kafka("PLAIN", "ann"), keystore, truststore, plain_endpoint]
    for kafka in schemes:
        found = checked(configured(tmp_path, kafka, document))
        assert found["kafka"][-1][0] == "ok", found
        assert found["kafka java"][-1][0] == "ok", found
        assert found["kafka java"][-1][1].startswith("Spark's Kafka client connects"), found
        for secret in (PASSWORD, CLIENT_SECRET, "store-password-0", "trust-password-0"):
            assert secret not in str(found)

    own = {**document, "control": {**document["control"], "kafka": broker.kafka("SCRAM", "ann")}}
    found = checked(configured(tmp_path, broker.kafka("TLS"), own))
    assert found["control kafka"][-1][0] == found["kafka"][-1][0] == "ok", found
    assert found["control topic"][0][0] == "ok", found
    assert "sasl.username=ann" in found["control kafka librdkafka"][0][1]


@pytest.mark.usefixtures("one_java")
def test_check_explains_what_is_in_the_way(cluster: Cluster, tmp_path: Path) -> None:
    broker = cluster.broker
    document = cluster.make_topics("way")
    cluster.grant("ann", "way")
    broker.disallow("ann", "TOPIC", "way-users", "READ")
    stranger = Authority(tmp_path / "stranger")
    foreign = stranger.issue("ann")
    scram, mutual = broker.kafka("SCRAM", "ann"), broker.kafka("MTLS", "ann")
    cases: list[tuple[dict[str, Any], str]] = [
        (with_auth(scram, password="wrong"), "the broker refused the user name or the password"),
        (with_auth(scram, ca_file=str(stranger.ca_file)), "an authority that is not trusted"),
        (with_auth(scram, mechanism="SCRAM-SHA-256"), "does not have this SASL mechanism (it has: SCRAM-SHA-512)"),
        (with_auth(mutual, certificate_file=str(foreign.file), key_file=str(foreign.key_file)), "client certificate"),
        (broker.kafka("TLS") | {"bootstrap_servers": broker.address("MTLS")}, "did not accept Turnout's client"),
        ({"bootstrap_servers": broker.address("TLS")}, "the broker's port speaks TLS"),
        (broker.kafka("TLS") | {"bootstrap_servers": broker.address("OPEN")}, "does not speak TLS"),
        (scram | {"bootstrap_servers": "no-such-host.invalid:9093"}, "the name 'no-such-host.invalid' is not known"),
        (scram | {"bootstrap_servers": "127.0.0.1:1"}, "nothing listens at 127.0.0.1:1"),
        (cluster.oauth(client_secret="wrong"), "gave no token (HTTP 401: invalid_client"),
        (cluster.oauth(token_endpoint="https://127.0.0.1:1/token"), "cannot be reached (Connection refused)"),
        (cluster.oauth(token_endpoint=f"{cluster.provider.issuer}/none", ca_file=None), "gave no token (HTTP 404"),
        (cluster.oauth(ca_file=str(stranger.ca_file)), "has a certificate that is not trusted"),
        (cluster.oauth(extensions={}), "topic 'way-users' may not be read"),
        (scram, "topic 'way-users' may not be read"),
    ]
    for kafka, said in cases:
        found = checked(configured(tmp_path, kafka, document), whole=True)
        faults = [text for findings in found.values() for level, text in findings if level == "fault"]
        assert any(said in fault for fault in faults), (said, found)
        assert not any(secret in str(found) for secret in (PASSWORD, CLIENT_SECRET, '"wrong"'))


def with_auth(kafka: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**kafka, "auth": {**kafka["auth"], **changes}}


def configured(folder: Path, kafka: dict[str, Any], document: dict[str, Any]) -> Path:
    file = folder / "turnout.yaml"
    file.write_text(json.dumps({"kafka": kafka, **document}))  # JSON is YAML
    return file


def truststore_of(ca_file: Path, password: str) -> Path:
    """A trust store in Java's own format."""
    store = ca_file.with_name("trust.jks")
    keytool = find_java().resolve().with_name("keytool")
    what = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(ca_file), "-storetype", "JKS"]
    secret = ca_file.with_name("trust.password")
    secret.write_text(password)
    subprocess.run(
        [str(keytool), *what, "-keystore", str(store), "-storepass:file", str(secret)], check=True, capture_output=True
    )
    return store


def checked(config: Path, whole: bool = False) -> dict[str, list[tuple[str, str]]]:
    """The findings of `turnout check`, by their subject: level and text, without who does it unless `whole`."""
    result = typer.testing.CliRunner().invoke(app, ["check", "-c", str(config), "--json"])
    assert result.stdout, result.exception
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        text = finding["text"] if whole else finding["text"].split(" with ")[0]
        found.setdefault(finding["subject"], []).append((finding["level"], text))
    return found
