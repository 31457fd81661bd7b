"""The Python client of Turnout: rows over HTTP, and live tables that follow swaps automatically."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client.changes import ChangesSubscription, Mirror
    from turnout_client.client import Client, Table, connect
    from turnout_client.events import (
        Changes,
        Difference,
        HistoryPoint,
        LiveSummaryOptions,
        Rows,
        Snapshot,
        SqlRows,
        State,
        Summary,
        SummaryOptions,
        SwapMoment,
        Window,
        WindowOptions,
    )
    from turnout_client.newest import DifferenceSubscription, SqlSubscription, SummarySubscription, WindowSubscription
    from turnout_client.subscription import Subscription

__all__ = [
    "DEFAULT_URL",
    "Changes",
    "ChangesSubscription",
    "Client",
    "Difference",
    "DifferenceSubscription",
    "HistoryPoint",
    "LiveSummaryOptions",
    "Mirror",
    "Rows",
    "Snapshot",
    "SqlRows",
    "SqlSubscription",
    "State",
    "Subscription",
    "Summary",
    "SummaryOptions",
    "SummarySubscription",
    "SwapMoment",
    "Table",
    "TurnoutError",
    "Window",
    "WindowOptions",
    "WindowSubscription",
    "connect",
]

__version__ = "0.2.0"
DEFAULT_URL = "http://127.0.0.1:10000"

_MODULES = ("client", "events", "changes", "newest", "subscription")


def __getattr__(name: str) -> Any:
    # Names are imported on first use, because the server and the command line need only errors and messages.
    if name in __all__:
        modules = [importlib.import_module(f"turnout_client.{module}") for module in _MODULES]
        return next(vars(module)[name] for module in modules if name in vars(module))
    raise AttributeError(f"module 'turnout_client' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
