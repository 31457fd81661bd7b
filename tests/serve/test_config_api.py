"""The calls of the configuration: who may, what is shown, what a file becomes in the store, and limits that change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fake_orchestrator import ApplyingOrchestrator
from http_server import HTTP, OWNER, owned, serving, small_store
from live_socket import Socket
from turnout.config import Role
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.store.database import Database
from turnout_client import connect
from turnout_client.messages import Problem

OWNED = {"Authorization": f"Bearer {OWNER}"}
OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"
SECRETS = {"kafka": {"properties": {"client.id": "hunter2"}}, "spark": {"conf": {"spark.a": "hunter2"}}}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with small_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def orchestrator() -> ApplyingOrchestrator:
    return ApplyingOrchestrator(**SECRETS)


@pytest.fixture
def url(database: Database, orchestrator: ApplyingOrchestrator) -> Iterator[str]:
    with serving(create_app(Services(database, orchestrator), owned())) as url:
        yield url


def put(url: str, document: dict[str, Any] | str | bytes, **query: str) -> httpx.Response:
    body = yaml.safe_dump(document) if isinstance(document, dict) else document
    return HTTP.put(f"{url}/api/config", content=body, params=query, headers=OWNED)


def test_file_in_force_shows_no_secret_and_can_be_sent_back(url: str, orchestrator: ApplyingOrchestrator) -> None:
    answer = HTTP.get(f"{url}/api/config")
    assert answer.headers["content-type"].startswith("application/yaml") and "hunter2" not in answer.text
    assert yaml.safe_load(answer.text)["spark"]["conf"] == {"spark.a": "***"}
    back = put(url, answer.text).json()
    assert (back["outcome"], back["changes"]) == ("unchanged", [])
    changed = yaml.safe_load(answer.text) | {"store": {"log_rows": 5}}
    assert put(url, changed, requestId="r1").json()["requestId"] == "r1"
    assert yaml.safe_load(HTTP.get(f"{url}/api/config").text)["store"] == {"log_rows": 5}
    assert "hunter2" not in "".join(record.raw or "" for record in orchestrator.records)


def test_store_keeps_nothing_of_a_file_with_faults(url: str, orchestrator: ApplyingOrchestrator) -> None:
    answer = put(url, {"kafka": {"auth": {"pasword": "hunter2"}}, "acces": {"token": "hunter2"}})
    assert (answer.status_code, answer.json()["outcome"]) == (422, "rejected")
    assert len(answer.json()["error"]["message"].splitlines()) >= 2 and "hunter2" not in answer.text
    [record] = orchestrator.records
    assert json.loads(record.raw or "") == {"action": "apply", "dryRun": False}
    assert "hunter2" not in (record.refused or "")


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"", "the file is empty"), (b"\xff\xfe", "not UTF-8"), (b"[]", "must be a mapping"), (b"a: {", "not YAML")],
)
def test_body_that_is_no_file_is_refused(url: str, body: bytes, message: str) -> None:
    answer = put(url, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "config_invalid")
    assert message in answer.json()["error"]["message"]
    assert (answer.json()["outcome"], answer.json()["changes"]) == ("rejected", [])


def test_body_of_another_kind_or_size_is_refused(url: str) -> None:
    answer = HTTP.put(f"{url}/api/config", content="{}", headers=OWNED | {"Content-Type": "text/html"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    answer = put(url, "# " + "x" * 300_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "message_too_large")
    # What is small as it is sent, and would fill the memory as it is read.
    lines = "".join(f"\n  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(12))
    answer = put(url, f"x:{lines}").json()
    assert answer["error"]["code"] == "config_invalid" and "without anchors" in answer["error"]["message"]


def test_files_are_for_operators(database: Database, orchestrator: ApplyingOrchestrator) -> None:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPERATOR), (Identity("eye", Role.VIEWER), VIEWER)])
    app = create_app(Services(database, orchestrator), Access(tokens))
    with serving(app) as url:
        assert HTTP.get(f"{url}/api/config").status_code == 401
        head = {"Authorization": f"Bearer {VIEWER}"}
        for path in ("/api/config", "/api/config/history"):
            answer = HTTP.get(f"{url}{path}", headers=head)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        answer = HTTP.put(f"{url}/api/config", content="{}", headers=head)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert orchestrator.records == []
        with connect(url, OPERATOR) as client:
            assert client.apply("kafka: {properties: {client.id: '***'}}\nspark: {conf: {spark.a: '***'}}")[
                "outcome"
            ] == ("unchanged")
            rejected = client.apply("server: {port: 1}", dry_run=True, request_id="r", expected_generation=1)
            assert rejected["error"]["code"] == "restart_needed" and rejected["requestId"] == "r"
            assert "***" in client.config() and client.config_history() == []
        assert {record.requester for record in orchestrator.records} == {"ops"}


def test_server_without_tokens_takes_a_file_of_its_own_user_alone(
    database: Database, orchestrator: ApplyingOrchestrator, url: str
) -> None:
    def status(headers: dict[str, str], query: str = "") -> int:
        answer = HTTP.put(f"{url}/api/config{query}", content="{}", headers=headers)
        if answer.status_code == 403:
            assert answer.json()["error"]["code"] == "forbidden" and "turnout apply" in answer.json()["error"]["hint"]
        return answer.status_code

    forwarded = {"X-Forwarded-For": "127.0.0.1"}
    for headers in ({}, {"Authorization": f"Bearer {OPERATOR}"}, OWNED | forwarded, OWNED | {"Forwarded": "for=x"}):
        assert status(headers) == status(headers, "?dryRun=true") == 403
    assert orchestrator.records == [], "nothing was parsed"
    assert status(OWNED) == 422
    # Nobody is the owner of a server that made no token.
    with serving(create_app(Services(database, orchestrator))) as url:
        assert status(OWNED) == 403


@pytest.mark.parametrize(("mode", "codes"), [("off", [403] * 4), ("tables", [200, 200, 403, 403]), ("all", [200] * 4)])
def test_access_says_what_operators_may_change(database: Database, mode: str, codes: list[int]) -> None:
    def own(sql: str, name: str = "own") -> dict[str, Any]:
        return {name: {"on": "userId", "sources": ["users"], "columns": {"userId": "string"}, "sql": sql}}

    access = {"access": {"tokens": [{"name": "ops", "role": "operator", "token": OPERATOR}], "apply": mode}}
    before = access | {"views": own("select userId from users")}
    orchestrator = ApplyingOrchestrator(**before)
    gate = Access.of(orchestrator.configuration.settings)
    app = create_app(Services(database, orchestrator), gate)
    script = "select transform(userId) using 'id > RAN; cat' as (userId string) from users"
    sent = [
        before | {"server": {"max_viewers": 3}},
        before | {"views": before["views"] | {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}}},
        before | {"views": before["views"] | own(script, "more")},
        before | {"control": {"topics": ["*"]}},
    ]
    own_issuer = {"issuer": "https://evil.example", "client_id": "c", "client_secret": "s", "roles": {"operator": "a"}}
    with serving(app) as url:
        for document, code in zip(sent, codes, strict=True):
            head = {"Authorization": f"Bearer {OPERATOR}"}
            answer = HTTP.put(f"{url}/api/config?dryRun=true", content=yaml.safe_dump(document), headers=head)
            outcome = "unchanged" if code == 200 else "rejected"
            assert (answer.status_code, answer.json()["outcome"]) == (code, outcome), answer.text
            assert code == 200 or answer.json()["error"]["code"] == "forbidden"
        taken_over = before | {"access": before["access"] | {"oidc": own_issuer}}
        answer = HTTP.put(f"{url}/api/config", content=yaml.safe_dump(taken_over), headers=head)
        assert answer.json()["error"]["code"] == ("forbidden" if mode == "off" else "restart_needed"), answer.text


def test_file_that_runs_a_command_is_refused_before_it_is_run(url: str, tmp_path: Path) -> None:
    command = {"command": ["sh", "-c", f"id > {tmp_path}/RAN; echo x"]}
    plain = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "x", "password": command}
    for query in ({}, {"dryRun": "true"}):
        answer = put(url, SECRETS | {"kafka": {"auth": plain}}, **query).json()
        assert (answer["outcome"], answer["error"]["code"]) == ("rejected", "config_invalid")
        assert answer["error"]["message"].startswith("kafka.auth.password: a reference (")
    assert not (tmp_path / "RAN").exists()


def test_limits_of_an_applied_file_hold_at_once(url: str) -> None:
    limits = {
        "max_subscriptions_per_client": 1,
        "max_viewers": 2,
        "max_answer_megabytes": 1,
        "query_timeout_seconds": 9,
    }
    with Socket(url) as before:
        assert put(url, SECRETS | {"server": limits}).json()["outcome"] == "applied"
        before.send(type="status", id="a")
        before.send(type="window", id="b", table="users_ui")
        problem = next(message for _ in range(2) if isinstance(message := before.receive(), Problem))
        assert problem.error.code == "too_many_subscriptions" and "1 subscriptions" in problem.error.message
        with Socket(url), pytest.raises(Exception, match="503"):
            Socket(url)


def test_document_of_the_calls_follows_the_sources(url: str) -> None:
    def known() -> set[str]:
        schemas = HTTP.get(f"{url}/api/openapi.json").json()["components"]["schemas"]
        return {name for name in schemas["Status"]["properties"] if name.endswith("Topic")}

    put(url, SECRETS | {"swap": {"linger_seconds": 1}})
    assert known() == {"usersTopic", "accountsTopic"}
    source = {"topic": "o", "table": "o_ui", "key": "id", "columns": {"id": "string"}}
    assert put(url, SECRETS | {"sources": {"orders": source}, "views": {}}).json()["outcome"] == "applied"
    assert known() == {"ordersTopic"}
