"""Kafka client properties, made from one description of a cluster for the Java client and for librdkafka.

Both clients get the same address, the same identity and the same trust. Key and trust stores and PEM files are opened
by `keytool` and `openssl` for the client that cannot open them itself. Connecting is left to the clients' owners.
"""

import functools
import re
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from turnout.config import KafkaSettings
from turnout.config.auth import AuthSettings, Mechanism, OAuthSettings
from turnout.config.secrets import MASK, SECRET_NAMES
from turnout.errors import TurnoutError
from turnout.java.runtime import find_java

# The Java names of raw properties that librdkafka has under the same name and with the same values. The
# others, such as key stores and JAAS, mean nothing to it.
SHARED_PROPERTIES = frozenset(
    {
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "isolation.level",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)

_SECRET_NAME = re.compile(SECRET_NAMES, re.IGNORECASE)
_HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
_PEM = "-----BEGIN "
# A JAAS text as it is written here. Any other is masked as a whole, since its values may be quoted in other ways.
_JAAS_OPTION = re.compile(r'([\w.]+)="((?:[^"\\]|\\.)*)"')
_JAAS = re.compile(rf"[\w.]+ required(?: {_JAAS_OPTION.pattern})*;")
_LOGIN = "org.apache.kafka.common.security"
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_SECONDS = 60
# Where systems keep the authorities that they trust, as one file: Debian and Alpine, Fedora, openSUSE, macOS.
_SYSTEM_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_ENDPOINT_TRUST = frozenset({"https.ca.location", "https.ca.pem"})


def java_properties(kafka: KafkaSettings, *, anywhere: bool = False) -> dict[str, str]:
    """The properties of Kafka's Java client; raw ones are passed as they are.

    PEM files are read here and passed as text, so that Spark's executors need no copy of them. For executors on other
    machines (`anywhere`) key and trust stores are opened here, too.
    """
    properties = {"bootstrap.servers": kafka.bootstrap_servers, **kafka.properties}
    auth = kafka.auth
    if auth is None:
        return properties
    properties["security.protocol"] = auth.protocol.value
    if not auth.verify_hostname and auth.tls:
        properties[_HOSTNAME_CHECK] = ""
    properties |= _java_tls(auth, anywhere)
    if auth.mechanism is not None:
        properties |= {"sasl.mechanism": auth.mechanism.value, "sasl.jaas.config": _jaas(auth)}
    if auth.oauth is not None:
        properties |= {
            "sasl.oauthbearer.token.endpoint.url": auth.oauth.token_endpoint,
            "sasl.login.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    return properties


def librdkafka_properties(kafka: KafkaSettings, *, anywhere: bool = False) -> dict[str, str]:
    """The properties of librdkafka's clients; of the raw ones of Java only those that it shares.

    For clients on other machines (`anywhere`) files are read here and passed as text.
    """
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    properties |= {name: value for name, value in kafka.properties.items() if name in SHARED_PROPERTIES}
    if _HOSTNAME_CHECK in kafka.properties:
        # Java switches the check off with an empty text, librdkafka with this word.
        properties[_HOSTNAME_CHECK] = kafka.properties[_HOSTNAME_CHECK] or "none"
    properties |= kafka.librdkafka_properties
    auth = kafka.auth
    if auth is None:
        return properties
    properties["security.protocol"] = auth.protocol.value
    if not auth.verify_hostname and auth.tls:
        properties[_HOSTNAME_CHECK] = "none"
    properties |= _librdkafka_tls(auth, anywhere)
    if auth.mechanism is not None:
        properties["sasl.mechanism"] = auth.mechanism.value
    if auth.oauth is not None:
        properties |= _librdkafka_oauth(auth.oauth)
        if auth.oauth.ca_file is not None or not _ENDPOINT_TRUST & properties.keys():
            properties |= _endpoint_trust(auth.oauth, anywhere)
    elif auth.mechanism is not None:
        properties |= {"sasl.username": auth.username or "", "sasl.password": revealed(auth.password)}
    return properties


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without their secrets, for people; certificates are shown by their size."""
    return {name: _masked_value(name, value) for name, value in properties.items()}


def _masked_value(name: str, value: str) -> str:
    if name == "sasl.jaas.config" and _JAAS.fullmatch(value):
        return _JAAS_OPTION.sub(lambda option: f'{option[1]}="{_masked_value(option[1], option[2])}"', value)
    if _SECRET_NAME.search(name):
        return MASK
    return f"(PEM, {len(value):,} characters)" if _PEM in value else value


def files_of(kafka: KafkaSettings) -> dict[str, int]:
    """The files of `auth` and when each was changed: a client keeps what it read when it was made."""
    auth = kafka.auth
    values = [value for model in (auth, auth and auth.oauth) if model is not None for _, value in model]
    found = {}
    for file in values:
        if isinstance(file, Path):
            with suppress(OSError):
                found[str(file)] = file.stat().st_mtime_ns
    return found


def revealed(secret: SecretStr | None) -> str:
    """The text of a secret; empty without one."""
    return secret.get_secret_value() if secret else ""


def _given(name: str, secret: SecretStr | None) -> dict[str, str]:
    """A property for a secret, where there is one."""
    return {name: secret.get_secret_value()} if secret else {}


def _java_tls(auth: AuthSettings, anywhere: bool) -> dict[str, str]:
    properties = {}
    if auth.truststore_file is not None and not anywhere:
        properties = {
            "ssl.truststore.type": _store_type(auth.truststore_file),
            "ssl.truststore.location": str(auth.truststore_file),
            **_given("ssl.truststore.password", auth.truststore_password),
        }
    elif authorities := trusted(auth):
        properties = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if auth.keystore_file is not None and not anywhere:
        return properties | {
            "ssl.keystore.type": _store_type(auth.keystore_file),
            "ssl.keystore.location": str(auth.keystore_file),
            "ssl.keystore.password": revealed(auth.keystore_password),
            **_given("ssl.key.password", auth.key_password),
        }
    if own := _opened_certificate(auth):
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": own[0], "ssl.keystore.key": own[1]}
    return properties


def _librdkafka_tls(auth: AuthSettings, anywhere: bool) -> dict[str, str]:
    properties = {}
    if auth.ca_file is not None and not anywhere:
        properties = {"ssl.ca.location": str(auth.ca_file)}
    elif authorities := trusted(auth):  # librdkafka reads no trust stores
        properties = {"ssl.ca.pem": authorities}
    if anywhere:
        own = _opened_certificate(auth)
        return properties | ({"ssl.certificate.pem": own[0], "ssl.key.pem": own[1]} if own else {})
    if auth.keystore_file is not None:
        _refuse_jks(auth.keystore_file)
        properties["ssl.keystore.location"] = str(auth.keystore_file)
        properties["ssl.keystore.password"] = revealed(auth.keystore_password)
    elif auth.certificate_file is not None:
        properties["ssl.certificate.location"] = str(auth.certificate_file)
        properties["ssl.key.location"] = str(auth.key_file or auth.certificate_file)
        properties |= _given("ssl.key.password", auth.key_password)
    return properties


def trusted(auth: AuthSettings) -> str | None:
    """The certificates of the authorities that are trusted, as PEM; None where the system's are."""
    if auth.ca_file is not None:
        return _certificates("ca_file", auth.ca_file)
    file = auth.truststore_file
    if file is None:
        return None
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise unreadable("truststore_file", file, error) from None
    return _exported(file, revealed(auth.truststore_password), changed)


def _opened_certificate(auth: AuthSettings) -> tuple[str, str] | None:
    """Turnout's own certificate with its chain, and its private key, as PEM."""
    if auth.certificate_file is not None:
        key = _private_key(auth.key_file or auth.certificate_file, revealed(auth.key_password))
        return _certificates("certificate_file", auth.certificate_file), key
    file = auth.keystore_file
    if file is None:
        return None
    _refuse_jks(file)
    opened = ("pkcs12", "-in", file, "-passin", "stdin", "-nodes")
    own, chain = (
        openssl(*opened, *more, given=revealed(auth.keystore_password))
        for more in (("-clcerts",), ("-cacerts", "-nokeys"))
    )
    keys = pem_blocks(own, "PRIVATE KEY")
    certificates = pem_blocks(own, "CERTIFICATE") + pem_blocks(chain, "CERTIFICATE")
    if not keys or not certificates:
        raise bad_file(f"keystore_file {file} has no certificate with its private key", "export both into it")
    return "\n".join(certificates), keys[0]


def _librdkafka_oauth(oauth: OAuthSettings) -> dict[str, str]:
    properties = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": oauth.token_endpoint,
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": revealed(oauth.client_secret),
    }
    if oauth.scope:
        properties["sasl.oauthbearer.scope"] = oauth.scope
    if oauth.extensions:
        properties["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in oauth.extensions.items())
    return properties


def _endpoint_trust(oauth: OAuthSettings, anywhere: bool) -> dict[str, str]:
    """The authorities that librdkafka trusts at the token endpoint; without `ca_file`, the system's.

    The system's file is named, because librdkafka's ready-made packages know only Fedora's place.
    """
    file = oauth.ca_file
    if file is None and oauth.token_endpoint.startswith("https:"):
        file = _system_authorities()
    if file is None:
        return {}
    return {"https.ca.pem": _certificates("oauth.ca_file", file)} if anywhere else {"https.ca.location": str(file)}


def _system_authorities() -> Path | None:
    """The file of the authorities that the system trusts: Python's, which SSL_CERT_FILE can name, or a known one."""
    files = (ssl.get_default_verify_paths().cafile, *_SYSTEM_AUTHORITIES)
    return next((Path(file) for file in files if file and Path(file).is_file()), None)


def _jaas(auth: AuthSettings) -> str:
    if auth.oauth is not None:
        module, options = "oauthbearer.OAuthBearerLoginModule", _jaas_oauth(auth.oauth)
    else:
        module = "plain.PlainLoginModule" if auth.mechanism is Mechanism.PLAIN else "scram.ScramLoginModule"
        options = {"username": auth.username or "", "password": revealed(auth.password)}
    written = "".join(f" {name}={jaas_quoted(value)}" for name, value in options.items())
    return f"{_LOGIN}.{module} required{written};"


def _jaas_oauth(oauth: OAuthSettings) -> dict[str, str]:
    options = {"clientId": oauth.client_id, "clientSecret": revealed(oauth.client_secret)}
    if oauth.scope:
        options["scope"] = oauth.scope
    options |= {f"extension_{name}": value for name, value in oauth.extensions.items()}
    if oauth.ca_file is not None:
        # The client's own ssl. properties are for the brokers; those for the token endpoint go here.
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = _certificates("oauth.ca_file", oauth.ca_file)
    return options


def jaas_quoted(text: str) -> str:
    """Text in JAAS quotes; Java's tokenizer takes backslash escapes, and ends a quote at a line break."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _certificates(setting: str, file: Path) -> str:
    """The certificates of a PEM file, without whatever else is in it."""
    found = pem_blocks(_text(setting, file), "CERTIFICATE")
    if not found:
        raise bad_file(f"{setting} {file} has no PEM certificate", "give a file with -----BEGIN CERTIFICATE-----")
    return "\n".join(found)


def _private_key(file: Path, password: str) -> str:
    """The key for Java, opened: Kafka's client cannot read keys that are encrypted as openssl does it today."""
    text = _text("key_file", file)
    if found := pem_blocks(text, "PRIVATE KEY"):
        return found[0]
    if pem_blocks(text, "ENCRYPTED PRIVATE KEY"):
        return openssl("pkcs8", "-in", file, "-passin", "stdin", given=password)
    if "PRIVATE KEY-----" in text:
        raise bad_file(
            f"the private key of {file} is not in PKCS#8 form, the only one that Java reads",
            "convert it: openssl pkcs8 -topk8 -in OLD -out NEW",
        )
    raise bad_file(f"{file} has no PEM private key", "give key_file, a file with -----BEGIN PRIVATE KEY-----")


def _text(setting: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise unreadable(setting, file, error) from None


def _refuse_jks(file: Path) -> None:
    if _store_type(file) == "JKS":
        raise bad_file(
            f"keystore_file {file} is a JKS key store, which only Java can read",
            "convert it: keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12",
        )


def _store_type(file: Path) -> str:
    """Java's name for the format of a store: its own, or PKCS#12."""
    try:
        with file.open("rb") as opened:
            return "JKS" if opened.read(4) == _JKS_MAGIC else "PKCS12"
    except OSError as error:
        raise unreadable("store", file, error) from None


@functools.lru_cache(maxsize=8)
def _exported(file: Path, password: str, changed: int) -> str:
    """The certificates of a trust store as PEM, by Java's keytool; `changed` is when the file was written."""
    keytool = find_java().resolve().with_name("keytool")
    # The password comes by standard input: arguments and environments can be looked at.
    command = [str(keytool), "-list", "-rfc", "-keystore", str(file), "-storepass:file", "/dev/stdin"]
    why = "it holds no certificate"
    try:
        done = subprocess.run(command, input=password.encode(), capture_output=True, timeout=_SECONDS, check=True)
        if found := pem_blocks(done.stdout.decode(errors="replace"), "CERTIFICATE"):
            return "\n".join(found)
    except subprocess.CalledProcessError:
        why = "keytool cannot open it"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"{keytool} did not run ({type(error).__name__})"
    hint = "check the file and truststore_password, or give the authority as PEM with ca_file"
    raise bad_file(f"truststore_file {file}: {why}", hint)


def openssl(*arguments: object, given: str = "") -> str:
    """What a command of openssl prints; `given` goes to its standard input, since arguments can be looked at."""
    program = shutil.which("openssl")
    if program is None:
        raise TurnoutError(
            code="openssl_missing",
            message="the command 'openssl' is needed, and is not on the PATH",
            hint="install it (Debian, Ubuntu: apt-get install openssl)",
            status=500,
        )
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, input=given.encode(), capture_output=True, check=False, timeout=_SECONDS)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise TurnoutError(
            code="openssl_failed",
            message=f"openssl {arguments[0]} failed ({''.join(last)})",
            hint="check the files that it was given, and their passwords",
            status=500,
        )
    return done.stdout.decode(errors="replace")


def pem_blocks(text: str, label: str) -> list[str]:
    """The blocks of a PEM text that have this label."""
    return re.findall(rf"-----BEGIN {label}-----.*?-----END {label}-----", text, re.DOTALL)


def unreadable(setting: str, file: Path, error: OSError) -> TurnoutError:
    """The error for a file of `auth` that cannot be read."""
    hint = "correct the path in kafka.auth, or the rights of the file"
    return bad_file(f"{setting} {file} cannot be read ({error.strerror})", hint)


def bad_file(message: str, hint: str) -> TurnoutError:
    """The error for a file of `auth` that cannot be used."""
    return TurnoutError(code="bad_config", message=message, hint=hint)
