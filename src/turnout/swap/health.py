"""Why the tables do not follow their topics: one reason for each subject, logged when it comes and when it goes.

The modules of `swap` report here; any thread may read the readiness.
"""

import threading
from dataclasses import dataclass
from enum import Enum

from turnout.logs import Say


class Subject(Enum):
    """What can fail, the most important first: the code for programs, and the hint for people."""

    STORE = ("store_unavailable", "check that the disk of data_dir has room; Turnout tries again by itself")
    SPARK = ("spark_gone", "Turnout starts it again by itself; the tables stay as they are until then")
    KAFKA = ("kafka_unreachable", "check that the brokers run; `turnout check` says what is wrong")
    START = ("starting", "try again in some seconds")
    STEP = ("failing", "fix what the message names; Turnout tries again by itself")
    READING = ("not_reading", "fix what the message names; Turnout tries again by itself")
    CONTROL = ("control_not_read", "fix what the message names; the tables follow their topics meanwhile")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether viewers can be sent here, with the reason: a code for programs, and a hint for people."""

    ready: bool
    reason: str
    code: str = "ready"
    hint: str = ""


class Health:
    """The reasons of now."""

    def __init__(self, say: Say, starting: str) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._reasons: dict[Subject, str] = {Subject.START: starting}

    def bad(self, subject: Subject, reason: str, *, said: bool = False) -> None:
        """Set the reason of a subject; logs a new one, unless the caller has `said` it."""
        with self._lock:
            known, self._reasons[subject] = self._reasons.get(subject), reason
        if known != reason and not said:
            self._say("ERROR", reason)

    def good(self, subject: Subject, text: str = "") -> None:
        """Clear the reason of a subject; logs `text` if there was one."""
        with self._lock:
            known = self._reasons.pop(subject, None)
        if known is not None and text:
            self._say("INFO", text)

    def has(self, subject: Subject) -> bool:
        with self._lock:
            return subject in self._reasons

    def trouble(self) -> Readiness | None:
        """The most important reason; None if there is none."""
        with self._lock:
            subject = next((subject for subject in Subject if subject in self._reasons), None)
            return None if subject is None else Readiness(False, self._reasons[subject], *subject.value)
