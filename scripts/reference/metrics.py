"""The reference of Turnout's metrics."""

from __future__ import annotations

from reference.text import table
from turnout.swap.metrics import METRICS


def definitions() -> str:
    rows = [
        [f"`{name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.text]
        for name, metric in METRICS.items()
    ]
    return table(["metric", "kind", "labels", "meaning"], rows)
