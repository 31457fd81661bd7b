"""The HTTP calls of saved views: everybody who may look reads them, operators keep and remove them."""

from dataclasses import dataclass, field

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.serve.formats import json_object
from turnout.serve.requests import checked_body, read_body
from turnout.serve.responses import Answers, encoded_json, json_response
from turnout.serve.routes import READING, Call
from turnout.serve.schemas import Removed, SavedBody, SavedView, SavedViews
from turnout.store.database import Database
from turnout.store.saved_views import list_saved, read_view, remove_view, save_view

MAX_VIEW_BYTES = 16 * 1024
MAX_NAME = 64
_EXAMPLE = '{"table": "final_ui", "where": "age>=30", "sort": "-balance"}'
_SMALLER = "save fewer terms, or a simpler chart"


@dataclass(frozen=True, slots=True)
class SavedApi:
    """The calls, bound to the store."""

    _database: Database
    _answers: Answers
    _writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @Call("/api/saved", SavedViews, errors=READING)
    async def list_saved(self, request: Request) -> Response:
        """The views that operators have saved."""
        found = await self._answers.read(request, list_saved)
        body = json_object({}, saved=b"[%s]" % b",".join(_named(name, view) for name, view in found.items()))
        return encoded_json(body)

    @Call("/api/saved/{name}", SavedView, errors=(*READING, "not_found", "unknown_saved"))
    async def read_saved(self, request: Request) -> Response:
        """One of the views that operators have saved."""
        name = _name(request)
        view = await self._answers.read(request, lambda store: read_view(store, name))
        return encoded_json(_named(name, view))

    @Call(
        "/api/saved/{name}",
        SavedView,
        errors=("store_unavailable", "not_found", "bad_body", "too_many_saved"),
        body=SavedBody,
        method="PUT",
    )
    async def save(self, request: Request) -> Response:
        """Save a view under a name, in place of one that has it; answers it as it is listed."""
        name = _name(request)
        body = await read_body(request, MAX_VIEW_BYTES, _SMALLER)
        # Written by the type itself: a value to compare with may be a number of any size.
        given = checked_body(body, SavedBody, _EXAMPLE)
        view = given.model_dump_json(exclude=None if given.sql else {"sql"})
        await anyio.to_thread.run_sync(save_view, self._database, name, view, limiter=self._writers)
        return encoded_json(_named(name, view))

    @Call(
        "/api/saved/{name}",
        Removed,
        errors=("store_unavailable", "not_found", "unknown_saved"),
        method="DELETE",
    )
    async def unsave(self, request: Request) -> Response:
        """Remove a view."""
        name = _name(request)
        await anyio.to_thread.run_sync(remove_view, self._database, name, limiter=self._writers)
        return json_response({"name": name})


def _named(name: str, view: str) -> bytes:
    """The JSON of a view with its name in it."""
    return json_object({"name": name})[:-1] + b"," + view.encode()[1:]


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if name.strip() == name and name.isprintable() and 0 < len(name) <= MAX_NAME:
        return name
    raise TurnoutError(
        "bad_parameter",
        f"name: {show(name)} cannot be the name of a view",
        f"at most {MAX_NAME} characters that show, without a blank at the ends",
    )
