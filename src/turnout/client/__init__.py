"""The Python client: rows over HTTP, and live tables that follow swaps by themselves."""

from turnout.client.changes import ChangesSubscription, Mirror
from turnout.client.client import Client, Table, connect
from turnout.client.events import (
    Changes,
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
from turnout.client.http import DEFAULT_URL
from turnout.client.newest import SqlSubscription, SummarySubscription, WindowSubscription
from turnout.client.subscription import Subscription

__all__ = [
    "DEFAULT_URL",
    "Changes",
    "ChangesSubscription",
    "Client",
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
    "Window",
    "WindowOptions",
    "WindowSubscription",
    "connect",
]
