"""The client's use of `turnout_client.messages`: it validates requests before sending, and parses answers.

Answers are not validated by the models, because a newer server may send additional fields.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from turnout_client.errors import CLIENT_HINTS, TurnoutError
from turnout_client.events import DifferenceOptions, Json, LiveSummaryOptions, SqlOptions, WindowOptions

_OPTIONS = {
    "window": WindowOptions,
    "changes": WindowOptions,
    "summary": LiveSummaryOptions,
    "difference": DifferenceOptions,
    "sql": SqlOptions,
}


def checked_options(kind: str, subject: Json, given: Mapping[str, Any]) -> Json:
    """Return the non-empty options of a request; raise TurnoutError if the server would refuse them."""
    names = _OPTIONS[kind].__annotations__
    unknown = [name for name in given if name not in names]
    if unknown:
        raise _bad(f"{kind}: unknown option {unknown[0]!r}", f"options: {', '.join(names)}")
    options = {name: _listed(value) for name, value in given.items()}
    options = {name: value for name, value in options.items() if value not in (None, "", [])}
    _check({"type": kind, **subject, **options})
    return options


def bad_answer(url: str, fault: str) -> TurnoutError:
    return TurnoutError(
        code="bad_answer",
        message=f"{url} {fault}",
        hint="check that the address is that of a Turnout server of this version, without a path",
        status=502,
    )


def parsed(body: str | bytes | bytearray) -> object:
    """Parse an answer as JSON; return None if it is not JSON."""
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def problem(answer: object, status: int | None = None) -> TurnoutError | None:
    """Return the error in an HTTP answer or a live message; None if it has no error in the format of the server."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    code = str(error.get("code", "error"))
    hint = CLIENT_HINTS.get(code) or str(error.get("hint") or "")
    return TurnoutError(code, error["message"], hint, status=status)


def _check(request: Json) -> None:
    from pydantic import ValidationError

    from turnout_client.messages import MAX_MESSAGE_BYTES, client_message

    try:
        client_message.validate_python({**request, "id": "1"})
        size = len(orjson.dumps(request))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "str")
        raise _bad(f"{place}: {first['msg']}", "docs/reference/python.md describes each option") from None
    except TypeError as error:  # a value in `where` that JSON does not have
        raise _bad(f"{request['type']}: {error}", "give dates, times and decimals as texts") from None
    # 256 bytes are reserved for the position and the id.
    if size > MAX_MESSAGE_BYTES - 256:
        raise _bad(f"{request['type']}: {size:,} bytes are too many", f"at most {MAX_MESSAGE_BYTES:,}; shorten `where`")


def _listed(value: object) -> object:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)) else value


def _bad(message: str, hint: str) -> TurnoutError:
    return TurnoutError(code="bad_parameter", message=message, hint=hint)
