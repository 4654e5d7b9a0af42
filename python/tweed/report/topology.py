"""A picture of a network: its nodes, its links, and what a schedule sends over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tweed.collective import Topology
from tweed.errors import UsageError
from tweed.report.layout import Layout, Point, place
from tweed.report.plots import LOOK

_RANK, _SWITCH = "#0b6e6e", "#5f6b73"
_LINES = ["#96a1a8", "#d1603d", "#3b6fb6", "#b8860b", "#8a5aa8", "#3a9c5f"]
_MOST_DRAWN = 600
"""More nodes than this are dots on dots."""


def draw(topology: Topology, load: Mapping[tuple[int, int], float] | None = None, title: str = "") -> Figure:
    """The network, each direction of a link as a line of its own where they differ.

    Args:
      topology: up to some hundreds of nodes.
      load: bytes over each directed link, as `Schedule.cost(...).links` or `simulate.Result.link_bytes` give
        them; lines are coloured by them. None: lines are coloured by what the links can do.
      title: above the picture; the network's name if empty.

    Raises: UsageError if the network is complete, which has no links to draw, or too large.
    """
    layout = _layout(topology)
    with rc_context(LOOK):
        figure = Figure(figsize=_size(layout), layout="constrained")
        _fill(figure.subplots(), topology, layout, load)
        figure.axes[0].set_title(title or topology.name, loc="left", fontsize=11)
    return figure


def gallery(topologies: Sequence[Topology], columns: int = 3) -> Figure:
    """Several networks side by side, by their names.

    Raises: as `draw`.
    """
    layouts = [_layout(topology) for topology in topologies]
    with rc_context(LOOK):
        rows = -(-len(topologies) // columns)
        figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for axes, topology, layout in zip(panels, topologies, layouts, strict=False):
            _fill(axes, topology, layout, None)
            axes.set_title(topology.name, loc="left", fontsize=11)
        for axes in list(panels)[len(topologies) :]:
            axes.set_axis_off()
    return figure


def _layout(topology: Topology) -> Layout:
    if topology.is_complete:
        raise UsageError("a complete network has no links of its own to draw")
    if topology.nodes > _MOST_DRAWN:
        raise UsageError(f"a picture of {topology.nodes} nodes shows nothing; draw {_MOST_DRAWN} at most")
    return place(topology)


def _fill(
    axes: Axes, topology: Topology, layout: Layout, load: Mapping[tuple[int, int], float] | None
) -> None:
    axes.set_axis_off()
    axes.set_aspect("equal")
    if load is None:
        _by_wire(axes, topology, layout)
    else:
        _by_load(axes, topology, layout, load)
    _boxes(axes, layout)
    _nodes(axes, topology, layout)
    axes.autoscale_view()


def _extent(layout: Layout) -> tuple[float, float]:
    xs, ys = zip(*layout.at.values(), strict=True)
    return max(xs) - min(xs), max(ys) - min(ys)


def _scale(layout: Layout) -> float:
    """Inches from a node to its neighbour."""
    return min(0.75, 11.0 / max(1.0, *_extent(layout)))


def _size(layout: Layout) -> tuple[float, float]:
    width, height = _extent(layout)
    return max(4.5, width * _scale(layout) + 1.2), max(2.4, height * _scale(layout) + 1.9)


# --- Links.


def _by_wire(axes: Axes, topology: Topology, layout: Layout) -> None:
    """A colour for each kind of link, as far as there are colours."""
    wires = {link[:2]: (link[2] * link[4], link[3]) for link in topology.links}
    kinds = sorted(set(wires.values()), key=lambda kind: (-kind[0], kind[1]))
    shown = kinds[: len(_LINES)]
    colours = {kind: _LINES[min(nth, len(_LINES) - 1)] for nth, kind in enumerate(kinds)}
    for (src, dst), kind in wires.items():
        back = wires.get((dst, src))
        if back != kind:
            _line(axes, layout, (src, dst), (colours[kind], 1.3), apart=back is not None, arrow=True)
        elif src < dst:
            _line(axes, layout, (src, dst), (colours[kind], 1.3), apart=False, arrow=False)
    names = [_wire_words(*kind) for kind in shown]
    if len(kinds) > len(shown):
        names[-1] = f"{len(kinds) - len(shown) + 1} slower kinds"
    handles = [Line2D([], [], color=colours[kind], linewidth=1.3) for kind in shown]
    columns, below = min(3, len(names)), (0.5, -0.02)
    axes.legend(
        handles, names, loc="upper center", bbox_to_anchor=below, ncols=columns, frameon=False, fontsize=9
    )


def _by_load(axes: Axes, topology: Topology, layout: Layout, load: Mapping[tuple[int, int], float]) -> None:
    """Each direction by itself, from pale to dark."""
    colours, most = colormaps["viridis_r"], max(load.values(), default=0.0) or 1.0
    for src, dst, *_ in topology.links:
        sent = load.get((src, dst), 0.0)
        colour = colours(0.08 + 0.92 * sent / most) if sent else "#dfe3e6"
        _line(axes, layout, (src, dst), (colour, 1.6 if sent else 0.8), apart=True, arrow=False)
    scale = ScalarMappable(Normalize(0, most / 1e6), colours)
    bar = _figure(axes).colorbar(scale, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.02)
    bar.set_label("sent over each direction of a link (MB)")


def _line(
    axes: Axes, layout: Layout, link: tuple[int, int], style: tuple[Any, float], *, apart: bool, arrow: bool
) -> None:
    """A line from node to node; beside the one of the way back where they are `apart`."""
    start, end = layout.at[link[0]], layout.at[link[1]]
    if link in layout.around:
        _stubs(axes, start, end, style, apart)
        return
    if apart:
        start, end = _beside(start, end)
    bend = 0.18 if _passes(layout, link) else 0.0
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>" if arrow else "-",
            mutation_scale=9,
            shrinkA=7,
            shrinkB=8 if arrow else 7,
            color=style[0],
            linewidth=style[1],
            zorder=1,
        )
    )


def _stubs(axes: Axes, start: Point, end: Point, style: tuple[Any, float], apart: bool) -> None:
    """The two ends of a link that goes round a torus: out at one side, in at the other."""
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    dx, dy = (0.62 * (end[axis] - start[axis]) / length for axis in (0, 1))
    for point, sign in ((start, -1), (end, 1)):
        ends = point, (point[0] + sign * dx, point[1] + sign * dy)
        (x0, y0), (x1, y1) = _beside(*(ends if sign < 0 else ends[::-1])) if apart else ends
        axes.plot([x0, x1], [y0, y1], color=style[0], linewidth=style[1], linestyle=(0, (3, 1.5)), zorder=1)


def _beside(start: Point, end: Point) -> tuple[Point, Point]:
    """Moved to the right, seen in its own direction."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(1e-9, (dx * dx + dy * dy) ** 0.5)
    right = 0.06 * dy / length, -0.06 * dx / length
    return (start[0] + right[0], start[1] + right[1]), (end[0] + right[0], end[1] + right[1])


