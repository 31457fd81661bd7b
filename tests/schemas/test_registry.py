"""The client of schema registries: what it sends, and what it makes of each answer."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from scripted_registry import scripted
from turnout.config import RegistrySettings
from turnout.errors import TurnoutError
from turnout.local.broker import free_port
from turnout.schemas.registry import RegisteredSchema, SchemaRegistry


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
    [((401, {"error": "invalid_client"}), "answered 401 invalid_client"), ((200, "<html>"), "no token")],
)
def test_token_endpoint_that_refuses_is_named(answer: tuple[int, Any], said: str) -> None:
    with scripted({"/token": answer}) as script:
        oauth = {"token_endpoint": f"{script.url}/token", "client_id": "c", "client_secret": "s-e-c-r-e-t"}
        with pytest.raises(TurnoutError) as caught:
            client(script.url, oauth=oauth).schema(1)
    assert said in str(caught.value) and f"{script.url}/token" in str(caught.value)
    assert "s-e-c-r-e-t" not in str(caught.value)
