"""Double binary tree: each half of the buffer has its own tree, and who is inside one is a leaf of the other.

So every rank carries about the whole buffer once, as on a chain, but in a number of steps that grows with
the logarithm of the number of ranks. Rank 0 stands apart, above both trees. On a network whose links are
known the halves may be cut, so that pieces follow each other along the trees, sums of some beside results of
others.

Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35, 2009, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tweed._core import Send
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Shape, levels, pattern, two


class Edge(NamedTuple):
    """A child and its parent in the tree of one half; height 0 is that of the leaves."""

    height: int
    child: int
    parent: int
    half: int


def edges(ranks: int) -> Iterator[Edge]:
    """Both trees over the ranks 1 .. P - 1, with rank 0 above their tops."""
    inner = ranks - 1
    for rank in range(1, ranks):
        height, parent = _up(rank, inner)
        yield Edge(height, rank, parent, 0)
    for position in range(1, ranks):
        height, parent = _up(position, inner)
        yield Edge(height, _second(position, inner), _second(parent, inner), 1)


def _up(position: int, inner: int) -> tuple[int, int]:
    """Height of a position of 1 .. inner in an in-order tree, and its parent; the top's parent is 0."""
    low = position & -position
    parent = position & ~low | low << 1
    return low.bit_length() - 1, parent if parent <= inner else position & ~low


def _second(position: int, inner: int) -> int:
    """The rank at a position of the second tree, where leaves (odd positions) and the others swap places."""
    if position == 0:
        return 0
    if inner % 2 == 0:
        return inner + 1 - position
    return (position - 2) % inner + 1


def _up_shape(ranks: int) -> Shape:
    few = min(ranks - 1, 2)
    return Shape(steps=levels(ranks), messages=few, volume=1.0, fan_in=few)


def _down_shape(ranks: int) -> Shape:
    # An even number of inner ranks mirrors the first tree, so both halves reach a rank at different times.
    return _up_shape(ranks)._replace(fan_in=2 if ranks % 2 == 0 and ranks > 2 else 1)


def _both_ways(ranks: int) -> Shape:
    most = min(ranks, 4)
    messages = 1 if ranks == 2 else most
    return Shape(2 * levels(ranks), messages, volume=most / 2, fan_in=min(ranks - 1, 2))


@pattern("double_binary_tree", "reduce", chunks=two, shape=_up_shape)
def reduce(ranks: int) -> Iterator[Send]:
    """Both halves up, each in its tree.

    Cost: `ceil(log2 P)` steps; one buffer sent and at most one received per rank.
    """
    for height, child, parent, half in edges(ranks):
        yield Send(height, child, parent, half, True)


@pattern("double_binary_tree", "broadcast", chunks=two, shape=_down_shape)
def broadcast(ranks: int) -> Iterator[Send]:
    """Both halves down, each in its tree.

    Cost: `ceil(log2 P)` steps; one buffer received and at most one sent per rank.
    """
    return _down(ranks, last_step=levels(ranks) - 1)


@pattern("double_binary_tree", "all_reduce", chunks=two, shape=_both_ways)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Up to rank 0, and down again.

    Cost: `2 ceil(log2 P)` steps; at most two buffers sent and two received per rank.
    """
    yield from reduce(ranks)
    yield from _down(ranks, last_step=2 * levels(ranks) - 1)


def _down(ranks: int, last_step: int) -> Iterator[Send]:
    for height, child, parent, half in edges(ranks):
        yield Send(last_step - height, parent, child, half, False)


double_binary_tree = of_patterns(all_reduce, broadcast, reduce, pieces=(1, 4, 16, 64))
