"""Table and picture of what builders for networks take, against the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.builders import LIMIT_S, PART
from bench.run import Row
from bench.units import grid, seconds, size
from tweed.report.plots import LOOK, svg

_COLOURS = {
    "multitree": "#0b6e6e",
    "multitree_split": "#7a9e3f",
    "time_expanded": "#d1603d",
    "forest": "#5b5ea6",
}
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


def write(rows: Sequence[Row], path: Path) -> None:
    """Draws time and memory against ranks, if there are any."""
    found = [row for row in rows if row["part"] == PART and row["cpu_s"] is not None]
    if not found:
        return
    with rc_context(LOOK):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        time, memory = figure.subplots(1, 2)
        _draw(time, found, "cpu_s", "CPU time (s)", 1.0)
        _draw(memory, found, "peak_bytes", "memory meanwhile (MB)", 1 / (1 << 20))
        names = time.get_legend_handles_labels()
        figure.legend(*names, loc="outside right center", frameon=False, fontsize=8)
    path.write_text(svg(figure) + "\n", encoding="utf-8")


def _draw(axes: Axes, found: Sequence[Row], key: str, label: str, scale: float) -> None:
    for side, network in dict.fromkeys((row["side"], row["network"]) for row in found):
        some = [row for row in found if (row["side"], row["network"]) == (side, network)]
        across, up = [row["ranks"] for row in some], [row[key] * scale for row in some]
        look = {"color": _COLOURS.get(side, "#555555"), "linestyle": _LINES.get(network, "-")}
        axes.plot(across, up, marker="o", markersize=4, label=f"{side}, {network}", **look)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel=label)
    ticks = sorted({row["ranks"] for row in found})
    axes.set_xticks(ticks, [str(ranks) for ranks in ticks])
    axes.minorticks_off()
