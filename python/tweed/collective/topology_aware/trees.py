"""Trees, and the one step from trees to a schedule that all tree builders share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

from tweed._core import Schedule, Topology, tree_schedule


class Edge(NamedTuple):
    """A child joins its parent's tree.

    `step` counts from the root on and is later than the edge that reached `parent`; `route` lists the nodes
    between the two, empty for a direct link.
    """

    parent: int
    child: int
    step: int
    route: tuple[int, ...] = ()


class Tree(NamedTuple):
    """A spanning tree from its root outward: one edge per other rank."""

    root: int
    edges: tuple[Edge, ...]


class Pipeline(TypedDict, total=False):
    """How the parts of a share follow each other.

    `pieces`: each share is cut into so many (default 1). `stride`: each piece is so many steps behind the one
    before (default 1). `ordered`: a link sends in the order of the steps, not what is ready first.
    """

    pieces: int
    stride: int
    ordered: bool


def schedule_of(
    trees: Sequence[Tree],
    name: str,
    collective: str,
    topology: Topology,
    *,
    up: Sequence[Tree] | None = None,
    **pipeline: Unpack[Pipeline],
) -> Schedule:
    """A checked schedule in which every tree carries an equal share of the buffer.

    Args:
      trees: for all_gather and reduce_scatter, equally many from every rank; for broadcast and reduce, all
        from one root; for all_reduce, any. Values spread along them.
      up: sums are taken along these against their direction: they were grown on `topology.reversed()`, with
        the same roots in the same order. None: `trees`, where links are the same in both directions.
      pipeline: see `Pipeline`.

    Raises: ScheduleError if the trees do not make the collective, or use links that are not there.
    """
    asked = (pipeline.get("pieces", 1), pipeline.get("stride", 1), pipeline.get("ordered", False))
    return tree_schedule(name, collective, topology, trees, up or trees, asked)
