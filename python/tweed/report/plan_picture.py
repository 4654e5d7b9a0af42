"""A plan as a picture: time over size, as a multiple of the bound, and the front of latency and bandwidth."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from tweed.collective.planning.making import Planned
from tweed.collective.planning.table import Table
from tweed.errors import UsageError
from tweed.files import write_atomic
from tweed.report.plan_tables import seconds, size, speed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OTHERS = "#b9c0c4"


def write(made: Planned, path: Path) -> None:
    """Writes the picture in the format that the path's ending names, such as .svg or .png.

    Raises: UsageError for another ending, or where the file cannot be written.
    """
    figure, form, content = draw(made), path.suffix.removeprefix("."), io.BytesIO()
    try:
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(content, format=form or None, dpi=150, metadata=metadata)
        write_atomic(path, content.getvalue())
    except ValueError as error:
        raise UsageError(f"cannot draw to {path}: {error}; use a name that ends in .svg or .png") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def draw(made: Planned) -> Figure:
    """A row per collective: times over sizes, and the front; grey is neither picked nor on the front."""
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

    named = dict(_named(table))
    for place in range(len(table.candidates)):
        if place not in named:
            axis.plot(*_over_bound(table, place), color=_OTHERS, linewidth=0.9, zorder=1)
    for place, (colour, dashes, marker) in named.items():
        axis.plot(*_over_bound(table, place), dashes, color=colour, linewidth=1.6)
        axis.plot(*_over_bound(table, place, picked=True), marker, color=colour, markersize=6)
        axis.plot([], [], dashes + marker, color=colour, linewidth=1.6, label=str(table.candidates[place]))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(0.95, None)
    axis.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: size(round(value)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axis.set_xlabel("size of the buffer; a marker where it is the pick")
    title = f"{table.collective}: predicted time as a multiple of the bound"
    axis.set_title(title, loc="left", fontsize=10)
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
    from tweed.report.plots import STYLES

    keys = [(one.builder, one.pieces) for one in table.candidates]
    choices = (table.choose(numbytes) for numbytes in sorted(table.times))
    picked = [keys.index((choice.builder, choice.pieces)) for choice in choices]
    return zip(dict.fromkeys([*picked, *table.front()]), cycle(STYLES), strict=False)


def _over_bound(table: Table, place: int, picked: bool = False) -> tuple[list[int], list[float]]:
    """Sizes, and how many times the bound a candidate takes there; `picked`: only where it is the pick."""
    key = table.candidates[place].builder, table.candidates[place].pieces
    x, y = [], []
    for numbytes in sorted(table.times):
        verdict, time = table.verdict(numbytes), table.times[numbytes][place]
        if time.exact and (not picked or (verdict.choice.builder, verdict.choice.pieces) == key):
            x.append(numbytes)
            y.append(time.seconds / verdict.bound_s)
    return x, y
