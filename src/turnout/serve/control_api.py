"""The HTTP calls that ask for a change: control messages, one for each action, and the configuration.

A message goes to the control queue as it came, and so does a file; its sender waits here for the outcome.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from turnout.config import Settings
from turnout.config.configuration import file_text
from turnout.errors import TurnoutError
from turnout.plan.control import MAX_MESSAGE_BYTES, MAX_REQUEST_ID, Action, ApplyRequest, Outcome
from turnout.plan.control_parsing import body_of
from turnout.serve.access import identity_of
from turnout.serve.read_api import STOPPING, Services
from turnout.serve.requests import OF_APPLIES, OF_MESSAGES, YAML, YAML_KINDS, flag, read_body, whole
from turnout.serve.responses import Answers, error_response, json_response
from turnout.serve.routes import READING, Call
from turnout.serve.schemas import Applied, ConfigHistory, Decided, RefusedFile, Taken
from turnout.store import config_history
from turnout.store.query.windows import store_faults
from turnout.swap.control_queue import QueuedMessage, Reply

MAX_WAITING = 64
_SUBMITTERS = 4
_MORE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.05
_ERRORS = (
    *("generation_conflict", "bad_control", "unknown_topic", "not_authorized", "bad_sample", "nothing_to_roll_back"),
    *("nothing_to_cancel", "no_candidate", "guard_broken"),
    *("build_failed", "build_timeout", "kafka_unreachable", "spark_gone", "store_unavailable", "bad_view"),
    *("registry_unreachable", "registry_refused", "bad_config", "closed", "building"),
)
_FIELDS_HINT = "send only the fields that change"
_SHORTER_FILE = "leave out what has its default"
_MAY_NOT = "viewers may not read the configuration"


_MessageCall = partial(Call, answer=Decided, accepted=Taken, errors=_ERRORS, parameters=OF_MESSAGES, method="POST")
"""Declares a call that sends a control message and answers its outcome."""


def _action(action: Action, summary: str, code: str | None = None) -> Callable[..., Awaitable[Response]]:
    """Declare the call of an action; `code` is the error of one that builds nothing."""
    errors = ("generation_conflict", "bad_control", code, "store_unavailable", "closed") if code else _ERRORS

    @_MessageCall(f"/api/{action}", body=body_of(action), errors=errors)
    async def act(self: ControlApi, request: Request) -> Response:
        body = await read_body(request, MAX_MESSAGE_BYTES, _FIELDS_HINT)
        return await self._steer(request, _message_of(action, body))

    act.__name__, act.__doc__ = action.value, summary
    return act


@dataclass(slots=True)
class ControlApi:
    """The calls, bound to their services."""

    _services: Services
    _answers: Answers
    _check_apply: Callable[[Scope], None]
    _submitters: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_SUBMITTERS))
    _waiting: int = 0

    @_MessageCall("/api/control", body="ControlMessage")
    async def control(self, request: Request) -> Response:
        """Send a control message; answers its outcome."""
        return await self._steer(request, await read_body(request, MAX_MESSAGE_BYTES, _FIELDS_HINT))

    rollback = _action(Action.ROLLBACK, "Go back to the previous plan; answers the outcome.")
    cancel = _action(Action.CANCEL, "End the build under way; answers the outcome.", "nothing_to_cancel")
    publish = _action(
        Action.PUBLISH, "Publish the candidate; answers the outcome. `expectedGeneration` is the candidate's."
    )
    discard = _action(
        Action.DISCARD,
        "Remove the candidate; answers the outcome. `expectedGeneration` is the candidate's.",
        "no_candidate",
    )

    @Call("/api/config", YAML, errors=("forbidden",))
    async def read_config(self, request: Request) -> Response:
        """The current configuration file, with secrets as ***; for operators."""
        identity_of(request.scope).check_operator(_MAY_NOT)
        text = file_text(self._services.settings)
        return Response(text, media_type=YAML, headers={"Cache-Control": "no-store"})

    @Call("/api/config/history", ConfigHistory, errors=(*READING, "forbidden"))
    async def read_config_history(self, request: Request) -> Response:
        """The configuration files so far, newest first: who applied each, when, and what it changed; for operators."""
        identity_of(request.scope).check_operator(_MAY_NOT)
        versions = await self._answers.read(request, lambda store: config_history.entries(store))
        return json_response({"history": [version.model_dump() for version in versions]})

    @Call(
        "/api/config",
        Applied,
        accepted=Taken,
        refused=RefusedFile,
        errors=(*_ERRORS, "config_invalid", "restart_needed"),
        parameters=OF_APPLIES,
        body="ConfigFile",
        body_kind=YAML,
        method="PUT",
    )
    async def apply_config(self, request: Request) -> Response:
        """Apply another file, as a whole or not at all; refused if a change needs a restart. dryRun changes nothing."""
        self._check_apply(request.scope)
        query = request.query_params
        body = await read_body(request, MAX_MESSAGE_BYTES, _SHORTER_FILE, YAML_KINDS)
        asked = ApplyRequest(
            config=body.decode("utf-8-sig", "surrogateescape"),  # what is no UTF-8 is refused as a file with faults is
            request_id=_request_id(query.get("requestId")),
            expected_generation=whole(query, "expectedGeneration", None),
            dry_run=flag(query, "dryRun", default=False),
            force=flag(query, "force", default=False),
        )
        return await self._decided(request, partial(self._services.orchestrator.apply, asked), _applied)

    async def _steer(self, request: Request, raw: bytes) -> Response:
        return await self._decided(request, partial(self._services.orchestrator.queue.submit, raw), _steered)

    async def _decided(
        self, request: Request, queue: Callable[[str], QueuedMessage], answered: Callable[[Reply, str | None], Response]
    ) -> Response:
        """Call `queue` with the sender's name, and answer the outcome of its message; 202 where there is none yet."""
        wait, requester = flag(request.query_params, "wait", default=True), identity_of(request.scope).name

        def work() -> QueuedMessage:
            with store_faults("written"):
                return queue(requester)

        # Not abandoned on cancel: it is then queued without an answer, never by half.
        message = await anyio.to_thread.run_sync(work, limiter=self._submitters)
        answer = await self._outcome(request, message) if wait else None
        if answer is not None:
            return answered(answer, message.request_id)
        return json_response({"message": message.record.number, "requestId": message.request_id, "outcome": None}, 202)

    async def _outcome(self, request: Request, message: QueuedMessage) -> Reply | None:
        """The answer; None when it takes too long, too many wait already, the server stops, or the client has gone.

        It polls instead of waiting in a thread: hundreds of seconds in threads would hold up other calls, and the end
        of the process.
        """
        if self._waiting >= MAX_WAITING:
            return None
        self._waiting += 1
        deadline, pause = time.monotonic() + wait_seconds(self._services.settings), _FIRST_PAUSE_SECONDS
        try:
            while not message.done.is_set() and time.monotonic() < deadline:
                if request.scope.get(STOPPING, bool)() or await request.is_disconnected():
                    break
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        finally:
            self._waiting -= 1
        return message.answer


