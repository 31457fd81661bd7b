"""The client's side of `turnout.messages`: requests are checked before they are sent, answers are read.

Answers are not held to the models: a newer server may say more than this client knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from turnout.client.events import Json
from turnout.errors import TurnoutError

if TYPE_CHECKING:
    from pydantic import ValidationError

# What the same error has over HTTP; all others are 400.
_STATUS = {"unknown_table": 404, "internal_error": 500, "store_unavailable": 503}
_NAMES = ("columns", "where", "sort", "offset", "limit")


def window_options(table: str, given: Mapping[str, Any]) -> Json:
    """Which window, as the protocol has it; TurnoutError where the server would not understand it."""
    unknown = [name for name in given if name not in _NAMES]
    if unknown:
        raise _bad(f"window: unknown option {unknown[0]!r}", f"options: {', '.join(_NAMES)}")
    options = {name: _listed(value) for name, value in given.items() if value is not None}
    options = {name: value for name, value in options.items() if value != []}
    _check({"type": "window", "table": table, **options})
    return options


def changes_options(table: str, columns: str | Iterable[str] | None) -> Json:
    """Which columns of the changes, as the protocol has it."""
    options = {"columns": _listed(columns)} if columns else {}
    _check({"type": "changes", "table": table, **options})
    return options


def bad_answer(url: str, fault: str) -> TurnoutError:
    return TurnoutError(
        code="bad_answer",
        message=f"{url} {fault}",
        hint="check that the address is that of a Turnout server of this version, without a path",
        status=502,
    )


def problem(error: object, status: int | None = None) -> TurnoutError:
    """The server's error, from the one shape of it."""
    told = error if isinstance(error, Mapping) else {}
    code, message = str(told.get("code", "error")), str(told.get("message") or "the server refused and did not say why")
    return TurnoutError(
        code=code, message=message, hint=str(told.get("hint") or ""), status=status or _STATUS.get(code, 400)
    )


def problem_of_body(body: bytes | bytearray, status: int) -> TurnoutError | None:
    """The error in an HTTP answer; None where it is not in Turnout's shape."""
    try:
        answer = orjson.loads(body)
    except ValueError:
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return problem(error, status)


def _check(request: Json) -> None:
    from pydantic import ValidationError

    from turnout.messages import MAX_MESSAGE_BYTES, client_message

    try:
        client_message.validate_python({**request, "id": "1"})
        size = len(orjson.dumps(request))
    except ValidationError as error:
        raise _bad(_text(error), "docs/reference/python.md has what each option takes") from None
    except TypeError as error:  # a value in `where` that JSON does not have
        raise _bad(f"{request['type']}: {error}", "give dates, times and decimals as texts") from None
    # Position and id come on top.
    if size > MAX_MESSAGE_BYTES - 256:
        raise _bad(f"{request['type']}: {size:,} bytes are too many", f"at most {MAX_MESSAGE_BYTES:,}; shorten `where`")


def _text(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part != "str")
    return f"{place}: {first['msg']}"


def _listed(value: object) -> object:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)) else value


def _bad(message: str, hint: str) -> TurnoutError:
    return TurnoutError(code="bad_parameter", message=message, hint=hint)
