"""Who is let in, by real servers: tokens and roles, secrets in no answer, and the headers of every answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from access_site import ACCESS, OPS, TABLE, WALL, Site, encoded, error_of, refusal, settings, site
from fake_orchestrator import FakeOrchestrator
from http_server import SECONDS, serving, small_store
from turnout.errors import ConfigError
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app

# -- tokens and roles


@pytest.mark.parametrize(
    "path", ["/api/status", "/api/tables", TABLE, "/api/swaps", "/api/topics", "/nope", "/metrics"]
)
def test_request_without_a_token_is_unauthorized(protected: Site, path: str) -> None:
    answer = protected.get(path)
    error_of(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong-token-0123456789",
        f"Bearer {OPS[:-1]}",
        f"Bearer {OPS}x",
        f"Bearer {OPS.upper()}",
        "Bearer",
        f"Basic {OPS}",
        OPS,
        f"Bearer {OPS}, Bearer {OPS}",
        "Bearer \xe9\xff",
    ],
)
def test_wrong_token_is_unauthorized(protected: Site, header: str) -> None:
    for method, path in (("GET", "/api/status"), ("POST", "/api/control")):
        answer = protected.http.request(method, path, headers=[(b"Authorization", header.encode("latin-1"))])
        error_of(answer, 401, "unauthorized")
    assert protected.queue.requesters == []


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_right_token_reads(protected: Site, kind: str) -> None:
    for token in (OPS, WALL):
        assert protected.get(Authorization=f"{kind} {token}").status_code == 200
        assert protected.get("/metrics", Authorization=f"{kind} {token}").status_code == 200


def test_page_and_probes_need_no_token(protected: Site) -> None:
    for path in ("/healthz", "/readyz"):
        assert protected.get(path).status_code == 200
        assert protected.get(path, "wrong-token-0123456789").status_code == 200
    assert protected.get("/").status_code in (200, 503)  # 503: not built here
    assert protected.get("/static/nope.js").status_code == 404


@pytest.mark.parametrize("path", ["/api/control", "/api/rollback", "/api/cancel", "/api/publish", "/api/discard"])
def test_viewer_may_not_steer(protected: Site, path: str) -> None:
    error = error_of(protected.post(WALL, path), 403, "forbidden")
    assert "wall" in error["message"]
    assert protected.queue.requesters == []
    assert protected.post(OPS, path).status_code == 200


def test_history_has_the_name_of_the_token(protected: Site) -> None:
    assert protected.post(OPS, **{"X-Turnout-Client": "somebody"}).status_code == 200
    assert protected.queue.requesters == ["ops"]


def test_history_has_the_name_of_the_client_without_tokens(open_site: Site) -> None:
    for name in ("Page", "topic", "a b"):
        assert open_site.post(**{"X-Turnout-Client": name}).status_code == 200
    assert open_site.queue.requesters == ["page", "http", "http"]


@pytest.mark.parametrize("name", ["token", "access_token", "authorization"])
def test_token_in_an_address_is_never_taken(protected: Site, name: str) -> None:
    error_of(protected.get(f"/api/status?{name}={OPS}"), 401, "unauthorized")
    answer = protected.get(f"/api/status?{name}={OPS}", OPS)
    error_of(answer, 400, "unknown_parameter")
    assert OPS not in answer.text


def test_token_file_is_read_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{OPS}\n")
    with site(tmp_path, "access: {tokens: [{name: ops, role: operator, token_file: secret}]}") as running:
        assert running.get(token=OPS).status_code == 200
        error_of(running.get(), 401, "unauthorized")


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        ("{name: a, role: viewer, token: fifteen-letters}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer, token: with a blank inside}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer, token: ééééééééééééééééééé}", "access.tokens[0].token: must be 16 to 512"),
        ("{name: a, role: viewer}", "access.tokens[0].token: is missing; add it, or token_file"),
        (
            f"{{name: a, role: viewer, token: {OPS}, token_file: x}}",
            "access.tokens[0].token_file: is given beside token; remove one of them",
        ),
        (
            f"{{name: a, role: viewer, token: {OPS}}}, {{name: a, role: viewer, token: {WALL}}}",
            "access.tokens[1].name: 'a' already exists; choose another name",
        ),
        (
            f"{{name: a, role: viewer, token: {OPS}}}, {{name: b, role: viewer, token: {OPS}}}",
            "access.tokens[1].token: is already the token of another name; give each name its own",
        ),
        (f"{{name: topic, role: viewer, token: {OPS}}}", "access.tokens[0].name: 'topic' means something else"),
    ],
)
def test_access_that_is_wrong_is_a_fault_of_the_configuration(tmp_path: Path, tokens: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"access: {{tokens: [{tokens}]}}")
    (found,) = caught.value.faults
    assert found.startswith(f"line 1: {fault}")
    assert OPS not in found


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"short\n", "must be 16 to 512"),
        (b"", "must be 16 to 512"),
        (b"\xff\xfe" * 20, "cannot be read (it is not text)"),
        (OPS.encode(), "is already the token of another name"),
    ],
)
def test_token_file_that_is_wrong_is_a_fault_of_the_configuration(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    text = (
        f"access: {{tokens: [{{name: a, role: viewer, token: {OPS}}}, {{name: b, role: viewer, token_file: secret}}]}}"
    )
    chosen = settings(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Access.of(chosen)
    (found,) = caught.value.faults
    assert found.startswith("access.tokens[1].token_file: ")
    assert fault in found
    assert "short" not in found


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        ("allowed_origins: ['*']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: ['https://app.example/']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: ['null']", "server.allowed_origins[0]: must look like https://app.example"),
        ("allowed_origins: https://app.example", "server.allowed_origins: must be a list"),
        ("max_viewers: 2000", "server: max_viewers is 2000, more than max_connections (1000)"),
        ("max_connections: 0", "server.max_connections: must be at least 1"),
    ],
)
def test_server_settings_that_are_wrong_are_faults(tmp_path: Path, server: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"server: {{{server}}}")
    assert caught.value.faults[0].startswith(f"line 1: {fault}")


def test_secrets_are_in_no_log_and_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "wrong-token-9876543210"
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG), site(tmp_path, ACCESS) as running:
        for token in (OPS, WALL, wrong):
            for path in ("/", "/api/status", "/api/tables", "/api/swaps", "/api/topics", TABLE, f"/nope?token={token}"):
                answer = running.get(path, token)
                seen += [answer.text, str(answer.headers)]
            for path in (
                "/api/control",
                "/api/rollback",
                "/api/publish",
                "/api/discard",
                f"/api/control?token={token}",
            ):
                seen.append(running.post(token, path).text)
            seen.append(str(refusal(running.url, token=token, path=f"/api/nope?token={token}")))
        for table in ("orchestrator_logs", "control_raw", "swaps", "orchestrator_status"):
            seen.append(running.get(f"/api/tables/{table}/rows", OPS).text)
    logged = [record.getMessage() + str(record.exc_info) for record in caplog.records if of_the_server(record)]
    text = "\n".join([*seen, *logged, repr(settings(tmp_path, ACCESS))])
    for secret in (OPS, WALL, wrong, encoded(OPS), encoded(WALL), encoded(wrong)):
        assert secret not in text


def of_the_server(record: logging.LogRecord) -> bool:
    """The clients of this test log what they send."""
    return not record.name.startswith(("httpx", "httpcore", "websockets.client"))


# -- headers and the page


def test_every_answer_has_security_headers(protected: Site) -> None:
    answers = [
        protected.get("/"),
        protected.get("/healthz"),
        protected.get(),
        protected.get(token=OPS),
        protected.post(WALL),
    ]
    answers.append(protected.get("/static/nope"))
    for answer in answers:
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script" not in policy  # so scripts are the server's own, and eval is not allowed
        assert "server" not in headers


@contextmanager
def page(folder: Path, index: str | None, **server: Any) -> Iterator[httpx.Client]:
    static = folder / "static"
    if index is not None:
        (static / "assets").mkdir(parents=True)
        (static / "index.html").write_text(index)
        (static / "assets" / "index-abc123.js").write_text("//")
        (static / "icon.svg").write_text("<svg/>")
    orchestrator = FakeOrchestrator(server=server)
    with (
        small_store(folder / "store") as database,
        serving(create_app(Services(database, orchestrator), static=static)) as url,
        httpx.Client(base_url=url, timeout=SECONDS, verify=False) as client,
    ):
        yield client


def test_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    with page(tmp_path, None) as client:
        assert "make setup" in error_of(client.get("/"), 503, "page_not_built")["hint"]
        error_of(client.get("/static/assets/index-abc123.js"), 404, "not_found")
        assert client.get("/api/status").status_code == 200


def test_parts_with_a_hash_are_kept_and_the_page_is_not(tmp_path: Path) -> None:
    with page(tmp_path, "<p>") as client:
        assert "immutable" in client.get("/static/assets/index-abc123.js").headers["cache-control"]
        for path in ("/", "/static/icon.svg", "/static/index.html"):
            assert client.get(path).headers["cache-control"] == "no-cache"


def test_only_named_sites_have_the_page_in_a_frame_and_only_its_embedded_form(tmp_path: Path) -> None:
    def ancestors(client: httpx.Client, path: str) -> str:
        return client.get(path).headers["content-security-policy"].partition("frame-ancestors ")[2]

    with page(tmp_path / "none", "<p>") as client:
        assert ancestors(client, "/?embed=1") == "'none'"
    sites = ("https://wiki.example", "http://localhost:4200")
    with page(tmp_path / "some", "<p>", embed_origins=sites) as client:
        assert ancestors(client, "/?embed=1") == "https://wiki.example http://localhost:4200"
        for path in ("/", "/?embed=0", "/static/index.html", "/api/tables"):
            assert ancestors(client, path) == "'none'"


def test_page_with_a_nonce_needs_no_other_right_to_styles(tmp_path: Path) -> None:
    with page(tmp_path, '<meta property="csp-nonce" nonce="__CSP_NONCE__">') as client:
        answers = [client.get("/"), client.get("/")]
    assert answers[0].text != answers[1].text
    for answer in answers:
        nonce = answer.text.split('nonce="')[1].split('"')[0]
        assert f"style-src 'self' 'nonce-{nonce}'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
