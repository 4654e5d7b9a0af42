"""A step of each rank on a line of time: what it computed, encoded and waited for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tweed.report.plots import LOOK
from tweed.train.results import Side

Step = Mapping[str, Any]
COLOURS = {"compute": "#0b6e6e", "encode": "#b8860b", "wait": "#d1603d"}
#: Share of the step from which on a wait has room for the name of the link.
_ROOM = 0.12


def of(side: Side) -> Sequence[Step | None] | None:
    """The step of each rank that a side's figures have; None: they have none."""
    return next((row["timeline"] for row in reversed(side) if row.get("timeline")), None)


def draw(by_rank: Sequence[Step | None]) -> Figure:
    """A line per rank, each from the beginning of its own step.

    Args:
      by_rank: see `of`; None for ranks that did not tell.
    """
    longest = max(step["seconds"] for step in by_rank if step)
    with rc_context(LOOK):
        figure = Figure(figsize=(11.2, 0.42 * len(by_rank) + 1.2), layout="constrained")
        axes = figure.subplots()
        for rank, step in enumerate(by_rank):
            if step:
                _rank(axes, rank, step, longest)
        axes.set_yticks(range(len(by_rank)), [f"rank {rank}" for rank in range(len(by_rank))])
        axes.set_ylim(len(by_rank) - 0.4, -0.6)
        axes.set_xlim(0, 1000 * longest)
        axes.set_xlabel("since the beginning of the step (ms)")
        axes.grid(axis="y", visible=False)
        handles = [Patch(color=colour, label=what) for what, colour in COLOURS.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False)
    return figure


def _rank(axes: Axes, rank: int, step: Step, longest: float) -> None:
    place = (rank - 0.32, 0.64)
    axes.broken_barh([(0, 1000 * step["seconds"])], place, color=COLOURS["compute"])
    for span in step["spans"]:
        began, length = 1000 * span["began_s"], 1000 * (span["ended_s"] - span["began_s"])
        axes.broken_barh([(began, length)], place, color=COLOURS[span["what"]])
        if span["last"] and length > 1000 * _ROOM * longest:
            text = "its own, last" if span["last"][0] == rank else "rank {}, {}".format(*span["last"])
            axes.text(began + length / 2, rank, text, ha="center", va="center", color="#ffffff", fontsize=9)


def words(by_rank: Sequence[Step | None]) -> str:
    """What the picture shows, in sentences."""
    steps = sorted({step["step"] for step in by_rank if step})
    waited = [_share(step, "wait") for step in by_rank if step]
    which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return (
        f"The first exchange of the second half of training: {which}. Each rank waited for "
        f"{min(waited):.0%} to {max(waited):.0%} of it. Named in a wait are the rank that was last heard of, "
        "and the kind of the link to it. Encoding includes decoding; computing is all the rest. Each line "
        "begins with its rank's own step."
    )


def _share(step: Step, what: str) -> float:
    lengths = [span["ended_s"] - span["began_s"] for span in step["spans"] if span["what"] == what]
    return float(sum(lengths) / step["seconds"])
