"""Pictures: what builders for networks take by number of ranks, with a table; predicted times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.builders import LIMIT_S, PART
from bench.foreseen import SHORT_BYTES, median_off, pairs
from bench.run import Row
from bench.units import grid, seconds, size
from tweed.report.plots import LOOK, svg

_OF_BUILDERS = {
    "multitree": "#0b6e6e",
    "multitree_split": "#7a9e3f",
    "time_expanded": "#d1603d",
    "forest": "#5b5ea6",
}
_OF_NETWORKS = ("#0b6e6e", "#d1603d", "#5b5ea6", "#c9a227", "#7a9e3f", "#8a4f7d", "#4c86b0", "#555555")
_LINES = {"torus": "-", "uneven torus": "--", "fat-tree": ":"}


def builders(rows: Sequence[Row]) -> str:
    """A line for each point."""
    head = ("builder", "pieces", "network", "ranks", "sends", "CPU time", "memory meanwhile", "memory after")
    body = [_line(row) for row in rows if row["part"] == PART]
    return f"## Builders for networks, all_reduce\n\n{grid(head, body)}" if body else ""


def _line(row: Row) -> Sequence[str]:
    where = (row["side"], str(row["pieces"]), row["network"], str(row["ranks"]))
    if row["cpu_s"] is None:
        return (*where, "", f"**more than {LIMIT_S:g} s**", "", "")
    return (*where, str(row["sends"]), seconds(row["cpu_s"]), size(row["peak_bytes"]), size(row["bytes"]))


def draw_builders(rows: Sequence[Row], path: Path) -> None:
    """Draws time and memory against ranks, if there are any."""
    found = [row for row in rows if row["part"] == PART and row["cpu_s"] is not None]
    if not found:
        return
    with rc_context(LOOK):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        time, memory = figure.subplots(1, 2)
        _curve(time, found, "cpu_s", "CPU time (s)", 1.0)
        _curve(memory, found, "peak_bytes", "memory meanwhile (MB)", 1 / (1 << 20))
        names = time.get_legend_handles_labels()
        figure.legend(*names, loc="outside right center", frameon=False, fontsize=8)
    path.write_text(svg(figure) + "\n", encoding="utf-8")


def _curve(axes: Axes, found: Sequence[Row], key: str, label: str, scale: float) -> None:
    for side, network in dict.fromkeys((row["side"], row["network"]) for row in found):
        some = [row for row in found if (row["side"], row["network"]) == (side, network)]
        across, up = [row["ranks"] for row in some], [row[key] * scale for row in some]
        look = {"color": _OF_BUILDERS.get(side, "#555555"), "linestyle": _LINES.get(network, "-")}
        axes.plot(across, up, marker="o", markersize=4, label=f"{side}, {network}", **look)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel=label)
    ticks = sorted({row["ranks"] for row in found})
    axes.set_xticks(ticks, [str(ranks) for ranks in ticks])
    axes.minorticks_off()


def draw_predictions(rows: Sequence[Row], path: Path) -> None:
    """Draws all pairs, if there are any: one colour per network, hollow where buffers are short."""
    found = pairs(rows)
    if not found:
        return
    with rc_context(LOOK):
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        _scatter(figure.subplots(), found)
    path.write_text(svg(figure) + "\n", encoding="utf-8")


def _scatter(axes: Axes, found: Sequence[Row]) -> None:
    ends = [edge(row[key] for row in found for key in ("predicted_s", "median_s")) for edge in (min, max)]
    low, high = ends[0] * 1e3 / 1.3, ends[1] * 1e3 * 1.3
    lower, upper = ([share * low, share * high] for share in (0.9, 1.1))
    axes.fill_between([low, high], lower, upper, color="#eeeeee", linewidth=0)
    axes.plot([low, high], [low, high], color="#8a8a8a", linewidth=1)
    networks = list(dict.fromkeys(row["network"] for row in found))
    for network, colour in zip(networks, _OF_NETWORKS * len(networks), strict=False):
        for short in (True, False):
            some = [r for r in found if r["network"] == network and (r["bytes"] < SHORT_BYTES) == short]
            across, up = ([row[key] * 1e3 for row in some] for key in ("median_s", "predicted_s"))
            fill, label = ("none", None) if short else (colour, network)
            axes.scatter(across, up, s=22, facecolors=fill, edgecolors=colour, linewidths=1, label=label)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("measured (ms)")
    axes.set_ylabel("predicted (ms)")
    title = (
        f"{len(found)} pairs, median error {median_off(found):.1%}; hollow: below 64 KB; grey: within 10 %"
    )
    axes.set_title(title, loc="left", fontsize=9, color="#667079")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
