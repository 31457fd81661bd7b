"""The OpenAPI document: it tells every call and every error, and what is sent by it is answered as it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

import turnout.serve
import turnout_client
from fake_orchestrator import STATUS, ApplyingOrchestrator, sources_named
from http_server import small_store
from lengths import API_EXAMPLES, LONG
from turnout.errors import ERRORS, PROGRAM_ERRORS, TurnoutError
from turnout.plan.joins import Join
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.serve.control_api import ControlApi
from turnout.serve.limits import Rate, Rates
from turnout.serve.routes import Call
from turnout.store.database import Database

if TYPE_CHECKING:
    from schemathesis import Case

REFERENCE = (Path(__file__).parents[2] / "docs/reference/http.md").read_text()
CALLS = re.findall(r"^\| `(GET|POST|PUT|DELETE) (/\S*)` \|", REFERENCE, re.MULTILINE)
SERVER = Path(turnout.serve.__file__).parent
SOURCES = ("users", "accounts")
UNLIMITED = Rates(reads=Rate(1e6, 10**6), controls=Rate(1e6, 10**6))
# More than a schema can say: texts of windows, summaries and SQL, times before Kafka's, and 7.0 for a generation.
BEYOND_SCHEMA = re.compile(
    "where|sort|columns|name:|topic:|saved:|row:|by:|values:|sql:|limit: .* (too many for JSON|valid integer)|"
    "start: timestamp|expectedGeneration: .*[.e]|from and to are both"
)
SINK = {
    "name": "final_out",
    "table": "final_ui",
    "topic": "final-joined",
    "format": "json",
    "delivery": "exactly_once",
    "state": "failing",
    "error": "topic 'final-joined' does not exist; create it",
    "generation": 1,
    "version": 3,
    "records": 12,
    "lastWritten": None,
    "waitingVersions": 2,
    "waitingRows": 7,
}


ALERT = {
    "name": "large",
    "table": "final_ui",
    "where": "balance > 1",
    "to": "webhook hooks.example.com",
    "state": "failing",
    "error": "the webhook hooks.example.com answered 500",
    "rows": 3,
    "waiting": 2,
    "events": 5,
    "delivered": 3,
    "dropped": 0,
    "lastDelivered": None,
}


class Steered(ApplyingOrchestrator):
    def status(self) -> dict[str, Any]:
        more = {
            "start": "latest",
            "records": 3,
            "recordsPerSecond": 0.5,
            "progress": None,
            "lingering": [],
            "candidate": None,
        }
        more |= {"sinks": [SINK], "alerts": [ALERT], "leftOut": [{"view": "final_ui", "keys": 1, "first": ["hot"]}]}
        return {**STATUS, **more, "sources": SOURCES, "joins": list(Join), "ready": True, "reason": "published"}

    def test_alert(self, name: str) -> None:
        raise TurnoutError("unknown_alert", f"no alert {name!r}", "alerts: none")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with small_store(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    (folder / "index.html").write_text("<!doctype html>")
    return folder


@pytest.fixture(scope="module")
def app(database: Database, static: Path) -> ASGIApp:
    made = create_app(Services(database, Steered(**sources_named(*SOURCES))), Access(rates=UNLIMITED), static)

    async def from_this_machine(scope: Scope, receive: Receive, send: Send) -> None:
        """SQL is taken from nowhere else where there are no tokens."""
        await made({**scope, "client": ("127.0.0.1", 50_000)}, receive, send)

    return from_this_machine


@pytest.fixture(scope="module")
def told(app: ASGIApp) -> Any:
    import schemathesis  # takes a second, also in workers that run other files

    return schemathesis.openapi.from_asgi("/api/openapi.json", app)


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_call_answers_as_the_document_says(told: Any, method: str, path: str) -> None:
    ask(told[path][method], positive=True)


# Any text is a name, here and for each DELETE, and a logout takes nothing at all: there is nothing to make wrong.
ANY_NAME = ("/api/saved/{name}", "/api/alerts/{name}/test", "/logout")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, path)
        for method, path in CALLS
        if method == "PUT" or (path not in ANY_NAME and (method == "POST" or (method == "GET" and "{" in path)))
    ],
)
def test_call_refuses_what_the_document_does_not_allow(told: Any, method: str, path: str) -> None:
    ask(told[path][method], positive=False)


def ask(call: Any, *, positive: bool) -> None:
    """The same requests in each run, so that a change fails by what it changed; new ones in the long form."""
    from schemathesis import GenerationMode

    mode = GenerationMode.POSITIVE if positive else GenerationMode.NEGATIVE
    cases: SearchStrategy[Case[Any]] = call.as_strategy(generation_mode=mode)
    chosen = settings(
        max_examples=API_EXAMPLES, derandomize=not LONG, deadline=None, suppress_health_check=list(HealthCheck)
    )
    chosen(given(cases)(assert_as_told))()


def assert_as_told(case: Case[Any]) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        negative_data_rejection,
        positive_data_acceptance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    answer = case.call()
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    # A message that nobody waits for is answered before it is decided; a body or an address that is too large is
    # refused unread, in bytes that no schema counts, by a status that the checks know nothing of. A body of white space
    # counts as none.
    if answer.status_code not in (202, 413, 414) and not is_blank(answer.request.body):
        checks.append(negative_data_rejection)
    error = answer.json()["error"] if answer.status_code in (400, 422) else {"code": "", "message": ""}
    # What a configuration may hold is said by its own reference.
    beyond = error["code"] == "config_invalid" or BEYOND_SCHEMA.match(error["message"])
    if answer.status_code != 413 and not beyond:
        checks.append(positive_data_acceptance)
    case.validate_response(answer, checks=checks)


def is_blank(body: object) -> bool:
    return isinstance(body, bytes | str) and not body.strip()


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_call_by_another_method_is_refused(app: ASGIApp, method: str, path: str) -> None:
    for other in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {known for known, of in CALLS if of == path}:
        answer = TestClient(app).request(other, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
        assert method in answer.headers["allow"]


def document(app: ASGIApp, headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = TestClient(app).get("/api/openapi.json", headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_document_is_openapi(told: Any) -> None:
    told.validate()
    assert told.raw_schema["openapi"].startswith("3.1.")


def test_document_has_every_call_of_the_reference(app: ASGIApp) -> None:
    paths = document(app)["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(CALLS)


def test_errors_that_the_server_raises_are_known() -> None:
    raised = {code for path in SERVER.rglob("*.py") for code in raised_in(path)}
    assert raised <= set(ERRORS) | set(PROGRAM_ERRORS)
    assert len(raised) > 15


def test_errors_of_a_swap_are_known() -> None:
    rules = ("plan/swap_rules", "plan/control")
    modules = (*rules, "swap/builder", "swap/orchestrator", "schemas/registry", "kafka/topics", "spark/views/own_sql")
    raised = {code for module in modules for code in raised_in(SERVER.parent / f"{module}.py")}
    call: Call = ControlApi.control.call  # type: ignore[attr-defined]
    assert raised <= set(ERRORS)
    assert raised <= set(call.codes)


def test_error_has_the_status_of_its_code_wherever_it_is_raised() -> None:
    """The clients say `closed` of themselves, with another status; a wrong configuration is no error of a server."""
    modules = [*SERVER.parent.rglob("*.py"), *Path(turnout_client.__file__).parent.rglob("*.py")]
    spelled = {pair for path in modules for pair in spelled_in(path)}
    assert {code for code, status in spelled if code in ERRORS and status != ERRORS[code].status} == {"closed"}


def test_progress_of_a_build_is_a_part_of_a_percent(database: Database) -> None:
    progress = document(create_app(Services(database, Steered())))["components"]["schemas"]["BuildProgress"]
    assert progress["properties"]["percent"]["type"] == "number"


def raised_in(path: Path) -> Iterator[str]:
    """The code of every error that is spelled out in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            named = [word.value for word in node.keywords if word.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id == "TurnoutError":
                named += node.args[:1]
            yield from (one.value for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str))


