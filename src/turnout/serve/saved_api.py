"""The HTTP calls of saved views: everybody who may look reads them, operators keep and remove them."""

from __future__ import annotations

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from turnout.errors import TurnoutError
from turnout.serve import bodies, routes
from turnout.serve.answers import Answers
from turnout.serve.formats import json_object, to_json
from turnout.serve.responses import json_response
from turnout.serve.routes import CallRoute
from turnout.serve.schemas import SavedBody
from turnout.store.database import Database
from turnout.store.query.values import show
from turnout.store.saved_views import list_saved, remove_view, save_view

MAX_VIEW_BYTES = 16 * 1024
MAX_NAME = 64
_EXAMPLE = '{"table": "final_ui", "where": "age>=30", "sort": "-balance"}'
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
        views = [json_object({"name": name})[:-1] + b"," + view.encode()[1:] for name, view in found.items()]
        body = json_object({}, saved=b"[%s]" % b",".join(views))
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def save(self, request: Request) -> Response:
        name = _name(request)
        body = await bodies.read_body(request, MAX_VIEW_BYTES, _SMALLER)
        view = bodies.checked(body, SavedBody, _EXAMPLE).model_dump()
        text = to_json(view).decode()
        await anyio.to_thread.run_sync(save_view, self._database, name, text, limiter=self._writers)
        return json_response({"name": name, **view})

    async def unsave(self, request: Request) -> Response:
        name = _name(request)
        await anyio.to_thread.run_sync(remove_view, self._database, name, limiter=self._writers)
        return json_response({"name": name})


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if name.strip() == name and name.isprintable() and len(name) <= MAX_NAME:
        return name
    raise TurnoutError(
        code="bad_parameter",
        message=f"name: {show(name)} cannot be the name of a view",
        hint=f"at most {MAX_NAME} characters that show, without a blank at the ends",
    )
