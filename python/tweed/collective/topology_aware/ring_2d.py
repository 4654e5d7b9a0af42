"""2D ring: an all-reduce along every row, then one along every column, in four flows at once.

Each flow has a quarter of the buffer: two start with the rows, one in each direction, two with the columns.
Every quarter goes round whole in both phases, so on a square torus with side n it takes `(n - 1) / n` of the
time in which one link carries the buffer, which is nearly twice the bound; `bucket` has no such slack. Links
keep to the order of the steps, or flows that are ahead hold up other flows: on an 8x8 torus whole chunks took
1.03 and take 0.88. On a mesh the rings close over their own lines, and it takes twice as long; there whoever
waits for a turn loses more than the order gains, and ranks send what is ready.

Source: Ying et al., "Image Classification at Supercomputer Scale", 2018; as a baseline with four flows in
Huang et al., "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning", ISCA 2021,
section VI.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import NamedTuple

from tweed._core import Schedule, Send, Topology
from tweed.collective.builder import Builder
from tweed.collective.pattern import in_order, schedule
from tweed.collective.topology import grids


class _Flow(NamedTuple):
    """The chunks from `first` on, so many as `chunks`, go round along `axes` one after the other."""

    topology: Topology
    axes: tuple[int, ...]
    sign: int
    first: int
    chunks: int


def _sends(topology: Topology) -> Iterator[Send]:
    rows, columns = grids.axes(topology)
    chunks = lcm(topology.sides[rows], topology.sides[columns])
    flows = [((columns, rows), 1), ((columns, rows), -1), ((rows, columns), 1), ((rows, columns), -1)]
    for number, (axes, sign) in enumerate(flows):
        step = 0
        for axis in axes:
            yield from _round(_Flow(topology, axes, sign, number * chunks, chunks), axis, step)
            step += 2 * (topology.sides[axis] - 1)


def _round(flow: _Flow, axis: int, first_step: int) -> Iterator[Send]:
    """Ring all-reduce along every line of an axis."""
    side = flow.topology.sides[axis]
    part = flow.chunks // side
    for step in range(2 * (side - 1)):
        reduce = step < side - 1
        for src in range(flow.topology.ranks):
            at = grids.place(flow.topology, src, axis)
            dst = grids.moved(flow.topology, src, axis, at + flow.sign)
            route = _back(flow.topology, src, dst, axis)
            first = flow.first + (at - flow.sign * (step + 1)) % side * part
            for chunk in range(first, first + part):
                yield Send(first_step + step, src, dst, chunk, reduce, route)


def _back(topology: Topology, src: int, dst: int, axis: int) -> list[int]:
    """The route along a line that has no link between its ends."""
    sign = 1 if dst > src else -1
    return [] if topology.wraps[axis] else list(grids.between(topology, src, dst, axis, sign))


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    rows, columns = grids.axes(topology)
    chunks = 4 * lcm(topology.sides[rows], topology.sides[columns])
    sends = in_order(_sends(topology)) if all(topology.wraps) else _sends(topology)
    return schedule("ring_2d", collective, topology.ranks, chunks, sends, topology=topology)


def _refuses(topology: Topology) -> str:
    if len(grids.axes(topology)) != 2:
        return "it needs a grid with two dimensions"
    return grids.refuses(topology)


ring_2d = Builder("ring_2d", _make, _refuses)
