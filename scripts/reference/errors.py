"""The reference of error codes, each with an anchor: HTTP calls by status, then commands, clients and startup."""

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
