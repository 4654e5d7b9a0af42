"""Members over time: who was in which epoch, why it changed, and where training paused for that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tweed.report.plots import LOOK
from tweed.train.results import Side

_IN, _PAUSE = "#0b6e6e", "#d1603d"
#: A bar that is such a share of all time has room for the name of its member.
_ROOM = 0.09
#: More epochs have no room for their numbers.
_NUMBERED = 30


class Stay(NamedTuple):
    """A member that was in from then to then, in seconds of training, on a line of the picture."""

    line: int
    key: str
    begin: float
    end: float


def stays(epochs: Side, until_s: float) -> list[Stay]:
    """Each stay of each member; who comes takes the line that it had, if it is free, or else the first.

    Args:
      epochs: lines of `epochs.jsonl`.
      until_s: when training ended.
    """
    found, here, had, now = list[Stay](), dict[str, tuple[int, float]](), dict[str, int](), 0.0
    for row in [*epochs, {"keys": [], "seconds": until_s}]:
        now, keys = max(now, row["seconds"]), row["keys"]  # who follows a rank 0 has a clock of its own
        for key in [key for key in here if key not in keys]:
            had[key], begin = here.pop(key)
            found.append(Stay(had[key], key, begin, now))
        for key in [key for key in keys if key not in here]:
            taken = {line for line, _ in here.values()}
            free = next(line for line in range(len(taken) + 1) if line not in taken)
            line = had.get(key, free)
            here[key] = (free if line in taken else line, now)
    return found


def draw(epochs: Side, until_s: float) -> Figure:
    """A line per member, as many as there were at once; see `stays`."""
    found = stays(epochs, until_s)
    count = 1 + max(stay.line for stay in found)
    with rc_context(LOOK):
        figure = Figure(figsize=(11.2, 0.36 * count + 1.5), layout="constrained")
        axes = figure.subplots()
        for stay in found:
            _stay(axes, stay, epochs, until_s)
        if len(epochs) <= _NUMBERED:
            above = axes.secondary_xaxis("top")
            above.set_xticks([row["seconds"] for row in epochs], [str(row["epoch"]) for row in epochs])
            above.set_xlabel("epoch")
        axes.set_yticks([])
        axes.set_ylim(count - 0.4, -0.6)
        axes.set_xlim(0, until_s)
        axes.set_xlabel("training time (s)")
        handles = [Patch(color=_IN, label="a member"), Patch(color=_PAUSE, label="no group to go on with")]
        figure.legend(handles=handles, loc="outside lower right", ncols=2, frameon=False)
    return figure


def _stay(axes: Axes, stay: Stay, epochs: Side, until_s: float) -> None:
    """A bar, in which each change of members is a cut, or a pause."""
    place = (stay.line - 0.36, 0.72)
    axes.broken_barh([(stay.begin, stay.end - stay.begin)], place, color=_IN, linewidth=0)
    changes = [row for row in epochs[1:] if stay.begin <= row["seconds"] < stay.end]
    axes.broken_barh([(row["seconds"], row["pause_s"] or 0.0) for row in changes], place, color=_PAUSE)
    if stay.end - stay.begin > _ROOM * until_s:
        begin = stay.begin + 0.02 * until_s
        axes.text(begin, stay.line, stay.key, ha="left", va="center", color="#ffffff", fontsize=8)


def row(line: Mapping[str, Any]) -> dict[str, str]:
    """One row of the table of epochs."""
    step_s, pause_s = (_seconds(line[key]) for key in ("step_s", "pause_s"))
    return {
        "epoch": f"{line['epoch']:,}",
        "members": f"{line['members']:,}",
        "why": line["reason"] or "–",
        "from step": f"{line['step']:,}",
        "training time": f"{line['seconds']:.1f} s",
        "the step of the change took": step_s,
        "of that no group to go on with": pause_s,
    }


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
