"""The client of schema registries: what it sends, and what it makes of each answer."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from scripted_registry import Scripted, scripted
from turnout.config import RegistrySettings
from turnout.errors import TurnoutError
from turnout.local.broker import free_port
from turnout.schemas.registry import MOST_REFERENCES, RegisteredSchema, SchemaRegistry


def client(url: str, **auth: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings.model_validate({"url": url, **({"auth": auth} if auth else {})}))


def test_schema_comes_with_those_that_it_refers_to() -> None:
    reference = {"name": "inner.proto", "subject": "a/b", "version": 3}
    answers = {
        "/schemas/ids/7": (200, {"schema": "outer", "schemaType": "PROTOBUF", "references": [reference]}),
        "/subjects/a%2Fb/versions/3?deleted=true": (200, {"schema": "inner", "schemaType": "PROTOBUF", "id": 1}),
        "/schemas/ids/8": (200, {"schema": '"string"'}),
    }
    with scripted(answers) as script:
        registry = client(script.url + "/")
        inner = RegisteredSchema("PROTOBUF", "inner")
        assert registry.schema(7) == RegisteredSchema("PROTOBUF", "outer", (("inner.proto", inner),))
        assert registry.schema(8) == RegisteredSchema("AVRO", '"string"')
        registry.close()


def test_schema_that_is_not_there_is_none() -> None:
    with scripted({"/schemas/ids/7": (404, {"error_code": 40403, "message": "Schema not found"})}) as script:
        assert client(script.url).schema(7) is None
        assert client(script.url).schema(2**31) is None
        assert len(script.heard) == 1


@pytest.mark.parametrize(
    ("status", "answer", "code", "said"),
    [
        (404, "<html>", "registry_unreachable", "answered 404 Not Found; check that it runs and schema_registry.url"),
        (404, {"error_code": 404}, "registry_unreachable", "answered 404"),
        (500, {"error_code": 50001}, "registry_unreachable", "answered 500 Internal Server Error"),
        (200, {"id": 1}, "registry_unreachable", "gave an answer that is not a schema"),
        (200, "<html>", "registry_unreachable", "answered 200 OK"),
        (302, "", "registry_unreachable", "answered 302 Found"),
        (401, {"error_code": 401}, "registry_refused", "(401); check schema_registry.auth"),
        (403, "", "registry_refused", "(403)"),
    ],
)
def test_answer_that_says_nothing_is_an_error(status: int, answer: Any, code: str, said: str) -> None:
    with scripted({"/schemas/ids/7": (status, answer)}) as script, pytest.raises(TurnoutError) as caught:
        client(script.url).schema(7)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_registry_that_is_away_is_an_error() -> None:
    with pytest.raises(TurnoutError, match=r"cannot be reached: .*no record is skipped") as caught:
        client(f"http://127.0.0.1:{free_port()}").schema(7)
    assert caught.value.code == "registry_unreachable"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the registry (`registry`) and of Turnout (`turnout`, `locked`), and those of a stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    own = Authority(folder)
    own.issue("registry", ("127.0.0.1",))
    own.issue("turnout")
    own.issue("locked", key_password="key-password")
    Authority(folder / "stranger").issue("turnout")
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[Scripted]:
    """A registry and a token endpoint that want a client's certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "registry.pem", certificates / "registry.key")
    tls.load_verify_locations(certificates / "ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    with scripted({"/subjects": (200, ["a"])}, tls) as script:
        yield script


OWN = {"ca_file": "ca.pem", "certificate_file": "turnout.pem", "key_file": "turnout.key"}
LOCKED = OWN | {"certificate_file": "locked.pem", "key_file": "locked.key"}


def secured_client(url: str, folder: Path, auth: dict[str, str]) -> SchemaRegistry:
    return client(
        url, **{name: str(folder / value) if name.endswith("_file") else value for name, value in auth.items()}
    )


@pytest.mark.parametrize("auth", [OWN, LOCKED | {"key_password": "key-password"}])
def test_registry_with_a_private_authority_is_reached_with_a_certificate(
    auth: dict[str, str], secured: Scripted, certificates: Path
) -> None:
    assert secured_client(secured.url, certificates, auth).reach() == 1


CERTIFICATES = "check schema_registry.url, and the certificates and keys of schema_registry.auth"
AUTHORITY = "check schema_registry.url and schema_registry.auth.ca_file"


@pytest.mark.parametrize(
    ("auth", "said", "hint"),
    [
        ({}, "its certificate is not trusted (", AUTHORITY),
        (OWN | {"ca_file": "stranger/ca.pem"}, "its certificate is not trusted (", AUTHORITY),
        (OWN | {"ca_file": "registry.key"}, "TLS failed (", CERTIFICATES),
        (OWN | {"ca_file": "none.pem"}, "/none.pem cannot be read (No such file", "check the files of schema_reg"),
        (OWN | {"key_file": "none.key"}, "/none.key cannot be read (No such file", "check the files of schema_reg"),
        (OWN | {"key_file": "stranger/turnout.key"}, "TLS failed (", CERTIFICATES),
        (LOCKED | {"key_password": "wrong"}, "TLS failed (", CERTIFICATES),
    ],
)
def test_certificate_that_cannot_be_used_is_named_with_its_setting(
    auth: dict[str, str], said: str, hint: str, secured: Scripted, certificates: Path
) -> None:
    with pytest.raises(TurnoutError) as caught:
        secured_client(secured.url, certificates, auth).reach()
    assert (caught.value.code, caught.value.status) == ("registry_unreachable", 503)
    assert said in caught.value.message
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("ca_file", "said", "hint"),
    [
        (
            "stranger/ca.pem",
            "its certificate is not trusted (",
            "token_endpoint and schema_registry.auth.oauth.ca_file",
        ),
        ("none.pem", "/none.pem cannot be read (No such file", "check the files of schema_registry.auth.oauth"),
    ],
)
def test_authority_of_a_token_endpoint_that_cannot_be_used_is_named(
    ca_file: str, said: str, hint: str, secured: Scripted, certificates: Path
) -> None:
    oauth = {"token_endpoint": f"{secured.url}/token", "client_id": "c", "client_secret": "s"}
    with pytest.raises(TurnoutError) as caught:
        client("http://127.0.0.1:1", oauth=oauth | {"ca_file": str(certificates / ca_file)}).reach()
    assert said in caught.value.message and hint in caught.value.hint


