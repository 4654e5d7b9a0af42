"""A step of each rank on a line of time: computing, encoding, waiting, and what was under way. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tweed.report.plots import LOOK
from tweed.train.results import Side

Step = Mapping[str, Any]
COLOURS = {"compute": "#0b6e6e", "encode": "#b8860b", "wait": "#d1603d", "under way": "#5b5b8c"}
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
    place, below = (rank - 0.36, 0.54), (rank + 0.22, 0.14)
    axes.broken_barh([(0, 1000 * step["seconds"])], place, color=COLOURS["compute"])
    for span in step["spans"]:
        began, length = 1000 * span["began_s"], 1000 * (span["ended_s"] - span["began_s"])
        at = below if span["what"] == "under way" else place
        axes.broken_barh([(began, length)], at, color=COLOURS[span["what"]])
        if span["last"] and length > 1000 * _ROOM * longest:
            text = "its own, last" if span["last"][0] == rank else "rank {}, {}".format(*span["last"])
            axes.text(
                began + length / 2, rank - 0.09, text, ha="center", va="center", color="#ffffff", fontsize=9
            )


def words(by_rank: Sequence[Step | None]) -> str:
    """What the picture shows, in sentences."""
    steps = sorted({step["step"] for step in by_rank if step})
    waited = [_share(step, "wait") for step in by_rank if step]
    under_way = [_share(step, "under way") for step in by_rank if step]
    hidden = [_share(step, "under way", but="wait") for step in by_rank if step]
    which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return (
        f"The first exchange of the second half of training: {which}. Each rank waited for "
        f"{min(waited):.0%} to {max(waited):.0%} of it. {_hidden(under_way, hidden)}Named in a wait are "
        "the rank that was last heard of, and the kind of the link to it. Encoding includes decoding; "
        "computing is all the rest. Each line begins with its rank's own step."
    )


def _hidden(under_way: Sequence[float], hidden: Sequence[float]) -> str:
    if not any(under_way):
        return ""
    return (
        f"Collectives were under way, as the thin lines show, for {min(under_way):.0%} to "
        f"{max(under_way):.0%} of it; for {min(hidden):.0%} to {max(hidden):.0%} of it that was hidden: the "
        "rank did not wait. "
    )


def _share(step: Step, what: str, but: str = "") -> float:
    """The part of a step in which there is a span of one kind, and none of the other."""
    edges = {edge for span in step["spans"] for edge in (span["began_s"], span["ended_s"])}
    within = [
        later - earlier
        for earlier, later in pairwise(sorted(edges))
        if {what} <= (there := _kinds(step, earlier, later)) and but not in there
    ]
    return float(sum(within) / step["seconds"])


def _kinds(step: Step, began_s: float, ended_s: float) -> set[str]:
    """Kinds of the spans that last from one edge to the next."""
    spans = step["spans"]
    return {one["what"] for one in spans if one["began_s"] <= began_s and ended_s <= one["ended_s"]}
