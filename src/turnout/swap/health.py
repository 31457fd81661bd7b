"""Why the tables do not follow their topics: one reason for each subject, logged once when it comes and when it goes.

Other modules report here what they notice; any thread may read the readiness.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Say = Callable[[str, str], None]
"""Where log lines go: level, text."""


class Subject(Enum):
    """What can be wrong, the more telling first: the code that programs may rely on, and what to do."""

    STORE = ("store_unavailable", "check that the disk of data_dir has room; Turnout tries again by itself")
    SPARK = ("spark_gone", "Turnout starts it again by itself; the tables stay as they are until then")
    KAFKA = ("kafka_unreachable", "check that the brokers run; `turnout check` says what is wrong")
    START = ("starting", "try again in some seconds")
    STEP = ("failing", "fix what the message names; Turnout tries again by itself")
    READING = ("not_reading", "fix what the message names; Turnout tries again by itself")
    CONTROL = ("control_not_read", "fix what the message names; the tables follow their topics meanwhile")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether viewers can be sent here, and why or why not: a code for programs, and what to do."""

    ready: bool
    reason: str
    code: str = "ready"
    hint: str = ""


class Health:
    """The reasons that stand."""

    def __init__(self, say: Say, starting: str) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._reasons: dict[Subject, str] = {Subject.START: starting}

    def bad(self, subject: Subject, reason: str, *, said: bool = False) -> None:
        """A reason, from now on; said when it is new, unless whoever noticed has `said` it."""
        with self._lock:
            known, self._reasons[subject] = self._reasons.get(subject), reason
        if known != reason and not said:
            self._say("ERROR", reason)

    def good(self, subject: Subject, text: str = "") -> None:
        """Nothing is wrong with the subject; `text` is said where something was."""
        with self._lock:
            known = self._reasons.pop(subject, None)
        if known is not None and text:
            self._say("INFO", text)

    def has(self, subject: Subject) -> bool:
        with self._lock:
            return subject in self._reasons

    def trouble(self) -> Readiness | None:
        """The most telling reason; None where all is well."""
        with self._lock:
            subject = next((subject for subject in Subject if subject in self._reasons), None)
            return None if subject is None else Readiness(False, self._reasons[subject], *subject.value)
