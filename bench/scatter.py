"""The picture of predicted and measured times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.foreseen import SHORT_BYTES, median_off, pairs
from bench.run import Row
from tweed.report.plots import LOOK, svg

_COLOURS = ("#0b6e6e", "#d1603d", "#5b5ea6", "#c9a227", "#7a9e3f", "#8a4f7d", "#4c86b0", "#555555")


def write(rows: Sequence[Row], path: Path) -> None:
    """Draws all pairs, if there are any: one colour per network, hollow where buffers are short."""
    found = pairs(rows)
    if not found:
        return
    with rc_context(LOOK):
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        _draw(figure.subplots(), found)
    path.write_text(svg(figure) + "\n", encoding="utf-8")


def _draw(axes: Axes, found: Sequence[Row]) -> None:
    ends = [edge(row[key] for row in found for key in ("predicted_s", "median_s")) for edge in (min, max)]
    low, high = ends[0] * 1e3 / 1.3, ends[1] * 1e3 * 1.3
    lower, upper = ([share * low, share * high] for share in (0.9, 1.1))
    axes.fill_between([low, high], lower, upper, color="#eeeeee", linewidth=0)
    axes.plot([low, high], [low, high], color="#8a8a8a", linewidth=1)
    networks = list(dict.fromkeys(row["network"] for row in found))
    for network, colour in zip(networks, _COLOURS * len(networks), strict=False):
        for short in (True, False):
            some = [r for r in found if r["network"] == network and (r["bytes"] < SHORT_BYTES) == short]
            across, up = ([row[key] * 1e3 for row in some] for key in ("median_s", "predicted_s"))
            fill, label = ("none", None) if short else (colour, network)
            axes.scatter(across, up, s=22, facecolors=fill, edgecolors=colour, linewidths=1, label=label)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("measured (ms)")
    axes.set_ylabel("predicted (ms)")
    said = f"{len(found)} pairs, median error {median_off(found):.1%}; hollow: below 64 KB; grey: within 10 %"
    axes.set_title(said, loc="left", fontsize=9, color="#667079")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
