"""The HTTP calls that ask for a change: control messages, and one for each action.

A message goes to the control queue as it came; its sender waits here for the outcome.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from turnout.errors import TurnoutError
from turnout.plan.control import MAX_MESSAGE_BYTES, Action, Outcome
from turnout.serve.access import identity_of
from turnout.serve.bodies import read_body
from turnout.serve.parameters import OF_MESSAGES, flag
from turnout.serve.read_api import STOPPING, Services
from turnout.serve.responses import error_response, json_response
from turnout.serve.routes import Call
from turnout.serve.schemas import Decided, Taken
from turnout.store.query.windows import store_faults
from turnout.swap.control_queue import QueuedMessage, Reply

MAX_WAITING = 64
_SUBMITTERS = 4
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.05
ERRORS = (
    *("generation_conflict", "bad_control", "unknown_topic", "not_authorized", "bad_sample", "nothing_to_roll_back"),
    *("nothing_to_cancel", "no_candidate", "guard_broken"),
    *("build_failed", "build_timeout", "kafka_unreachable", "spark_gone", "store_unavailable", "bad_view"),
    *("registry_unreachable", "registry_refused", "bad_config", "closed", "building"),
)
_FIELDS_HINT = "send only the fields that change"


def _message_call(path: str, body: str, errors: tuple[str, ...] = ERRORS) -> Call:
    """Declare a call that sends a control message and answers its outcome."""
    return Call(path, Decided, accepted=Taken, errors=errors, parameters=OF_MESSAGES, body=body, method="POST")


def _errors_without_build(code: str) -> tuple[str, ...]:
    """The errors of an action that builds nothing; `code` is its own."""
    return "generation_conflict", "bad_control", code, "store_unavailable", "closed"


@dataclass(slots=True)
class ControlApi:
    """The calls, bound to their services."""

    _services: Services
    _submitters: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_SUBMITTERS))
    _waiting: int = 0

    async def submit(self, work: Callable[..., QueuedMessage], *given: object) -> QueuedMessage:
        """Queue a message on a thread. Not abandoned on cancel: it is then queued without an answer, never by half."""
        return await anyio.to_thread.run_sync(work, *given, limiter=self._submitters)

    @_message_call("/api/control", "ControlMessage")
    async def control(self, request: Request) -> Response:
        """Send a control message; answers its outcome."""
        return await self._steer(request, await read_body(request, MAX_MESSAGE_BYTES, _FIELDS_HINT))

    @_message_call("/api/rollback", "RollbackMessage")
    async def rollback(self, request: Request) -> Response:
        """Go back to the previous plan; answers the outcome."""
        return await self._act(request, Action.ROLLBACK)

    @_message_call("/api/cancel", "CancelMessage", _errors_without_build("nothing_to_cancel"))
    async def cancel(self, request: Request) -> Response:
        """End the build under way; answers the outcome."""
        return await self._act(request, Action.CANCEL)

    @_message_call("/api/publish", "PublishMessage")
    async def publish(self, request: Request) -> Response:
        """Publish the candidate; answers the outcome. `expectedGeneration` is the candidate's."""
        return await self._act(request, Action.PUBLISH)

    @_message_call("/api/discard", "DiscardMessage", _errors_without_build("no_candidate"))
    async def discard(self, request: Request) -> Response:
        """Remove the candidate; answers the outcome. `expectedGeneration` is the candidate's."""
        return await self._act(request, Action.DISCARD)

    async def _act(self, request: Request, action: Action) -> Response:
        body = await read_body(request, MAX_MESSAGE_BYTES, _FIELDS_HINT)
        return await self._steer(request, _message_of(action, body))

    async def _steer(self, request: Request, raw: bytes) -> Response:
        wait, requester = flag(request.query_params, "wait", default=True), identity_of(request.scope).name
        message = await self.submit(self._submit, raw, requester)
        answer = await self.outcome(request, message) if wait else None
        if answer is None:
            return json_response(
                {"message": message.record.number, "requestId": message.request_id, "outcome": None}, 202
            )
        if answer.outcome in (Outcome.REJECTED, Outcome.FAILED):
            return error_response(error_of(answer))
        return json_response(answer.as_json(message.request_id))

    def _submit(self, raw: bytes, requester: str) -> QueuedMessage:
        with store_faults("written"):
            return self._services.orchestrator.queue.submit(raw, requester)

    async def outcome(self, request: Request, message: QueuedMessage) -> Reply | None:
        """The answer; None when it takes too long, too many wait already, the server stops, or the client has gone.

        It polls instead of waiting in a thread: hundreds of seconds in threads would hold up other calls, and the end
        of the process.
        """
        if self._waiting >= MAX_WAITING:
            return None
        self._waiting += 1
        deadline, pause = time.monotonic() + self._services.control_wait_seconds, _FIRST_PAUSE_SECONDS
        try:
            while not message.done.is_set() and time.monotonic() < deadline:
                if request.scope.get(STOPPING, bool)() or await request.is_disconnected():
                    break
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        finally:
            self._waiting -= 1
        return message.answer


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


def error_of(answer: Reply) -> TurnoutError:
    """The error of a message that was rejected or failed."""
    if answer.error is not None:
        return answer.error
    status = 422 if answer.outcome is Outcome.REJECTED else 500
    return TurnoutError(answer.outcome.value, answer.detail, status=status)
