"""Turnout: live Kafka views on Spark, under names that never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnout_client import __version__
from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client import connect

__all__ = ["TurnoutError", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    # The client is loaded when it is asked for: the command line starts without it.
    if name == "connect":
        from turnout_client import connect

        return connect
    raise AttributeError(f"module 'turnout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
