"""The HTTP calls: a function is declared a call by what it takes, what it answers, and which errors it can give.

The document of `openapi.py` is made of these declarations; its names and summaries are the names and docstrings of the
functions.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.serve.parameters import Parameter, check_parameters

Endpoint = Callable[[Request], Awaitable[Response]]
F = TypeVar("F", bound=Callable[..., Awaitable[Response]])

READING = ("store_unavailable", "query_timeout")
"""The errors of a call that reads the store."""

FILE = ("answer_too_large", "too_much_unread")
"""The errors of a call whose answer may be large."""

_EVERY_CALL = (
    *("bad_request", "foreign_host", "url_too_long", "headers_too_large", "internal_error"),
    *("too_many_requests", "too_many_connections"),
)
_WITH_BODY = ("request_timeout", "message_too_large", "unsupported_media_type")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as a decorator of its function.

    `answer` is a model, or a media type other than JSON; `accepted` is the model of a 202. `body` is a model, or the
    name of a schema of messages and files.
    """

    path: str
    answer: type[BaseModel] | str
    accepted: type[BaseModel] | None = None
    errors: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | str | None = None
    body_kind: str = "application/json"
    refused: type[BaseModel] | None = None
    """What errors about the body can have besides the error itself."""
    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    file_headers: tuple[str, ...] = ()
    """For a call that answers files, too: the numbers that these have as headers."""

    def __call__(self, function: F) -> F:
        setattr(function, "call", self)  # noqa: B010 - functions have no such attribute
        return function

    @property
    def answers(self) -> dict[int, type[BaseModel] | str]:
        """The answers by their status."""
        return {200: self.answer} | ({202: self.accepted} if self.accepted else {})

    @property
    def checked(self) -> bool:
        """Whether parameters are checked; the page and the probes take any, and ignore them."""
        return self.path.startswith("/api/") or self.path == "/metrics"

    @property
    def codes(self) -> tuple[str, ...]:
        """The errors of this call, and those that any call of its kind can give."""
        return (
            *(("unknown_parameter", "bad_parameter", "foreign_origin") if self.checked else ()),
            *(("forbidden",) if self.method != "GET" else ()),
            *(_WITH_BODY if self.body else ()),
            *self.errors,
            *_EVERY_CALL,
        )


class CallRoute(Route):
    """The route of a call; it refuses parameters that the call does not have."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.call: Call = getattr(endpoint, "call")  # noqa: B009
        first, *others = endpoint.__name__.split("_")
        self.operation = first + "".join(map(str.title, others))
        self.summary = inspect.getdoc(endpoint) or ""

        async def checked(request: Request) -> Response:
            if self.call.checked:
                check_parameters(request.query_params, self.call.parameters)
            return await endpoint(request)

        # A name at the end of a path may have a slash in it.
        super().__init__(re.sub(r"\{(\w+)\}$", r"{\1:path}", self.call.path), checked, methods=[self.call.method])


def routes_of(api: object) -> list[CallRoute]:
    """A route for each method that is declared as a call."""
    methods = [getattr(api, name) for name, value in vars(type(api)).items() if hasattr(value, "call")]
    return [CallRoute(method) for method in methods]
