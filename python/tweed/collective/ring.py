"""Ring: every rank talks to its two neighbours only, and carries no more bytes than it must.

Best for large buffers where many senders into one port are trouble. Slow for small ones: the number of
steps grows with the number of ranks.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

from tweed._core import Send
from tweed.collective.builder import of_patterns
from tweed.collective.pattern import Shape, one, pattern, per_rank
from tweed.collective.topology_aware import cycles


def _half(ranks: int) -> Shape:
    return Shape(steps=ranks - 1, messages=ranks - 1, volume=(ranks - 1) / ranks, fan_in=1)


def _whole(ranks: int) -> Shape:
    steps, messages, volume, fan_in = _half(ranks)
    return Shape(2 * steps, 2 * messages, 2 * volume, fan_in)


def _chain(ranks: int) -> Shape:
    return Shape(steps=ranks - 1, messages=1, volume=1.0, fan_in=1)


@pattern("ring", "reduce_scatter", chunks=per_rank, shape=_half)
def reduce_scatter(ranks: int) -> Iterator[Send]:
    """Each chunk starts behind its owner and goes once round, growing, until it gets there.

    Cost: `P - 1` steps; `(P - 1) / P` of the buffer sent per rank.
    """
    for step in range(ranks - 1):
        for rank in range(ranks):
            yield Send(step, rank, (rank + 1) % ranks, (rank - step - 1) % ranks, True)


@pattern("ring", "all_gather", chunks=per_rank, shape=_half)
def all_gather(ranks: int) -> Iterator[Send]:
    """Each chunk starts at its owner and goes once round.

    Cost: `P - 1` steps; `(P - 1) / P` of the buffer sent per rank.
    """
    return _spread(ranks, first_step=0)


@pattern("ring", "all_reduce", chunks=per_rank, shape=_whole)
def all_reduce(ranks: int) -> Iterator[Send]:
    """Reduce-scatter, then all-gather.

    Cost: `2 (P - 1)` steps; `2 (P - 1) / P` of the buffer sent per rank.
    """
    yield from reduce_scatter(ranks)
    yield from _spread(ranks, first_step=ranks - 1)


@pattern("ring", "broadcast", chunks=one, shape=_chain)
def broadcast(ranks: int) -> Iterator[Send]:
    """A chain from the root to the last rank; the engine cuts the buffer finer, so that links overlap.

    Cost: `P - 1` steps; one buffer sent per rank.
    """
    for rank in range(ranks - 1):
        yield Send(rank, rank, rank + 1, 0, False)


@pattern("ring", "reduce", chunks=one, shape=_chain)
def reduce(ranks: int) -> Iterator[Send]:
    """A chain from the last rank to the root.

    Cost: `P - 1` steps; one buffer sent per rank.
    """
    for step, rank in enumerate(range(ranks - 1, 0, -1)):
        yield Send(step, rank, rank - 1, 0, True)


def _spread(ranks: int, first_step: int) -> Iterator[Send]:
    for step in range(ranks - 1):
        for rank in range(ranks):
            yield Send(first_step + step, rank, (rank + 1) % ranks, (rank - step) % ranks, False)


ring = of_patterns(all_reduce, reduce_scatter, all_gather, order=cycles.order)

chain = of_patterns(broadcast, reduce)
"""The ring of collectives with a root, by numbers alone: a plan turns it to any root."""
