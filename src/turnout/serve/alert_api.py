"""The HTTP call that tries an alert: a sample to its target. What alerts there are is in the status."""

from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from turnout.serve.read_api import Services
from turnout.serve.responses import json_response
from turnout.serve.rounds import Threads
from turnout.serve.routes import Call
from turnout.serve.schemas import Answer

# A target may be slow to fail; only these threads wait for that.
_TESTING = 2


class AlertTested(Answer):
    """A sample that has arrived."""

    alert: str
    outcome: Literal["delivered"]


@dataclass(frozen=True, slots=True)
class AlertApi:
    """The call, bound to its services."""

    _services: Services
    _testing: Threads = field(default_factory=lambda: Threads(_TESTING, "alerts"))

    @Call(
        "/api/alerts/{name}/test",
        AlertTested,
        errors=("unknown_alert", "alert_not_delivered", "store_unavailable"),
        method="POST",
    )
    async def test_alert(self, request: Request) -> Response:
        """Send a sample event to the target of an alert, and wait until it has arrived."""
        name = request.path_params["name"]
        await self._testing.run(lambda: self._services.orchestrator.test_alert(name))
        return json_response({"alert": name, "outcome": "delivered"})
