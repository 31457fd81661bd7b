"""What a shell offers at Tab: tables, topics, sources and joins of the server that the command would ask.

Nothing here may print, wait for long or fail: whatever goes wrong, there is nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import typer

from turnout_client import DEFAULT_URL

_SECONDS = 1.0


def tables(context: typer.Context, incomplete: str) -> list[str]:
    found = _ask(context, "/api/tables").get("tables", ())
    return _starting((table["name"] for table in found), incomplete)


def topics(context: typer.Context, incomplete: str) -> list[str]:
    return _starting(_ask(context, "/api/topics").get("topics", ()), incomplete)


def source_topics(context: typer.Context, incomplete: str) -> list[str]:
    """`SOURCE=` while no source is written, then `SOURCE=TOPIC`."""
    source, mark, topic = incomplete.partition("=")
    if mark:
        return [f"{source}={name}" for name in topics(context, topic)]
    return _starting((f"{name}=" for name in _ask(context, "/api/status").get("sources", ())), incomplete)


def joins(context: typer.Context, incomplete: str) -> list[str]:
    """The joins that the server knows; of one view after `VIEW=`."""
    view, mark, join = incomplete.rpartition("=")
    found = _ask(context, "/api/status").get("joins") or _known_joins()
    return [f"{view}{mark}{name}" for name in _starting(found, join)]


def _known_joins() -> list[str]:
    from turnout.plan.joins import Join

    return [join.value for join in Join]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(context: typer.Context, path: str) -> dict[str, Any]:
    try:
        import httpx

        url = str(context.params.get("url") or os.environ.get("TURNOUT_URL") or DEFAULT_URL).rstrip("/")
        token = context.params.get("token") or os.environ.get("TURNOUT_TOKEN") or ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        tls = url.startswith("https:")
        answer = httpx.get(f"{url}{path}", headers=headers, timeout=_SECONDS, verify=tls, trust_env=tls).json()
    except Exception:
        return {}
    return answer if isinstance(answer, dict) else {}
