"""Recursive halving and doubling, for any number of ranks.

A group splits into two halves, each rank sends its partner in the other half what that half is to own, and
both halves go on by themselves. Halves may differ by one rank: the odd one out shares its partner with the
first rank of its half. So no rank sits out, and no step is spent on making the number a power of two.
Doubling is the same backwards.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005, sections 4.1 and 4.4; the uneven halves are our own design.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

from tweed._core import Send
from tweed.collective import binomial_tree
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Message, Shape, levels, pattern, per_pair, per_rank, shape_of


class Swap(NamedTuple):
    """At a level from the top, `rank` gives `partner` what the ranks `low .. high` of its half are to own."""

    level: int
    rank: int
    partner: int
    low: int
    high: int


def partner(rank: int, low: int, high: int) -> tuple[int, int, int]:
    """The partner of a rank of the group `low .. high`, and the bounds of the partner's half."""
    middle = (low + high + 1) // 2
    if rank < middle:
        return middle + (rank - low) % (high - middle), middle, high
    return low + (rank - middle), low, middle


def swaps(ranks: int) -> Iterator[Swap]:
    """Every exchange of a halving, from the whole group down to pairs."""
    groups = [(0, ranks)]
    for level in range(levels(ranks)):
        groups = [group for group in groups if group[1] - group[0] > 1]
        for low, high in groups:
            for rank in range(low, high):
                yield Swap(level, rank, *partner(rank, low, high))
        middles = [((low + high + 1) // 2, low, high) for low, high in groups]
        groups = [half for middle, low, high in middles for half in ((low, middle), (middle, high))]


def _halving(ranks: int) -> Iterator[Message]:
    for level, rank, to, low, high in swaps(ranks):
        yield Message(level, rank, to, (high - low) / ranks)


def _doubling(ranks: int, last_step: int) -> Iterator[Message]:
    for level, rank, to, volume in _halving(ranks):
        yield Message(last_step - level, to, rank, volume)


@lru_cache(maxsize=64)
def _half(ranks: int) -> Shape:
    return shape_of(_halving(ranks))


@lru_cache(maxsize=64)
def _back(ranks: int) -> Shape:
    return shape_of(_doubling(ranks, levels(ranks) - 1))


@lru_cache(maxsize=64)
def _whole(ranks: int) -> Shape:
    return shape_of(chain(_halving(ranks), _doubling(ranks, 2 * levels(ranks) - 1)))


def _ends(ranks: int) -> list[int]:
    """After the scatter down the binomial tree each rank holds the parts from its own up to this one."""
    ends = [ranks] * ranks
    for edge in binomial_tree.edges(ranks):
        ends[edge.child] = edge.end
    return ends


@lru_cache(maxsize=64)
def _by_root(ranks: int) -> Shape:
    tree = binomial_tree.edges(ranks)
    parts = (Message(edge.level, edge.parent, edge.child, (edge.end - edge.child) / ranks) for edge in tree)
    return shape_of(chain(parts, _missing(ranks)))


def _missing(ranks: int) -> Iterator[Message]:
    """The doubling, without the parts that the scatter has left at the ranks that it passes."""
    ends = _ends(ranks)
    for level, rank, to, low, high in swaps(ranks):
        there = max(0, min(high, ends[rank]) - max(low, rank))
        if high - low > there:
            yield Message(2 * levels(ranks) - 1 - level, to, rank, (high - low - there) / ranks)


@lru_cache(maxsize=64)
def _forwarding(ranks: int) -> Shape:
    # How many ranks' parts each rank holds for one destination of its group.
    held = [1] * ranks
    messages = []
    for _, level in groupby(swaps(ranks), key=lambda swap: swap.level):
        taken = held.copy()
        for step, rank, to, low, high in level:
            messages.append(Message(step, rank, to, held[rank] * (high - low) / ranks**2))
            taken[to] += held[rank]
        held = taken
    return shape_of(messages)


@pattern("halving_doubling", "reduce_scatter", chunks=per_rank, shape=_half)
def reduce_scatter(ranks: int) -> Iterator[Send]:
    """Halving.

    Cost: `ceil(log2 P)` steps; `(P - 1) / P` of the buffer sent per rank where P is a power of two.
    """
    for level, rank, to, low, high in swaps(ranks):
        for chunk in range(low, high):
            yield Send(level, rank, to, chunk, True)


@pattern("halving_doubling", "all_gather", chunks=per_rank, shape=_back)
def all_gather(ranks: int) -> Iterator[Send]:
    """Doubling.

    Cost: `ceil(log2 P)` steps; `(P - 1) / P` of the buffer sent per rank where P is a power of two.
    """
    return _spread(ranks, last_step=levels(ranks) - 1)


@pattern("halving_doubling", "all_reduce", chunks=per_rank, shape=_whole)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Halving, then doubling.

    Cost: `2 ceil(log2 P)` steps; `2 (P - 1) / P` of the buffer sent per rank where P is a power of two.
    """
    yield from reduce_scatter(ranks)
    yield from _spread(ranks, last_step=2 * levels(ranks) - 1)


@pattern("halving_doubling", "broadcast", chunks=per_rank, shape=_by_root)
def broadcast(ranks: int) -> Iterator[Send]:
    """A scatter down the binomial tree, then doubling.

    Cost: `2 ceil(log2 P)` steps; the root sends `2 (P - 1) / P` of the buffer where P is a power of two.
    """
    yield from binomial_tree.scatter(ranks)
    ends = _ends(ranks)
    for send in _spread(ranks, last_step=2 * levels(ranks) - 1):
        if not send.dst <= send.chunk < ends[send.dst]:
            yield send


@pattern("halving_doubling", "all_to_all", chunks=per_pair, shape=_forwarding, equal_parts=True)
def all_to_all(ranks: int) -> Iterator[Send]:
    """Every part moves to its destination's half, then to its quarter, and so on.

    Cost: `ceil(log2 P)` steps and messages per rank, where direct sends take `P - 1` messages; each
    part crosses up to that many links, so about `log2(P) / (2 P)` of the buffer is sent per rank.
    """
    for src in range(ranks):
        for dst in range(ranks):
            yield from _forward(src, dst, ranks)


def _forward(src: int, dst: int, ranks: int) -> Iterator[Send]:
    rank, low, high = src, 0, ranks
    for level in range(levels(ranks)):
        if high - low == 1:
            return
        middle = (low + high + 1) // 2
        if (rank < middle) != (dst < middle):
            to, _, _ = partner(rank, low, high)
            yield Send(level, rank, to, src * ranks + dst, False)
            rank = to
        low, high = (low, middle) if dst < middle else (middle, high)


def _spread(ranks: int, last_step: int) -> Iterator[Send]:
    for level, rank, to, low, high in swaps(ranks):
        for chunk in range(low, high):
            yield Send(last_step - level, to, rank, chunk, False)


halving_doubling = of_patterns(all_reduce, reduce_scatter, all_gather, broadcast, all_to_all)
