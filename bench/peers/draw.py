"""Draw panels of bars from JSON on standard input to an SVG file. It runs in the chart's environment."""

import json
import sys

import matplotlib as mpl

mpl.use("svg")
# Equal numbers give an identical file.
mpl.rcParams.update({"svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

from matplotlib import pyplot as plt  # noqa: E402


def main() -> None:
    panels = json.load(sys.stdin)
    heights = [len(panel["bars"]) + 1 for panel in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, 0.35 * sum(heights) + 0.6), squeeze=False, height_ratios=heights
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        bars = sorted(panel["bars"].items(), key=lambda bar: bar[1], reverse=True)
        colours = ["#1565c0" if name.startswith("Turnout") else "#b0bec5" for name, _ in bars]
        drawn = axis.barh([name for name, _ in bars], [value for _, value in bars], color=colours)
        axis.bar_label(drawn, fmt=lambda value: f"{value:,.0f}" if value >= 20 else f"{value:.1f}", padding=3)
        axis.set_title(panel["title"], loc="left", fontweight="bold")
        axis.get_xaxis().set_visible(False)
        axis.spines["bottom"].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
