"""The audit: what is shipped and vulnerable fails, what only tests use is told, and an absent service is no failure."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
audit = runpy.run_path(str(ROOT / "scripts" / "audit.py"))

LOCK = """\
idna==3.1 \\
    --hash=sha256:00
    # via
    #   httpx
    #   requests
httpx==1.0 \\
    --hash=sha256:00
    # via turnout (pyproject.toml)
requests==2.0 \\
    --hash=sha256:00
    # via turnout (pyproject.toml:dev)
"""


def python_report(**found: list[str] | None) -> dict[str, Any]:
    """As pip-audit prints it; None for a package that it could not ask about."""
    return {
        "dependencies": [
            {"name": name, "skip_reason": "not found"}
            if ids is None
            else {"name": name, "version": "1", "vulns": [{"id": one, "fix_versions": ["2"]} for one in ids]}
            for name, ids in found.items()
        ]
    }


def test_shipped_packages_are_those_that_turnout_needs() -> None:
    assert audit["shipped_packages"](LOCK) == {"idna", "httpx"}
    shipped = audit["shipped_packages"]((ROOT / "requirements.lock").read_text())
    assert {"pyspark", "py4j", "starlette", "anyio"} <= shipped
    assert not {"pytest", "pip-audit", "requests"} & shipped


def test_vulnerability_of_a_shipped_package_is_an_error() -> None:
    found = audit["python_findings"](python_report(idna=["PYSEC-1"], requests=["PYSEC-2"]), {"idna", "httpx"})
    assert [str(finding) for finding in found] == [
        "error: idna 1 has PYSEC-1; fixed in: 2",
        "warning (not shipped): requests 1 has PYSEC-2; fixed in: 2",
    ]


def test_vulnerability_counts_even_where_the_service_knows_not_all() -> None:
    [finding] = audit["python_findings"](python_report(idna=["PYSEC-1"], httpx=None), {"idna", "httpx"})
    assert finding.shipped


def test_service_that_does_not_know_a_shipped_package_is_told() -> None:
    with pytest.raises(audit["Unanswered"], match="1 of 2 shipped"):
        audit["python_findings"](python_report(idna=[], httpx=None), {"idna", "httpx"})
    assert audit["python_findings"](python_report(idna=[], requests=None), {"idna"}) == []


def test_vulnerability_of_the_page_is_an_error() -> None:
    advisory = {"title": "Prototype pollution", "severity": "high"}
    report = {
        "vulnerabilities": {
            "grid": {"range": "<34", "via": [advisory], "fixAvailable": {"name": "grid", "version": "34.0.0"}},
            "page": {"range": "*", "via": ["grid"], "fixAvailable": False},
        }
    }
    [finding] = audit["web_findings"](report)
    assert str(finding) == "error: grid <34 has Prototype pollution; fixed in: grid 34.0.0"


def test_npm_without_an_audit_service_is_told() -> None:
    with pytest.raises(audit["Unanswered"]):
        audit["web_findings"]({"message": "405 Method Not Allowed", "statusCode": 405})


@pytest.mark.parametrize("answers", [True, False])
def test_audit_fails_only_by_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers: bool
) -> None:
    names = audit["main"].__globals__
    found = [audit["Finding"]("idna", "1", "PYSEC-1", "", True)]

    def ask(*folder: Any) -> list[Any]:
        if answers:
            return found
        raise audit["Unanswered"]("its service cannot be reached")

    monkeypatch.setitem(names, "ask_python", ask)
    monkeypatch.setitem(names, "ask_web", ask)
    assert audit["main"]() == int(answers)
    said = capsys.readouterr()
    assert ("skipped, its service cannot be reached" in said.out) is not answers
    assert ("error: idna 1 has PYSEC-1; fixed in: none" in said.err) is answers
