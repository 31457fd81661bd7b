"""The errors that Turnout shows to people: what is wrong, and what to do about it.

One class carries code, message, hint and HTTP status; a subclass is only where a caller must tell it apart.
Programming errors are not wrapped: they stay the exceptions they are.
"""

from collections.abc import Iterable


class TurnoutError(Exception):
    """A failure with a text for people and a code for programs."""

    def __init__(self, *, code: str, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_json(self) -> dict[str, dict[str, str]]:
        """The one JSON shape of every error."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


class ConfigError(TurnoutError):
    """Every fault of one configuration, each as `place: what is wrong; what to do`."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(code="bad_config", message="\n".join(self.faults))


def first_line(error: BaseException) -> str:
    """What an error says, without its stack: for logs and messages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
