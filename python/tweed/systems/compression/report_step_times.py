"""README's picture: seconds per step over the rate of the links, tweed beside DDP on Gloo. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tweed.report.notes import Line
from tweed.report.plots import LOOK, STYLES
from tweed.systems.compression.contenders import EVERY, FOUR, POWERSGD, place
from tweed.systems.compression.report import ALL_WORDS
from tweed.systems.harness.time_to_accuracy import DDP, step_s

#: By side of compression.md, the words beside its line: ours first, as in all plots.
SHOWN = {
    FOUR: 'tweed, "local_top_k(every=4, density=0.05)"',
    EVERY: 'tweed, "every_step"',
    DDP: DDP,
    POWERSGD: "DDP on Gloo, with its PowerSGD hook",
}
LOSSES = {"0 %": "No packet is lost", "3 %": "3 % of packets are lost"}


def draw(lines: Sequence[Line]) -> Figure:
    """A plot per share of lost packets. `lines`: notes of `tweed reproduce compression`."""
    with rc_context(LOOK):
        figure = Figure(figsize=(9.0, 4.0), layout="constrained")
        plots = figure.subplots(1, len(LOSSES), sharey=True)
        for axes, (loss, title) in zip(plots, LOSSES.items(), strict=True):
            _sides(axes, lines, loss)
            axes.set_title(title, loc="left", fontsize=10)
            axes.set_xlabel("rate of each worker's link")
        plots[0].set_ylabel("seconds per step")
        handles, names = plots[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _sides(axes: Axes, lines: Sequence[Line], loss: str) -> None:
    """A line per side, over all rates at which it was timed."""
    for (side, name), (colour, dashes, marker) in zip(SHOWN.items(), STYLES, strict=False):
        timed = [step_s(lines, side, place(rate, loss)) for rate in ALL_WORDS]
        known = [(number, seconds) for number, seconds in enumerate(timed) if seconds is not None]
        if not known:
            continue
        axes.plot(*zip(*known, strict=True), dashes, color=colour, marker=marker, markersize=5, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.set_xticks(range(len(ALL_WORDS)), list(ALL_WORDS.values()))
    axes.margins(x=0.08)
