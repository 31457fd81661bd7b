"""Exceptions of the JVM: their text for people, and which of them call for another try."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from turnout.errors import first_line

_DEEPEST = 10


def words_of(exception: Any) -> list[str]:
    """List an exception and its causes, outermost first, each as `Class: message` without a stack trace."""
    words: list[str] = []
    while exception is not None and len(words) < _DEEPEST:
        message = _message(str(exception.getMessage() or "").split("\n\tat ")[0])
        words.append(f"{exception.getClass().getSimpleName()}: {message}")
        exception = exception.getCause()
    return list(dict.fromkeys(words))


def _message(text: str) -> str:
    """A message without the traceback of a Python worker, of which the last line has the error."""
    if "Traceback (most recent call last)" not in text:
        return text
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    return lines[-1].strip()


def words_of_error(error: Exception) -> list[str]:
    """The JVM's words for an exception that PySpark raised; for any other its first line."""
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    return words_of(origin) if origin is not None else [first_line(error)]


def is_too_large(error: Exception) -> bool:
    """Whether Spark ended a job because its results are more than the driver takes at once, to save its memory."""
    return any("spark.driver.maxResultSize" in words for words in words_of_error(error))


def is_disconnected(error: BaseException) -> bool:
    """Whether the JVM did not answer at all, rather than with an exception of its own."""
    return isinstance(error, OSError | EOFError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )
