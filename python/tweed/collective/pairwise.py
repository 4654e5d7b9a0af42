"""Pairwise and exchange: every rank sends to every other one directly, parts or the whole buffer.

All contributions of a part arrive at its owner in one step, so that they are summed in one pass over
memory. This is fastest where ranks share memory, and the one with the fewest steps anywhere. Over a
network it needs `P - 1` messages per rank and as many senders into each port.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005, section 4.4 (the long-message algorithms); here the exchanges of all pairs form one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from tweed._core import Send
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Shape, one, others, pattern, per_pair, per_rank


def _half(ranks: int) -> Shape:
    return Shape(steps=1, messages=ranks - 1, volume=(ranks - 1) / ranks, fan_in=ranks - 1)


def _whole(ranks: int) -> Shape:
    return Shape(steps=2, messages=2 * (ranks - 1), volume=2 * (ranks - 1) / ranks, fan_in=ranks - 1)


def _pairs(ranks: int) -> Shape:
    return _half(ranks)._replace(volume=(ranks - 1) / ranks**2)


@pattern("pairwise", "reduce_scatter", chunks=per_rank, shape=_half)
def reduce_scatter(ranks: int) -> Iterator[Send]:
    """Everybody sends each owner its part; the owner sums all of them at once.

    Cost: 1 step; `(P - 1) / P` of the buffer sent per rank.
    """
    for owner in range(ranks):
        for rank in others(ranks, owner):
            yield Send(0, rank, owner, owner, True)


@pattern("pairwise", "all_gather", chunks=per_rank, shape=_half)
def all_gather(ranks: int) -> Iterator[Send]:
    """Every owner sends everybody its part.

    Cost: 1 step; `(P - 1) / P` of the buffer sent per rank.
    """
    return _spread(ranks, step=0)


@pattern("pairwise", "all_reduce", chunks=per_rank, shape=_whole)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Reduce-scatter, then all-gather.

    Cost: 2 steps; `2 (P - 1) / P` of the buffer sent per rank.
    """
    yield from reduce_scatter(ranks)
    yield from _spread(ranks, step=1)


@pattern("pairwise", "reduce", chunks=per_rank, shape=_whole)
def reduce(ranks: int) -> Iterator[Send]:
    """Reduce-scatter, then every owner sends the root its part; all ranks share the summing.

    Cost: 2 steps; the root receives `2 (P - 1) / P` of the buffer.
    """
    yield from reduce_scatter(ranks)
    for owner in others(ranks, 0):
        yield Send(1, owner, 0, owner, False)


@pattern("pairwise", "broadcast", chunks=per_rank, shape=_whole)
def broadcast(ranks: int) -> Iterator[Send]:
    """The root sends each rank its part, then everybody sends everybody else theirs.

    Cost: 2 steps; the root sends `2 (P - 1) / P` of the buffer.
    """
    for owner in others(ranks, 0):
        yield Send(0, 0, owner, owner, False)
    for owner in range(ranks):
        for rank in others(ranks, 0, owner):
            yield Send(1, owner, rank, owner, False)


@pattern("pairwise", "all_to_all", chunks=per_pair, shape=_pairs)
def all_to_all(ranks: int) -> Iterator[Send]:
    """Everybody sends everybody their part.

    Cost: 1 step; `(P - 1) / P` of its own buffer sent per rank.
    """
    for src in range(ranks):
        for dst in others(ranks, src):
            yield Send(0, src, dst, src * ranks + dst, False)


def _spread(ranks: int, step: int) -> Iterator[Send]:
    for owner in range(ranks):
        for rank in others(ranks, owner):
            yield Send(step, owner, rank, owner, False)


def _everything(ranks: int) -> Shape:
    return Shape(steps=1, messages=ranks - 1, volume=float(ranks - 1), fan_in=ranks - 1)


@pattern("exchange", "all_reduce", chunks=one, shape=_everything)
def exchanged(ranks: int) -> Iterator[Send]:
    """Everybody sends everybody the whole buffer, and sums for itself: for the smallest buffers.

    Nobody waits twice. All ranks sum in the same order, so the results are equal bit for bit.

    Cost: 1 step; `P - 1` buffers sent per rank.
    Source: own design; the first step of every all-to-all broadcast.
    """
    for rank in range(ranks):
        for other in others(ranks, rank):
            yield Send(0, rank, other, 0, True)


pairwise = of_patterns(all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all)
exchange = of_patterns(exchanged)
