"""Plots of a run's figures, both sides together."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tweed.train.results import Side

#: Colour, line and marker of each side by place, ours first. Told apart without colours too.
STYLES = [
    ("#0b6e6e", "-", "o"),
    ("#d1603d", "--", "s"),
    ("#b8860b", "-.", "^"),
    ("#3b6fb6", ":", "D"),
    ("#8a5aa8", "--", "v"),
    ("#5f6b73", "-.", "x"),
]
#: How all plots look.
LOOK: Any = {  # Any: the stubs want each key as a literal
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text: smaller, and in the page's own type
    "svg.hashsalt": "tweed",  # the same figures give the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8a8a",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One column of the figures.

    Attributes:
      key: its name in `metrics.jsonl`.
      label: its name and unit on an axis.
      scale: shown value per stored value.
      corner: where its plot has room for names.
      counts: whole numbers from 0 on, each of which holds until the next.
    """

    key: str
    label: str
    scale: float = 1.0
    corner: Literal["upper right", "lower right"] = "upper right"
    counts: bool = False


TIME = Quantity("seconds", "training time (s)")
BYTES = Quantity("bytes_per_worker", "sent per worker (MB, computed)", 1e-6)
LINK_BYTES = Quantity("link_bytes_per_worker", "sent per worker (MB, measured at its link)", 1e-6)
LOSS = Quantity("loss", "training loss")
TEST_LOSS = Quantity("test_loss", "test loss")
MEMBERS = Quantity("members", "members", corner="lower right", counts=True)
ACCURACY = Quantity("accuracy", "test accuracy (%)", 100.0, "lower right")


def points(side: Side, x: Quantity, y: Quantity) -> tuple[list[float], list[float]]:
    """The points that have both quantities."""
    both = [row for row in side if row[x.key] is not None and row[y.key] is not None]
    return [row[x.key] * x.scale for row in both], [row[y.key] * y.scale for row in both]


def draw(
    sides: Mapping[str, Side], x: Quantity, y: Quantity, network: str, level: float | None = None
) -> Figure:
    """One plot.

    Args:
      sides: figures by the side's title, ours first; styles repeat from the seventh on.
      network: the one that they ran over, in words.
      level: of `y`, to be marked across the plot.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(5.6, 3.5), layout="constrained")
        axes = figure.subplots()
        for (title, side), style in zip(sides.items(), cycle(STYLES), strict=False):
            _line(axes, points(side, x, y), title, style, y.counts)
        if level is not None:
            axes.axhline(level * y.scale, color="#8a8a8a", linewidth=1, linestyle=":")
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        axes.set_xlim(left=0)
        if y.counts:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(network, loc="left", fontsize=9, color="#667079")
        axes.legend(frameon=False, loc=y.corner)
    return figure


def _line(
    axes: Axes,
    xy: tuple[list[float], list[float]],
    title: str,
    style: tuple[str, str, str],
    counts: bool,
) -> None:
    colour, dashes, marker = style
    marked = marker if len(xy[0]) <= 30 else ""
    (line,) = axes.plot(*xy, dashes, color=colour, marker=marked, markersize=4, linewidth=1.8, label=title)
    line.set_drawstyle("steps-post" if counts else "default")


def svg(figure: Figure) -> str:
    """The plot as an SVG element, to be put into a page."""
    buffer = io.StringIO()
    with rc_context(LOOK):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
