"""The log of the process on standard error: text, or one JSON object a line. Secrets are masked."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime

Mask = Callable[[str], str]
"""Hides the secrets in a text."""
Say = Callable[[str, str], None]
"""Logs a line: level, text."""

_TEXT = "%(asctime)s %(levelname)s %(message)s"
_about: ContextVar[dict[str, int | str]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


@contextlib.contextmanager
def about(*, generation: int | None = None, request_id: str | None = None, only: bool = False) -> Iterator[None]:
    """The block's log lines carry these; `only`: and not what the lines around the block carry."""
    given = {"generation": generation, "requestId": request_id}
    outer = {} if only else _about.get()
    token = _about.set(outer | {name: value for name, value in given.items() if value is not None})
    try:
        yield
    finally:
        _about.reset(token)


def log_to_stderr(mask: Mask, *, as_json: bool, level: int = logging.INFO) -> None:
    """Log Turnout's lines from a level on, and the warnings of its libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(mask) if as_json else TextLines(mask))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("turnout").setLevel(level)


class _Masked(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__(_TEXT)
        self._mask = mask


class TextLines(_Masked):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the library
        # It may hold what others sent: that must not look like a line of Turnout's, nor control the terminal.
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(super().format(record))


def escaped(text: str) -> str:
    """The text on one line, with control characters as Python writes them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class JsonLines(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, object] = {"ts": moment, "level": record.levelname}
        line |= {"msg": self._mask(record.getMessage()), "logger": record.name, **_about.get()}
        if record.exc_info:
            line["error"] = self._mask(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)
