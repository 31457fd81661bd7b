"""Check shipped packages for known vulnerabilities: pip-audit for Python, npm audit for the page and Angular.

`make audit` runs it, also as part of `make test`. A vulnerable shipped package is an error; a package that is used only
for builds and tests is a warning. If a service does not answer, one line says that the check was skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
TIMEOUT_SECONDS = 120
PIP_AUDIT = ["--require-hashes", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
_PACKAGE = re.compile(r"^([a-z0-9][a-z0-9._-]*)==", re.IGNORECASE)
# The lock does not list Turnout and its client, but names them as packages that need others.
_ITSELF = {"turnout (pyproject.toml)", "turnout-client"}


class Unanswered(Exception):  # noqa: N818 - printed, not raised to the caller
    """The service gave no answer, or an incomplete one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A known vulnerability of a package."""

    package: str
    version: str
    advisory: str
    mended_in: str
    shipped: bool

    def __str__(self) -> str:
        kind = "error" if self.shipped else "warning (not shipped)"
        return f"{kind}: {self.package} {self.version} has {self.advisory}; fixed in: {self.mended_in or 'none'}"


def shipped_packages(lock: str) -> set[str]:
    """Return the packages of the lock that Turnout needs, directly or indirectly, by the comments of the lock."""
    reasons: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lock.splitlines():
        if found := _PACKAGE.match(line):
            current = reasons.setdefault(found[1].lower(), [])
        elif line.startswith("    # "):
            current.append(line.removeprefix("    # ").removeprefix("via").strip())
    shipped = set(_ITSELF)
    while more := {name for name, whys in reasons.items() if name not in shipped and shipped.intersection(whys)}:
        shipped |= more
    return shipped - _ITSELF


def python_findings(report: dict[str, Any], shipped: set[str]) -> list[Finding]:
    """Return the findings of pip-audit; raise Unanswered if it could not check a shipped package."""
    skipped = [entry["name"] for entry in report["dependencies"] if "skip_reason" in entry and entry["name"] in shipped]
    found = [
        Finding(
            entry["name"], entry["version"], known["id"], ", ".join(known["fix_versions"]), entry["name"] in shipped
        )
        for entry in report["dependencies"]
        for known in entry.get("vulns", ())
    ]
    if skipped and not found:
        raise Unanswered(f"there is no data on {len(skipped)} of {len(shipped)} shipped packages")
    return found


def web_findings(report: dict[str, Any]) -> list[Finding]:
    """Return the findings of npm audit; raise Unanswered if its service refused."""
    if "vulnerabilities" not in report:
        raise Unanswered("the registry has no audit service")
    return list(_advisories(report["vulnerabilities"]))


def _advisories(vulnerabilities: dict[str, Any]) -> Iterator[Finding]:
    for name, entry in vulnerabilities.items():
        mended = entry["fixAvailable"]
        mended_in = f"{mended['name']} {mended['version']}" if isinstance(mended, dict) else "`npm audit fix`"
        for advisory in entry["via"]:
            # A string is the name of a dependency that has the advisory.
            if isinstance(advisory, dict):
                yield Finding(name, entry["range"], advisory["title"], mended_in if mended else "", shipped=True)


def ask_python() -> list[Finding]:
    command = [sys.executable, "-m", "pip_audit", *PIP_AUDIT, "-r", str(LOCK)]
    return python_findings(_report(command, ROOT), shipped_packages(LOCK.read_text(encoding="utf-8")))


def ask_web(folder: Path) -> list[Finding]:
    npm = [str(ROOT / ".venv/bin/node"), str(ROOT / ".venv/bin/npm")]
    return web_findings(_report([*npm, "audit", "--omit=dev", "--json"], folder))


def _report(command: list[str], folder: Path) -> dict[str, Any]:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        report: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {TIMEOUT_SECONDS} s") from None
    except ValueError:
        raise Unanswered("its service cannot be reached") from None
    return report


def main() -> int:
    failed = False
    asked: dict[str, Callable[[], list[Finding]]] = {
        "Python": ask_python,
        "web": partial(ask_web, ROOT),
        "Angular": partial(ask_web, ROOT / "clients" / "angular"),
    }
    for name, ask in asked.items():
        try:
            found = ask()
        except Unanswered as reason:
            print(f"audit of {name} packages: skipped, {reason}")
            continue
        for finding in found:
            print(finding, file=sys.stderr)
        shipped = sum(finding.shipped for finding in found)
        print(f"audit of {name} packages: {shipped} known vulnerabilities in shipped packages")
        failed = failed or shipped > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
