"""The HTTP calls of saved views: everybody who may look reads them, operators keep and remove them."""

from __future__ import annotations

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from turnout.errors import TurnoutError
from turnout.serve import bodies, routes
from turnout.serve.answers import Answers
from turnout.serve.formats import json_object
from turnout.serve.responses import json_response
from turnout.serve.routes import CallRoute
from turnout.serve.schemas import SavedBody
from turnout.store.database import Database
from turnout.store.query.values import show
from turnout.store.saved_views import list_saved, remove_view, save_view

MAX_VIEW_BYTES = 16 * 1024
MAX_NAME = 64
_EXAMPLE = '{"table": "final_ui", "where": "age>=30", "sort": "-balance"}'
_NOT_KEPT = {"Cache-Control": "no-store"}
_SMALLER = "save fewer terms, or a simpler chart"


class SavedApi:
    """The calls, bound to the store."""

    def __init__(self, database: Database, answers: Answers) -> None:
        self._database = database
        self._answers = answers
        self._writers = CapacityLimiter(1)

    def routes(self) -> list[CallRoute]:
        return [
            CallRoute(routes.SAVED, self.saved),
            CallRoute(routes.SAVE, self.save, beside=("DELETE",)),
            CallRoute(routes.UNSAVE, self.unsave, beside=("PUT",)),
        ]

    async def saved(self, request: Request) -> Response:
        found = await self._answers.read(request, list_saved)
        body = json_object({}, saved=b"[%s]" % b",".join(_named(name, view) for name, view in found.items()))
        return Response(body, media_type="application/json", headers=_NOT_KEPT)

    async def save(self, request: Request) -> Response:
        name = _name(request)
        body = await bodies.read_body(request, MAX_VIEW_BYTES, _SMALLER)
        # Written by the type itself: a value to compare with may be a number of any size.
        view = bodies.checked(body, SavedBody, _EXAMPLE).model_dump_json()
        await anyio.to_thread.run_sync(save_view, self._database, name, view, limiter=self._writers)
        return Response(_named(name, view), media_type="application/json", headers=_NOT_KEPT)

    async def unsave(self, request: Request) -> Response:
        name = _name(request)
        await anyio.to_thread.run_sync(remove_view, self._database, name, limiter=self._writers)
        return json_response({"name": name})


def _named(name: str, view: str) -> bytes:
    """The JSON of a view with its name in it."""
    return json_object({"name": name})[:-1] + b"," + view.encode()[1:]


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if name.strip() == name and name.isprintable() and len(name) <= MAX_NAME:
        return name
    raise TurnoutError(
        code="bad_parameter",
        message=f"name: {show(name)} cannot be the name of a view",
        hint=f"at most {MAX_NAME} characters that show, without a blank at the ends",
    )