def test_identity_is_sent() -> None:
    with scripted({"/subjects": (200, ["a", "b"])}) as script:
        assert client(script.url, username="ü", password="p:w").reach() == 2
        basic = base64.b64encode("ü:p:w".encode()).decode()
        assert script.headers("/subjects")["authorization"] == f"Basic {basic}"
        script.heard.clear()
        client(script.url, token="secret-token").reach()
        assert script.headers("/subjects")["authorization"] == "Bearer secret-token"


def test_token_is_asked_for_once_and_again_when_it_is_refused() -> None:
    answers: dict[str, tuple[int, Any]] = {
        "/token": (200, {"access_token": "issued", "expires_in": 300}),
        "/subjects": (200, []),
    }
    with scripted(answers) as script:
        oauth = {"token_endpoint": f"{script.url}/token", "client_id": "c", "client_secret": "s", "scope": "x y"}
        registry = client(script.url, oauth=oauth | {"extensions": {"logicalCluster": "lsrc-1"}})
        registry.reach()
        registry.reach()
        assert [path for path, _ in script.heard] == ["/token", "/subjects", "/subjects"]
        headers = script.headers("/subjects")
        assert (headers["authorization"], headers["target-sr-cluster"]) == ("Bearer issued", "lsrc-1")
        assert script.headers("/token")["authorization"] == f"Basic {base64.b64encode(b'c:s').decode()}"
        script.answers["/subjects"] = (401, {})
        for _ in range(2):
            with pytest.raises(TurnoutError, match="401"):
                registry.reach()
        assert [path for path, _ in script.heard].count("/token") == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {"error": "invalid_client"}), "answered 401 invalid_client"),
        (
            (400, {"error": "bad", "error_description": "s-e-c-r-e-t has expired"}),
            "answered 400 bad: ******** has expired",
        ),
        ((404, "<html>"), "answered 404 Not Found"),
        ((200, "<html>"), "no token"),
        ((200, "[" * 100_000), "an answer that is not a token"),
        ((200, {"access_token": "x" * 9_000_000}), "an answer that is not a token"),
        ((200, {"access_token": ""}), "an answer that is not a token"),
        ((200, {"access_token": None}), "an answer that is not a token"),
        ((200, {"access_token": "x", "expires_in": 10**400}), "an answer that is not a token"),
    ],
)
def test_token_endpoint_that_refuses_is_named(answer: tuple[int, Any], said: str) -> None:
    with scripted({"/token": answer}) as script:
        oauth = {"token_endpoint": f"{script.url}/token", "client_id": "c", "client_secret": "s-e-c-r-e-t"}
        with pytest.raises(TurnoutError) as caught:
            client(script.url, oauth=oauth).schema(1)
    assert said in str(caught.value) and f"{script.url}/token" in str(caught.value)
    assert "s-e-c-r-e-t" not in str(caught.value)


def referring(*subjects: str) -> tuple[int, dict[str, Any]]:
    """The answer with a schema that refers to others, each under two names."""
    names = [(f"{subject}{of}", subject) for subject in subjects for of in "ab"]
    return 200, {"schema": "{}", "references": [{"name": n, "subject": s, "version": 1} for n, s in names]}


def test_schema_that_others_refer_to_is_asked_for_once() -> None:
    """Thirty that refer twice to the next would be a thousand million requests."""
    answers = {f"/subjects/s{number}/versions/1?deleted=true": referring(f"s{number + 1}") for number in range(30)}
    answers |= {"/subjects/s30/versions/1?deleted=true": referring(), "/schemas/ids/7": referring("s0")}
    with scripted(answers) as script:
        schema = client(script.url).schema(7)
        assert len(script.heard) == len(answers)
    assert schema is not None and schema.missing is None
    names = [name for name, _ in schema.all()]
    assert names == [f"s{number}{of}" for number in range(30, -1, -1) for of in "ab"]


def test_schema_that_refers_to_itself_lacks_itself() -> None:
    answers = {"/schemas/ids/7": referring("s"), "/subjects/s/versions/1?deleted=true": referring("s")}
    with scripted(answers) as script:
        schema = client(script.url).schema(7)
    assert schema is not None and schema.missing == "sa"


def test_schemas_that_are_referred_to_are_not_asked_for_without_end() -> None:
    answers = {f"/subjects/s{number}/versions/1?deleted=true": referring(f"s{number + 1}") for number in range(300)}
    with scripted(answers | {"/schemas/ids/7": referring("s0")}) as script:
        schema = client(script.url).schema(7)
        assert len(script.heard) == MOST_REFERENCES + 2
    assert schema is not None and len(list(schema.all())) > MOST_REFERENCES


@pytest.mark.parametrize("answer", ["[" * 100_000, {"schema": "x" * 9_000_000}])
def test_answer_that_is_too_deep_or_too_large_is_an_error(answer: Any) -> None:
    with scripted({"/schemas/ids/7": (200, answer)}) as script, pytest.raises(TurnoutError) as caught:
        client(script.url).schema(7)
    assert caught.value.code == "registry_unreachable"
