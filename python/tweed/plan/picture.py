"""A plan as a picture: time over size beside the bound, and the front of latency and bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from tweed.errors import UsageError
from tweed.plan.making import Planned
from tweed.plan.show import seconds, size, speed
from tweed.plan.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OTHERS = "#b9c0c4"


def write(made: Planned, path: Path) -> None:
    """Writes the picture in the format that the path's ending names, such as .svg or .png.

    Raises: UsageError for another ending, or where the file cannot be written.
    """
    figure = draw(made)
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    except ValueError as error:
        raise UsageError(f"cannot draw to {path}: {error}; use a name that ends in .svg or .png") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def draw(made: Planned) -> Figure:
    """A row per collective that was predicted: times over sizes, and the front."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from tweed.report.plots import LOOK

    with rc_context(LOOK):
        figure = Figure(figsize=(11, 0.6 + 4.2 * len(made.tables)), layout="constrained")
        axes = figure.subplots(len(made.tables), 2, squeeze=False)
        for (left, right), table in zip(axes, made.tables.values(), strict=True):
            _times(left, table)
            _front(right, table)
    return figure


def _times(axis: Axes, table: Table) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    sizes, named = sorted(table.times), dict(_named(table))
    for place in range(len(table.candidates)):
        if place not in named:
            x, y = _exact(table, place)
            axis.plot(x, y, color=_OTHERS, linewidth=0.9, zorder=1)
    for place, (colour, dashes, marker) in named.items():
        x, y = _exact(table, place)
        axis.plot(x, y, dashes, color=colour, linewidth=1.6, label=str(table.candidates[place]))
        axis.plot(*_picked(table, place), marker, color=colour, markersize=6)
    bound = [table.verdict(numbytes).bound_s for numbytes in sizes]
    axis.plot(sizes, bound, color="black", linewidth=1, label="bound")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: size(round(value)))
    axis.yaxis.set_major_formatter(lambda value, _: seconds(value))
    axis.set_xlabel("size of the buffer; a marker where it is the pick")
    axis.set_title(f"{table.collective}: predicted time", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def _in_words(words: Callable[[float], str]) -> Callable[[float, float], str]:
    return lambda value, _: words(value)


def _front(axis: Axes, table: Table) -> None:
    from matplotlib.ticker import LogLocator

    small, large = min(table.times), max(table.times)
    front, named = table.front(), dict(_named(table))
    points = [(table.times[small][at], table.times[large][at]) for at in range(len(table.candidates))]
    for place, (least, most) in enumerate(points):
        if not (least.exact and most.exact):
            continue
        colour, _, marker = named.get(place, (_OTHERS, "-", "o"))
        axis.plot(least.seconds, large / most.seconds, marker, color=colour, markersize=7)
    ends = [(points[at][0].seconds, large / points[at][1].seconds) for at in front]
    axis.plot(*zip(*ends, strict=True), color="#8a8a8a", linewidth=1, zorder=0)
    for place in dict.fromkeys([*front, *named]):
        at = points[place][0].seconds, large / points[place][1].seconds
        axis.annotate(str(table.candidates[place]), at, (6, -11), textcoords="offset points", fontsize=8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.margins(0.12)
    for ticks, words in ((axis.xaxis, seconds), (axis.yaxis, speed)):
        ticks.set_major_formatter(_in_words(words))
        ticks.set_minor_formatter(_in_words(words))
        ticks.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axis.set_xlabel(f"time for {size(small)}")
    axis.set_title(f"{table.collective}: speed at {size(large)}, and the front", loc="left", fontsize=10)


def _named(table: Table) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """The places that are drawn in colour: those that are picked, then the rest of the front."""
    from tweed.report.charts import SIDES

    keys = [(one.builder, one.pieces) for one in table.candidates]
    choices = (table.choose(numbytes) for numbytes in sorted(table.times))
    picked = [keys.index((choice.builder, choice.pieces)) for choice in choices]
    return zip(dict.fromkeys([*picked, *table.front()]), cycle(SIDES), strict=False)


def _exact(table: Table, place: int) -> tuple[list[int], list[float]]:
    column = [(at, times[place]) for at, times in sorted(table.times.items()) if times[place].exact]
    return [at for at, _ in column], [time.seconds for _, time in column]


def _picked(table: Table, place: int) -> tuple[list[int], list[float]]:
    key = table.candidates[place].builder, table.candidates[place].pieces
    sizes = [at for at in sorted(table.times) if (table.choose(at).builder, table.choose(at).pieces) == key]
    return sizes, [table.times[at][place].seconds for at in sizes]
