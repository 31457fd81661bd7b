"""Bodies of requests: read whole within a size and a time, and checked against their model."""

from collections.abc import Sequence
from typing import TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show

M = TypeVar("M", bound=BaseModel)

BODY_SECONDS = 30


JSON_KINDS = ("application/json",)
YAML = "application/yaml"
YAML_KINDS = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", *JSON_KINDS)
"""What YAML is sent as; JSON is YAML, too."""


async def read_body(request: Request, most: int, smaller: str, kinds: Sequence[str] = JSON_KINDS) -> bytes:
    """The body of a request; `smaller` says how to send less where it has more than `most` bytes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", *kinds):
        raise TurnoutError(
            "unsupported_media_type",
            f"Content-Type: {show(kind)} is not accepted here",
            f"send {'JSON' if kinds is JSON_KINDS else 'YAML'}, with Content-Type: {kinds[0]}",
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most, smaller)
    body = bytearray()
    try:
        # A client that sends a body a byte at a time holds a connection, and no more than that.
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise _too_large(most, smaller)
    except ClientDisconnect as error:
        raise TurnoutError("bad_request", "the request ended before its body did") from error
    except TimeoutError as error:
        raise TurnoutError(
            "request_timeout", f"the body did not arrive within {BODY_SECONDS} s", "send it at once"
        ) from error
    return bytes(body)


def checked(body: bytes, shape: type[M], example: str) -> M:
    """The body as its model; TurnoutError `bad_body` names the first fault."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise TurnoutError("bad_body", f"{where}: {first['msg']}", f"send JSON such as {example}") from error


def _too_large(most: int, smaller: str) -> TurnoutError:
    return TurnoutError("message_too_large", f"the message has more than the {most} bytes allowed", smaller)