def _passes(layout: Layout, link: tuple[int, int]) -> bool:
    """Another node lies on the straight line."""
    (x0, y0), (x1, y1) = layout.at[link[0]], layout.at[link[1]]
    dx, dy = x1 - x0, y1 - y0
    square = dx * dx + dy * dy
    for node, (x, y) in layout.at.items():
        along = ((x - x0) * dx + (y - y0) * dy) / square
        aside = abs((x - x0) * dy - (y - y0) * dx) / square**0.5
        if node not in link and 0 < along < 1 and aside < 0.15:
            return True
    return False


# --- Nodes, frames, words.


def _nodes(axes: Axes, topology: Topology, layout: Layout) -> None:
    """Numbers where there is room for them."""
    size = max(18.0, 150 * min(1.0, _scale(layout) / 0.5) ** 2)
    ranks = {node: point for node, point in layout.at.items() if node < topology.ranks}
    switches = {node: point for node, point in layout.at.items() if node >= topology.ranks}
    for points, colour, marker in ((ranks, _RANK, "o"), (switches, _SWITCH, "s")):
        xs, ys = [x for x, _ in points.values()], [y for _, y in points.values()]
        axes.scatter(xs, ys, s=size, c=colour, marker=marker, zorder=3, clip_on=False)
    for node, point in layout.at.items() if size > 40 else ():
        axes.annotate(
            str(node), point, color="white", ha="center", va="center", fontsize=0.55 * size**0.5, zorder=4
        )


def _boxes(axes: Axes, layout: Layout) -> None:
    for box in layout.boxes:
        frame = FancyBboxPatch(
            (box.left, box.bottom),
            box.right - box.left,
            box.top - box.bottom,
            boxstyle="round,pad=0.1",
            facecolor="#f4f6f7",
            edgecolor="#c9d0d4",
            zorder=0,
        )
        axes.add_patch(frame)
        axes.annotate(box.label, (box.left, box.bottom - 0.2), va="top", fontsize=9, color="#667079")


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes of a figure"
    return figure


def _wire_words(bandwidth: float, latency_s: float) -> str:
    rate = bandwidth * 8
    units = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))
    unit, least = next((unit for unit in units if rate >= unit[1]), units[-1])
    late = f"{latency_s * 1e3:g} ms" if latency_s >= 1e-3 else f"{latency_s * 1e6:g} µs"
    return f"{rate / least:.4g} {unit}, {late}"