def spelled_in(path: Path) -> Iterator[tuple[str, int]]:
    """Code and status of every error whose status is spelled out in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            given: dict[str | None, Any] = {
                word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)
            }
            if isinstance(given.get("code"), str) and "status" in given:
                yield given["code"], given["status"]


def test_document_with_access_asks_for_a_token_where_the_gate_does(database: Database) -> None:
    tokens = Tokens([(Identity("ops", "operator"), "t" * 32)])  # type: ignore[arg-type]
    app = create_app(Services(database, Steered(**sources_named(*SOURCES))), Access(tokens))
    assert TestClient(app).get("/api/openapi.json").status_code == 401
    told = document(app, {"Authorization": f"Bearer {'t' * 32}"})
    operations = {path: next(iter(methods.values())) for path, methods in told["paths"].items()}
    free = {path for path, operation in operations.items() if "security" not in operation}
    assert free == {"/", "/healthz", "/readyz"}
    assert all(("401" in operation["responses"]) == (path not in free) for path, operation in operations.items())


def test_document_has_the_fields_of_each_source(database: Database) -> None:
    app = create_app(Services(database, Steered(**sources_named("orders"))))
    schemas = document(app)["components"]["schemas"]
    assert "ordersTopic" in schemas["ChangeMessage"]["properties"]
    assert "ordersTopic" in schemas["Status"]["properties"]
    assert "usersTopic" not in {**schemas["ChangeMessage"]["properties"], **schemas["Status"]["properties"]}
