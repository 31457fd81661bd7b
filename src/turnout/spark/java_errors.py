"""Exceptions of the JVM as words."""

from __future__ import annotations

from typing import Any

from turnout.errors import first_line

_DEEPEST = 10


def words_of(exception: Any) -> list[str]:
    """An exception and its causes, outermost first, each as `Class: message` without a stack trace."""
    words: list[str] = []
    while exception is not None and len(words) < _DEEPEST:
        message = _said(str(exception.getMessage() or "").split("\n\tat ")[0])
        words.append(f"{exception.getClass().getSimpleName()}: {message}")
        exception = exception.getCause()
    return list(dict.fromkeys(words))


def _said(message: str) -> str:
    """What is said of an error in a Python worker stands in the last line of its traceback."""
    if "Traceback (most recent call last)" not in message:
        return message
    lines = [line for line in message.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    return lines[-1].strip()


def words_of_error(error: Exception) -> list[str]:
    """An exception that PySpark raised, in the JVM's words; another one in its own."""
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    return words_of(origin) if origin is not None else [first_line(error)]


def is_too_large(error: Exception) -> bool:
    """Whether Spark ended a job because its results are more than the driver takes at once, to save its memory."""
    return any("spark.driver.maxResultSize" in words for words in words_of_error(error))
