"""Carries flights out over a process group: many at once, in step, with as few round trips as there are.

In each round every flight has one transfer under way. All swaps of a round cross as one all-to-all, all
shares as another, in front of each a small one that says how long the pieces are; sums are all-reduces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.attach.flight import Flight, Share, Sum, Swap, Transfer
from tweed.attach.wire import Wire
from tweed.compress import Placed


def carry(flights: Sequence[Flight], wire: Wire) -> list[Placed]:
    """Walks `flights`, which are the same on every rank and in the same order, to their ends.

    Cost: per round one all-reduce for each `Sum`; two all-to-alls for all `Swap`s, two for all `Share`s.
    """
    done: dict[int, Placed] = {}
    answers: Mapping[int, Any] = dict.fromkeys(range(len(flights)))
    while answers:
        transfers: dict[int, Transfer] = {}
        for number, answer in answers.items():
            try:
                transfers[number] = flights[number].send(answer)
            except StopIteration as end:
                done[number] = end.value
        answers = _round(transfers, wire)
    return [done[number] for number in range(len(flights))]


def _round(transfers: Mapping[int, Transfer], wire: Wire) -> dict[int, Any]:
    """What came of each of `transfers`."""
    sums = {number: transfer.values for number, transfer in transfers.items() if isinstance(transfer, Sum)}
    swaps = {number: transfer.pieces for number, transfer in transfers.items() if isinstance(transfer, Swap)}
    shares = {number: transfer.piece for number, transfer in transfers.items() if isinstance(transfer, Share)}
    for piece in shares.values():
        wire.stats.bytes_answered += piece.numel()
    for values in [*sums.values(), *(piece for pieces in swaps.values() for piece in pieces)]:
        wire.stats.bytes_packed += values.numel() * values.element_size()
    works = [wire.sum(values) for values in sums.values()]
    answers: dict[int, Any] = dict(sums)
    answers |= swap(swaps, wire)
    answers |= swap({number: [piece] * wire.size for number, piece in shares.items()}, wire)
    for work in works:
        wire.wait(work)
    return answers


def swap(pieces: Mapping[int, Sequence[Tensor]], wire: Wire) -> dict[int, list[Tensor]]:
    """Gives `pieces[number][rank]`, `[bytes]` uint8, to `rank`; returns what each rank gave to this one."""
    if not pieces:
        return {}
    by_rank = [[mine[rank] for mine in pieces.values()] for rank in range(wire.size)]
    sizes = torch.tensor([[piece.numel() for piece in to_rank] for to_rank in by_rank])
    outgoing = torch.cat([piece for to_rank in by_rank for piece in to_rank])
    their_sizes = _their_sizes(sizes.to(outgoing.device), wire)
    incoming = outgoing.new_empty(sum(map(sum, their_sizes)))
    _all_to_all(incoming, outgoing, [sum(row) for row in their_sizes], sizes.sum(1).tolist(), wire)
    came = iter(torch.split(incoming, [size for row in their_sizes for size in row]))
    from_rank = [[next(came) for _ in row] for row in their_sizes]
    return {number: [row[place] for row in from_rank] for place, number in enumerate(pieces)}


def _their_sizes(sizes: Tensor, wire: Wire) -> list[list[int]]:
    """For each rank, how many bytes it has for this one, by flight."""
    came = torch.empty_like(sizes)
    wire.wait(wire.work(dist.all_to_all_single(came, sizes, group=wire.group, async_op=True)))
    listed: list[list[int]] = came.tolist()
    return listed


def _all_to_all(
    incoming: Tensor, outgoing: Tensor, in_sizes: list[int], out_sizes: list[int], wire: Wire
) -> None:
    wire.count(outgoing, crossings=1)
    work = dist.all_to_all_single(incoming, outgoing, in_sizes, out_sizes, group=wire.group, async_op=True)
    wire.wait(wire.work(work))
