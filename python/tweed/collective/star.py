"""Star: rank 0 (or the root) is a server, and nobody else talks to anybody but it.

The only choice where members can reach the server but not each other. In shared memory it is also the best
to broadcast, gather and scatter: each rank reads straight from where the data is. Elsewhere the server
carries everybody's traffic.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014 (one server).
"""

from __future__ import annotations

from collections.abc import Iterator

from tweed._core import Send
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Shape, one, others, pattern, per_pair, per_rank


def _in(ranks: int) -> Shape:
    return Shape(steps=1, messages=ranks - 1, volume=float(ranks - 1), fan_in=ranks - 1)


def _out(ranks: int) -> Shape:
    return _in(ranks)._replace(fan_in=1)


def _in_and_out(ranks: int) -> Shape:
    return _in(ranks)._replace(steps=2)


def _parts_in(ranks: int) -> Shape:
    return _in(ranks)._replace(volume=(ranks - 1) / ranks)


def _parts_out(ranks: int) -> Shape:
    return _out(ranks)._replace(volume=(ranks - 1) / ranks)


def _parts_to_all(ranks: int) -> Shape:
    return _in_and_out(ranks)._replace(volume=(ranks - 1) ** 2 / ranks)


def _pairs(ranks: int) -> Shape:
    return _in_and_out(ranks)._replace(volume=(ranks - 1) ** 2 / ranks**2)


@pattern("star", "broadcast", chunks=one, shape=_out)
def broadcast(ranks: int) -> Iterator[Send]:
    """The root sends everybody the whole buffer.

    Cost: 1 step; the root sends `P - 1` buffers.
    """
    return _to_all(ranks, step=0)


@pattern("star", "reduce", chunks=one, shape=_in)
def reduce(ranks: int) -> Iterator[Send]:
    """Everybody sends the root the whole buffer; the root sums all of them at once.

    Cost: 1 step; the root receives `P - 1` buffers.
    """
    for rank in others(ranks, 0):
        yield Send(0, rank, 0, 0, True)


@pattern("star", "all_reduce", chunks=one, shape=_in_and_out)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Everything to the server, and the sum back.

    Cost: 2 steps; the server receives, then sends, `P - 1` buffers.
    """
    yield from reduce(ranks)
    yield from _to_all(ranks, step=1)


@pattern("star", "gather", chunks=per_rank, shape=_parts_in)
def gather(ranks: int) -> Iterator[Send]:
    """Everybody sends the root its part.

    Cost: 1 step; the root receives `(P - 1) / P` of the buffer.
    """
    for rank in others(ranks, 0):
        yield Send(0, rank, 0, rank, False)


@pattern("star", "scatter", chunks=per_rank, shape=_parts_out)
def scatter(ranks: int) -> Iterator[Send]:
    """The root sends everybody their part.

    Cost: 1 step; the root sends `(P - 1) / P` of the buffer.
    """
    return _parts(ranks, step=0)


@pattern("star", "all_gather", chunks=per_rank, shape=_parts_to_all)
def all_gather(ranks: int) -> Iterator[Send]:
    """Gather, then the server sends everybody what they lack.

    Cost: 2 steps; the server sends `(P - 1) ** 2 / P` buffers.
    """
    yield from gather(ranks)
    for rank in others(ranks, 0):
        for chunk in others(ranks, rank):
            yield Send(1, 0, rank, chunk, False)


@pattern("star", "reduce_scatter", chunks=per_rank, shape=_in_and_out)
def reduce_scatter(ranks: int) -> Iterator[Send]:
    """Everything to the server, and everybody's part of the sum back.

    Cost: 2 steps; the server receives `P - 1` buffers.
    """
    for rank in others(ranks, 0):
        for chunk in range(ranks):
            yield Send(0, rank, 0, chunk, True)
    yield from _parts(ranks, step=1)


@pattern("star", "all_to_all", chunks=per_pair, shape=_pairs, equal_parts=True)
def all_to_all(ranks: int) -> Iterator[Send]:
    """Everything to the server, which hands it out.

    Cost: 2 steps; the server receives, then sends, `(P - 1) ** 2 / P` ranks' buffers.
    """
    for src in others(ranks, 0):
        for dst in others(ranks, src):
            yield Send(0, src, 0, src * ranks + dst, False)
    for dst in others(ranks, 0):
        for src in others(ranks, dst):
            yield Send(1, 0, dst, src * ranks + dst, False)


def _to_all(ranks: int, step: int) -> Iterator[Send]:
    for rank in others(ranks, 0):
        yield Send(step, 0, rank, 0, False)


def _parts(ranks: int, step: int) -> Iterator[Send]:
    for rank in others(ranks, 0):
        yield Send(step, 0, rank, rank, False)


star = of_patterns(all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all)
