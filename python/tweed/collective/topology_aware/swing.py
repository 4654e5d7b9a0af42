"""Swing: halving-doubling whose partners lie now on one side, now on the other, so that messages stay near.

On a ring of ranks, in exchange number s, an even rank's partner lies `1 - 2 + 4 - ... + (-2)^s` to its right
and an odd rank's as far to its left: 1, 1, 3, 5, 11 links away instead of 1, 2, 4, 8, 16. On a torus the
exchanges take the dimensions in turn. Flows that start with different dimensions and in both directions share
the buffer, so that all links of a rank work at once.

`swing` sums and spreads by halves, so bytes are few. `swing_latency` exchanges all it has in every step and
takes half as many: for short messages.

Source: De Sensi et al., "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", NSDI 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tweed._core import Schedule, Send, Topology
from tweed.collective.builder import Builder
from tweed.collective.pattern import schedule
from tweed.collective.topology import grids
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of


class _Exchange(NamedTuple):
    """Even ranks along `axis` have their partner `distance` up the line if `sign` is 1, down if it is -1."""

    axis: int
    distance: int
    sign: int


def flows(topology: Topology) -> list[list[_Exchange]]:
    """The exchanges of every flow: starting with each dimension, and in both directions."""
    axes = grids.axes(topology)
    turns = [axes[first:] + axes[:first] for first in range(len(axes))]
    mirrors = (1, -1) if max(topology.sides) > 2 else (1,)
    return [list(_exchanges(topology, turn, mirror)) for turn in turns for mirror in mirrors]


def _exchanges(topology: Topology, axes: tuple[int, ...], mirror: int) -> Iterator[_Exchange]:
    doublings = {axis: topology.sides[axis].bit_length() - 1 for axis in axes}
    for number in range(max(doublings.values())):
        offset = (1 - (-2) ** (number + 1)) // 3
        for axis in axes:
            if number < doublings[axis]:
                yield _Exchange(axis, abs(offset), mirror if offset > 0 else -mirror)


def _partner(topology: Topology, rank: int, exchange: _Exchange) -> tuple[int, tuple[int, ...]]:
    """Who it is, and the ranks between."""
    at = grids.place(topology, rank, exchange.axis)
    sign = -exchange.sign if at % 2 else exchange.sign
    line = [
        grids.moved(topology, rank, exchange.axis, at + sign * hop) for hop in range(1, exchange.distance + 1)
    ]
    return line[-1], tuple(line[:-1])


def grow(topology: Topology) -> list[Tree]:
    """A tree per flow from every rank, in root order: partners who have nothing yet get what is there."""
    turns = flows(topology)
    return [_tree(topology, root, turn) for root in range(topology.ranks) for turn in turns]


def _tree(topology: Topology, root: int, exchanges: list[_Exchange]) -> Tree:
    members, edges = [root], list[Edge]()
    for step, exchange in enumerate(reversed(exchanges)):
        partners = [(rank, *_partner(topology, rank, exchange)) for rank in members]
        edges += [Edge(rank, partner, step, route) for rank, partner, route in partners]
        members += [partner for _, partner, _ in partners]
    return Tree(root, tuple(edges))


def _whole(topology: Topology, pieces: int) -> Iterator[Send]:
    """Everybody exchanges all of a piece in every step; pieces take the flows in turn."""
    turns = flows(topology)
    for piece in range(pieces):
        for step, exchange in enumerate(turns[piece % len(turns)]):
            for rank in range(topology.ranks):
                partner, route = _partner(topology, rank, exchange)
                yield Send(step, rank, partner, piece, True, list(route))


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    return schedule_of(grow(topology), "swing", collective, topology, pieces=pieces)


def _make_latency(collective: str, topology: Topology, pieces: int) -> Schedule:
    sends = _whole(topology, pieces)
    return schedule("swing_latency", collective, topology.ranks, pieces, sends, topology=topology)


def _refuses(topology: Topology) -> str:
    if why := grids.refuses(topology):
        return why
    for axis in grids.axes(topology):
        side = topology.sides[axis]
        if side & (side - 1) or (side > 2 and not topology.wraps[axis]):
            return "it needs a torus whose sides are powers of two"
    return ""


swing = Builder("swing", _make, _refuses)
swing_latency = Builder("swing_latency", _make_latency, _refuses, pieces=(1, 4))