def wait_seconds(settings: Settings) -> float:
    """How long a control message waits for its outcome: as long as a build may take, and some more."""
    return settings.swap.catch_up_timeout_seconds + _MORE_SECONDS


def _message_of(action: Action, body: bytes) -> bytes:
    """The control message of an action; the body may add requestId and expectedGeneration."""
    fields: Any = {}
    if body.strip():
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            fields = None
    if isinstance(fields, dict):
        return json.dumps({**fields, "action": action.value}).encode()
    raise TurnoutError(
        "bad_control",
        "the body is not a JSON object",
        'send none, or one such as {"requestId": "undo-1", "expectedGeneration": 7}',
    )


def _steered(answer: Reply, request_id: str | None) -> Response:
    if answer.outcome in (Outcome.REJECTED, Outcome.FAILED):
        return error_response(_error_of(answer))
    return json_response(answer.as_json(request_id))


def _error_of(answer: Reply) -> TurnoutError:
    """The error of a message that was rejected or failed."""
    if answer.error is not None:
        return answer.error
    status = 422 if answer.outcome is Outcome.REJECTED else 500
    return TurnoutError(answer.outcome.value, answer.detail, status=status)


def _applied(answer: Reply, request_id: str | None) -> Response:
    shown = {**replace(answer, report=None).as_json(request_id), "changes": [], **(answer.report or {})}
    if answer.outcome not in (Outcome.REJECTED, Outcome.FAILED):
        return json_response(shown)
    error = _error_of(answer)
    return json_response({**error.as_json(), **shown}, error.status)


def _request_id(text: str | None) -> str | None:
    if text is not None and len(text) > MAX_REQUEST_ID:
        raise TurnoutError(
            "bad_parameter", f"requestId: {len(text)} characters", f"at most {MAX_REQUEST_ID} are allowed"
        )
    return text or None
