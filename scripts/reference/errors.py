"""Every error code: of HTTP calls by their status, then of commands, clients and starts."""

from __future__ import annotations

from reference.text import table
from turnout.errors import ERRORS, PROGRAM_ERRORS


def of_calls() -> str:
    rows = [
        [str(error.status), f"`{code}`", error.when, error.remedy]
        for code, error in sorted(ERRORS.items(), key=lambda known: known[1].status)
    ]
    return table(["status", "code", "when", "what to do"], rows)


def of_programs() -> str:
    return table(["code", "when", "what to do"], [[f"`{code}`", *texts] for code, texts in PROGRAM_ERRORS.items()])
