"""Checks of everything that `turnout run` needs, before it runs: the file, this machine, Spark and Kafka.

They change nothing. `machine.py` has the order; `clusters.py` looks at Kafka, its topics, their records and sinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnout.errors import TurnoutError


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; a warning does not stop `run`."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    text: str
    hint: str = ""

    @classmethod
    def of_error(cls, subject: str, error: TurnoutError) -> Finding:
        return cls(subject, "fault", error.message, error.hint)
