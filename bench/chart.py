"""Write bench/chart.svg: the duration of a catch-up, and the latency of records, as bars."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console

import environments
from environments import DEEPHAVENS, FAST_CYCLE

SECONDS = 120
_SCRIPT = Path(__file__).resolve().parent / "peers" / "draw.py"


def write(document: dict[str, Any], file: Path, console: Console) -> None:
    """Draw the chart with matplotlib in a separate environment; if that fails, print a message instead."""
    panels = [panel for panel in (_catch_up(document), _latency(document)) if panel["bars"]]
    try:
        interpreter = environments.python("chart")
        command = [str(interpreter), str(_SCRIPT), str(file)]
        subprocess.run(command, input=json.dumps(panels), text=True, check=True, capture_output=True, timeout=SECONDS)
    except (environments.Unavailable, subprocess.SubprocessError) as error:
        console.print(f"no chart: {error}")


def _catch_up(document: dict[str, Any]) -> dict[str, Any]:
    results = document["measures"].get("catch-up", {})
    systems: dict[str, list[float]] = next(iter(results.get("variants", {}).values()), {})
    bars = {name: statistics.median(taken) for name, taken in systems.items() if "polled" not in name}
    return {"title": f"Catch-up on {2 * results.get('records', 0):,} records, seconds", "bars": bars}


def _latency(document: dict[str, Any]) -> dict[str, Any]:
    results = document["measures"].get("latency", {})
    bars = {
        f"{name} {quantile}": statistics.median(run[f"{quantile}_ms"] for run in results[name])
        for name in ("Turnout", DEEPHAVENS[0], f"{DEEPHAVENS[0]}{FAST_CYCLE}")
        if name in results
        for quantile in ("p50", "p99")
    }
    return {"title": "Produce to a subscriber at 200 records/s in each topic, milliseconds", "bars": bars}
