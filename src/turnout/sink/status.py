"""How a sink is doing, for `/api/status`, `/metrics` and the page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from turnout.config import SinkSettings
from turnout.errors import TurnoutError
from turnout.sink.topic_state import Written


class SinkState(StrEnum):
    STARTING = "starting"
    WRITING = "writing"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One sink at one moment."""

    name: str
    settings: SinkSettings
    state: SinkState
    error: TurnoutError | None
    written: Written
    records: int
    """How many it has written since the process started."""
    last_written: datetime | None
    waiting_versions: int | None = None
    """Of its table, that are not in the topic yet; None where the store does not answer."""
    waiting_rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        moment = self.last_written
        return {
            "name": self.name,
            "table": self.settings.table,
            "topic": self.settings.topic,
            "format": self.settings.format.value,
            "delivery": self.settings.delivery.value,
            "state": self.state.value,
            "error": str(self.error) if self.error else None,
            "generation": self.written.generation,
            "version": self.written.version,
            "records": self.records,
            "lastWritten": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if moment else None,
            "waitingVersions": self.waiting_versions,
            "waitingRows": self.waiting_rows,
        }
