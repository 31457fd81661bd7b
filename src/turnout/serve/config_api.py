"""The HTTP calls of the configuration: the file in force, its history, and another one to apply.

A file goes the way of control messages: it is queued, decided in its turn, and its sender waits here for the outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from turnout.config.configuration import Configuration, file_text
from turnout.errors import TurnoutError
from turnout.plan.control import MAX_MESSAGE_BYTES, MAX_REQUEST_ID, ApplyRequest, Outcome
from turnout.serve.access import check_operator, identity_of
from turnout.serve.bodies import YAML, YAML_KINDS, read_body
from turnout.serve.control_api import ERRORS, ControlApi, error_of
from turnout.serve.parameters import OF_APPLIES, flag, whole
from turnout.serve.read_api import Services
from turnout.serve.responses import Answers, json_response
from turnout.serve.routes import READING, Call
from turnout.serve.schemas import Applied, ConfigHistory, RefusedFile, Taken
from turnout.store import config_history
from turnout.store.query.windows import store_faults
from turnout.swap.control_queue import QueuedMessage, Reply

_SMALLER = "leave out what has its default"

_MAY_NOT = "viewers may not read the configuration"


@dataclass(frozen=True, slots=True)
class ConfigApi:
    """The calls, bound to their services."""

    _services: Services
    _control: ControlApi
    _configuration: Configuration
    _answers: Answers
    _check: Callable[[Scope], None]

    @Call("/api/config", YAML, errors=("forbidden",))
    async def read_config(self, request: Request) -> Response:
        """The current configuration file, with secrets as ***; for operators."""
        check_operator(request.scope, _MAY_NOT)
        text = file_text(self._configuration.settings)
        return Response(text, media_type=YAML, headers={"Cache-Control": "no-store"})

    @Call("/api/config/history", ConfigHistory, errors=(*READING, "forbidden"))
    async def read_config_history(self, request: Request) -> Response:
        """The configuration files so far, newest first: who applied each, when, and what it changed; for operators."""
        check_operator(request.scope, _MAY_NOT)
        versions = await self._answers.read(request, lambda store: config_history.entries(store))
        return json_response({"history": [version.as_json() for version in versions]})

    @Call(
        "/api/config",
        Applied,
        accepted=Taken,
        refused=RefusedFile,
        errors=(*ERRORS, "config_invalid", "restart_needed"),
        parameters=OF_APPLIES,
        body="ConfigFile",
        body_kind=YAML,
        method="PUT",
    )
    async def apply_config(self, request: Request) -> Response:
        """Apply another file, as a whole or not at all; refused if a change needs a restart. dryRun changes nothing."""
        self._check(request.scope)
        query = request.query_params
        body = await read_body(request, MAX_MESSAGE_BYTES, _SMALLER, YAML_KINDS)
        asked = ApplyRequest(
            config=body.decode("utf-8-sig", "surrogateescape"),  # what is no UTF-8 is refused as a file with faults is
            request_id=_request_id(query.get("requestId")),
            expected_generation=whole(query, "expectedGeneration", None),
            dry_run=flag(query, "dryRun", default=False),
            force=flag(query, "force", default=False),
        )
        message = await self._control.submit(self._submit, asked, identity_of(request.scope).name)
        wait = flag(query, "wait", default=True)
        answer = await self._control.outcome(request, message) if wait else None
        if answer is None:
            return json_response(
                {"message": message.record.number, "requestId": message.request_id, "outcome": None}, 202
            )
        return _answered(answer, message.request_id)

    def _submit(self, asked: ApplyRequest, requester: str) -> QueuedMessage:
        with store_faults("written"):
            return self._services.orchestrator.apply(asked, requester)


def _answered(answer: Reply, request_id: str | None) -> Response:
    shown: dict[str, Any] = {
        "outcome": answer.outcome.value,
        "generation": answer.generation,
        "detail": answer.detail,
        "requestId": request_id,
        "changes": [],
    }
    shown |= dict(answer.report or {})
    if answer.outcome not in (Outcome.REJECTED, Outcome.FAILED):
        return json_response(shown)
    error = error_of(answer)
    return json_response({**error.as_json(), **shown}, error.status)


def _request_id(text: str | None) -> str | None:
    if text is not None and len(text) > MAX_REQUEST_ID:
        raise TurnoutError(
            "bad_parameter", f"requestId: {len(text)} characters", f"at most {MAX_REQUEST_ID} are allowed"
        )
    return text or None
