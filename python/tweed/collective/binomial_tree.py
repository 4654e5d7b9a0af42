"""Binomial tree: the number of ranks reached doubles with each step.

Best for small buffers over a network: few steps, one message at a time into each rank. The root carries
the whole buffer once per step, so large buffers are better off elsewhere. On a network whose links are known
the buffer may be cut, so that pieces follow each other along the tree.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tweed._core import Send
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Shape, levels, one, pattern, per_rank


class Edge(NamedTuple):
    """A parent, its child, and the end of the child's subtree (`child .. end`), at a level from the root."""

    level: int
    parent: int
    child: int
    end: int


def edges(ranks: int) -> Iterator[Edge]:
    """The tree of root 0, from the root down. Subtrees are contiguous."""
    for level in range(levels(ranks)):
        span = 1 << (levels(ranks) - level - 1)
        for parent in range(0, ranks - span, 2 * span):
            yield Edge(level, parent, parent + span, min(parent + 2 * span, ranks))


def _one_way(ranks: int) -> Shape:
    steps = levels(ranks)
    return Shape(steps=steps, messages=steps, volume=float(steps), fan_in=1)


def _both_ways(ranks: int) -> Shape:
    return _one_way(ranks)._replace(steps=2 * levels(ranks))


def _parts(ranks: int) -> Shape:
    return _one_way(ranks)._replace(volume=(ranks - 1) / ranks)


@pattern("binomial_tree", "broadcast", chunks=one, shape=_one_way)
def broadcast(ranks: int) -> Iterator[Send]:
    """From the root down.

    Cost: `ceil(log2 P)` steps; the root sends that many buffers.
    """
    return _down(ranks, first_step=0)


@pattern("binomial_tree", "reduce", chunks=one, shape=_one_way)
def reduce(ranks: int) -> Iterator[Send]:
    """From the leaves up.

    Cost: `ceil(log2 P)` steps; the root receives that many buffers.
    """
    for level, parent, child, _ in edges(ranks):
        yield Send(levels(ranks) - 1 - level, child, parent, 0, True)


@pattern("binomial_tree", "all_reduce", chunks=one, shape=_both_ways)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Up to rank 0, and down again.

    Cost: `2 ceil(log2 P)` steps; rank 0 receives, and then sends, half as many buffers.
    """
    yield from reduce(ranks)
    yield from _down(ranks, first_step=levels(ranks))


@pattern("binomial_tree", "gather", chunks=per_rank, shape=_parts)
def gather(ranks: int) -> Iterator[Send]:
    """Each rank hands up what its subtree has collected.

    Cost: `ceil(log2 P)` steps; the root receives `(P - 1) / P` of the buffer.
    """
    for level, parent, child, end in edges(ranks):
        for chunk in range(child, end):
            yield Send(levels(ranks) - 1 - level, child, parent, chunk, False)


@pattern("binomial_tree", "scatter", chunks=per_rank, shape=_parts)
def scatter(ranks: int) -> Iterator[Send]:
    """Each rank hands down what its children's subtrees need.

    Cost: `ceil(log2 P)` steps; the root sends `(P - 1) / P` of the buffer.
    """
    for level, parent, child, end in edges(ranks):
        for chunk in range(child, end):
            yield Send(level, parent, child, chunk, False)


def _down(ranks: int, first_step: int) -> Iterator[Send]:
    for level, parent, child, _ in edges(ranks):
        yield Send(first_step + level, parent, child, 0, False)


binomial_tree = of_patterns(all_reduce, broadcast, reduce, gather, scatter, pieces=(1, 4, 16))
