"""Every error code, with an anchor of its name: of HTTP calls by their status, then of commands, clients and starts."""

from __future__ import annotations

from reference.text import table
from turnout.errors import ERRORS, PROGRAM_ERRORS


def of_calls() -> str:
    rows = [
        [str(error.status), _anchored(code), error.when, error.remedy]
        for code, error in sorted(ERRORS.items(), key=lambda known: known[1].status)
    ]
    return table(["status", "code", "when", "what to do"], rows)


def of_programs() -> str:
    return table(["code", "when", "what to do"], [[_anchored(code), *texts] for code, texts in PROGRAM_ERRORS.items()])


def _anchored(code: str) -> str:
    return f'<a id="{code}"></a>`{code}`'
