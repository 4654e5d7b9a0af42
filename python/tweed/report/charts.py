"""Plots of experiments: many sides over many conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from tweed.report.plots import LOOK, STYLES


def over_conditions(
    panels: Mapping[str, Mapping[str, Sequence[float | None]]], marks: Sequence[str], labels: tuple[str, str]
) -> Figure:
    """A panel per setting with a line per side over equal conditions; a logarithmic scale for all.

    Args:
      panels: by the panel's title, by side, a value per condition; None where there is none.
      marks: the conditions, in words.
      labels: of the axes, x and y.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(3.4 * len(panels) + 0.6, 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, sides) in zip(axes, panels.items(), strict=True):
            for (side, values), style in zip(sides.items(), STYLES, strict=False):
                _line(axis, values, side, style)
            axis.set_title(title, loc="left", fontsize=10)
            axis.set_xticks(range(len(marks)), marks)
            axis.set_xlabel(labels[0])
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
        axes[0].set_ylabel(labels[1])
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _line(axis: Axes, values: Sequence[float | None], side: str, style: tuple[str, str, str]) -> None:
    colour, dashes, marker = style
    there = [(place, value) for place, value in enumerate(values) if value is not None]
    x, y = [place for place, _ in there], [value for _, value in there]
    axis.plot(x, y, dashes, color=colour, marker=marker, markersize=5, linewidth=1.8, label=side)


def over_time(sides: Mapping[str, Sequence[tuple[float, float]]], labels: tuple[str, str]) -> Figure:
    """A line per side through its points; a logarithmic scale of time.

    Args:
      sides: by name, time and value, with a time above 0.
      labels: of the axes, x and y.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(6.8, 4.0), layout="constrained")
        axis = figure.subplots()
        for (side, points), (colour, dashes, marker) in zip(sides.items(), STYLES, strict=False):
            x, y = zip(*points, strict=True)
            axis.plot(x, y, dashes, color=colour, marker=marker, markersize=4, linewidth=1.6, label=side)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel(labels[0])
        axis.set_ylabel(labels[1])
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def curves(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    labels: tuple[str, str],
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """A panel per setting with a line per side through points.

    Args:
      panels: by the panel's title, by side, points (x, y); at most as many sides as `STYLES`.
      labels: of the axes, x and y.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(3.6 * len(panels) + 1.6, 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (title, sides) in zip(axes, panels.items(), strict=True):
            for (side, points), (colour, dashes, marker) in zip(sides.items(), STYLES, strict=False):
                marked = marker if len(points) <= 12 else ""
                x, y = [point[0] for point in points], [point[1] for point in points]
                axis.plot(x, y, dashes, color=colour, marker=marked, markersize=5, linewidth=1.6, label=side)
            axis.set_title(title, loc="left", fontsize=10)
            axis.set_xlabel(labels[0])
            if log_x:
                axis.set_xscale("log", base=2)
                axis.xaxis.set_major_formatter("{x:g}")
            if log_y:
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter(LogFormatter())
                axis.yaxis.set_minor_formatter(LogFormatter())
        axes[0].set_ylabel(labels[1])
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=1 + len(panels), frameon=False)
    return figure


def distributions(sides: Mapping[str, Sequence[float]], label: str) -> Figure:
    """Per side, the share of values that are at most so large.

    Args:
      sides: values, at least one each.
      label: of the values, with their unit.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axis = figure.subplots()
        for (side, values), (colour, dashes, _) in zip(sides.items(), STYLES, strict=False):
            ordered = sorted(values)
            shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
            axis.step([ordered[0], *ordered], [0, *shares], dashes, color=colour, where="post", label=side)
        axis.set_xlabel(label)
        axis.set_ylabel("share of steps")
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
        axis.set_ylim(0, 1.02)
        figure.legend(loc="outside right upper", frameon=False)
    return figure


def differences(rows: Mapping[str, Sequence[float]], label: str, margin: float) -> Figure:
    """A row of dots per case, and the margin around zero within which they ought to be.

    Args:
      rows: by the case's name, a difference per seed.
      label: of the differences, with their unit.
      margin: in the same unit.
    """
    with rc_context(LOOK):
        figure = Figure(figsize=(6.8, 0.34 * len(rows) + 1.1), layout="constrained")
        axis = figure.subplots()
        axis.axvspan(-margin, margin, color="#0b6e6e", alpha=0.12, linewidth=0)
        axis.axvline(0, color="#8a8a8a", linewidth=1)
        for place, values in enumerate(rows.values()):
            axis.plot(values, [place] * len(values), "o", color="#3b6fb6", markersize=4, alpha=0.6)
            mean = sum(values) / len(values)
            axis.plot([mean], [place], "|", color="#0b6e6e", markersize=13, markeredgewidth=2.4)
        axis.set_yticks(range(len(rows)), list(rows))
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(axis="y", visible=False)
    return figure


def levels(rows: Mapping[str, Mapping[str, float]], bounds: Mapping[str, float], label: str) -> Figure:
    """A row per case with a mark per side, and a bar where nothing can be less.

    Args:
      rows: by the case's name, by side, a value; at most as many sides as `STYLES`.
      bounds: by the case's name.
      label: of the values, with their unit.
    """
    sides = list(dict.fromkeys(side for row in rows.values() for side in row))
    with rc_context(LOOK):
        figure = Figure(figsize=(7.2, 0.42 * len(rows) + 1.5), layout="constrained")
        axis = figure.subplots()
        for side, (colour, _, marker) in zip(sides, STYLES, strict=False):
            there = [(row[side], place) for place, row in enumerate(rows.values()) if side in row]
            x, y = zip(*there, strict=True)
            axis.plot(x, y, marker, color=colour, markersize=7, label=side, alpha=0.85)
        places = [(bounds[name], place) for place, name in enumerate(rows) if name in bounds]
        x, y = zip(*places, strict=True) if places else ((), ())
        axis.plot(x, y, "|", color="#222222", markersize=17, markeredgewidth=2.2, label="bound")
        axis.set_yticks(range(len(rows)), list(rows))
        axis.invert_yaxis()
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel(label)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure
