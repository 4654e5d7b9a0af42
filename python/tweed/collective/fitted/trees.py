"""Trees, and the one step from trees to a schedule that all tree builders share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


def schedule_of(
    trees: Sequence[Tree],
    name: str,
    collective: str,
    topology: Topology,
    *,
    up: Sequence[Tree] | None = None,
    pieces: int = 1,
    stride: int = 1,
    ordered: bool = False,
) -> Schedule:
    """A checked schedule in which every tree carries an equal share of the buffer.

    Args:
      trees: for all_gather and reduce_scatter, equally many from every rank; for broadcast and reduce, all
        from one root; for all_reduce, any. Values spread along them.
      up: sums are taken along these against their direction: they were grown on `topology.reversed()`, with
        the same roots in the same order. None: `trees`, where links are the same in both directions.
      pieces: each share is cut into so many, which follow each other.
      stride: each piece is so many steps behind the one before.
      ordered: a link sends in the order of the steps. Otherwise it sends what is ready first.

    Raises: ScheduleError if the trees do not make the collective, or use links that are not there.
    """
    return tree_schedule(name, collective, topology, trees, up or trees, (pieces, stride, ordered))
