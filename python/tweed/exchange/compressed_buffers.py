"""All buffers of a run that go compressed: many exchanges over a process group at once, and what is kept.

In each round every exchange has one transfer under way. All `AllToAll`s of a round cross as one all-to-all,
all `AllGather`s as another, in front of each a small one with the lengths of the pieces; sums are
all-reduces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress import Memory, Spec, Turn, Update
from tweed.exchange.checkpoint import check_same, restored, stored
from tweed.exchange.communicator import Communicator
from tweed.exchange.transfers import (
    AllGather,
    AllReduce,
    AllToAll,
    BufferExchange,
    BufferState,
    Transfer,
    exchange_buffer,
)


class CompressedBuffers:
    """Exchanges the same buffers again and again.

    Args:
      memory: the strategy's.
      buffers: per buffer the tensors that lie in it side by side; their dtype does not matter.
      comm: the group.
      first_slot: number of the first buffer.
    """

    def __init__(
        self,
        memory: Memory[Any],
        buffers: Sequence[Sequence[Tensor]],
        comm: Communicator,
        first_slot: int = 0,
    ) -> None:
        self._first_slot = first_slot
        self._memory = memory
        self._turns = 0  # exchanges so far, equal on all ranks
        self._comm = comm
        self.specs = [Spec(tuple(tuple(tensor.shape) for tensor in tensors)) for tensors in buffers]
        devices = [tensors[0].device for tensors in buffers]
        self._likes = [
            torch.empty(spec.numel, device=device) for spec, device in zip(self.specs, devices, strict=True)
        ]
        self.forget()

    def _each(self, values: Sequence[Tensor]) -> Iterator[tuple[Turn, BufferState, Tensor]]:
        rank, size = self._comm.rank, self._comm.size
        buffers = zip(self.specs, self.buffers, values, strict=True)
        for slot, (spec, buffer, value) in enumerate(buffers, start=self._first_slot):
            yield Turn(spec, self._turns, slot, rank, size), buffer, value

    def pending_norm(self, values: Sequence[Tensor]) -> float:
        """Length of what this rank would send in `exchange`, as its memory has it."""
        memory: Any = self._memory  # which can measure it: the strategy was checked
        return math.sqrt(sum(memory.pending(value, buffer.state) for _, buffer, value in self._each(values)))

    @torch.no_grad()
    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> list[Update]:
        """Exchanges one value per buffer, `[numel]` float32; they are used as scratch memory.

        All ranks must call it alike; only `silent`, to contribute nothing, may differ.

        Returns: what is to be done to the model, per buffer. It lies in memory that the next exchange reuses.
        """
        exchanges = [
            exchange_buffer(buffer, value, turn, silent) for turn, buffer, value in self._each(values)
        ]
        self._turns += 1
        return run_exchanges(exchanges, self._comm)

    def forget(self) -> None:
        """Begins anew: no state is kept. The count of exchanges goes on."""
        pairs = zip(self.specs, self._likes, strict=True)
        self.buffers = [BufferState.start(self._memory, spec, like) for spec, like in pairs]

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {"turns": self._turns, "buffers": [stored(buffer) for buffer in self.buffers]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buffers were others."""
        check_same(len(state["buffers"]) == len(self.buffers))
        self._turns = state["turns"]
        self.forget()
        self.buffers = [
            restored(buffer, kept, turn)
            for (turn, buffer, _), kept in zip(self._each(self._likes), state["buffers"], strict=True)
        ]


def run_exchanges(exchanges: Sequence[BufferExchange], comm: Communicator) -> list[Update]:
    """Runs `exchanges`, which are the same on every rank and in the same order, to their ends.

    Cost: per round one all-reduce for each `AllReduce`; two all-to-alls for all `AllToAll`s, two for all
      `AllGather`s.
    """
    done: dict[int, Update] = {}
    answers: Mapping[int, Any] = dict.fromkeys(range(len(exchanges)))
    while answers:
        transfers: dict[int, Transfer] = {}
        for number, answer in answers.items():
            try:
                transfers[number] = exchanges[number].send(answer)
            except StopIteration as end:
                done[number] = end.value
        answers = _round(transfers, comm)
    return [done[number] for number in range(len(exchanges))]


def _round(transfers: Mapping[int, Transfer], comm: Communicator) -> dict[int, Any]:
    """What came of each of `transfers`."""
    sums = {number: one.values for number, one in transfers.items() if isinstance(one, AllReduce)}
    pieces = {number: one.pieces for number, one in transfers.items() if isinstance(one, AllToAll)}
    replies = {number: one.piece for number, one in transfers.items() if isinstance(one, AllGather)}
    for piece in replies.values():
        comm.stats.bytes_answered += piece.numel()
    for values in [*sums.values(), *(piece for by_rank in pieces.values() for piece in by_rank)]:
        comm.stats.bytes_packed += values.numel() * values.element_size()
    works = [comm.sum(values) for values in sums.values()]
    answers: dict[int, Any] = dict(sums)
    answers |= all_to_all(pieces, comm)
    answers |= all_to_all({number: [piece] * comm.size for number, piece in replies.items()}, comm)
    for work in works:
        comm.wait(work)
    return answers


def all_to_all(pieces: Mapping[int, Sequence[Tensor]], comm: Communicator) -> dict[int, list[Tensor]]:
    """Sends `pieces[number][rank]`, `[bytes]` uint8, to `rank`; returns what each rank sent to this one."""
    if not pieces:
        return {}
    by_rank = [[mine[rank] for mine in pieces.values()] for rank in range(comm.size)]
    sizes = torch.tensor([[piece.numel() for piece in to_rank] for to_rank in by_rank])
    outgoing = torch.cat([piece for to_rank in by_rank for piece in to_rank])
    their_sizes = _their_sizes(sizes.to(outgoing.device), comm)
    incoming = outgoing.new_empty(sum(map(sum, their_sizes)))
    comm.count(outgoing, crossings=1)
    lengths = [sum(row) for row in their_sizes], sizes.sum(1).tolist()
    work = dist.all_to_all_single(incoming, outgoing, *lengths, group=comm.group, async_op=True)
    comm.wait(comm.work(work))
    received = iter(torch.split(incoming, [size for row in their_sizes for size in row]))
    from_rank = [[next(received) for _ in row] for row in their_sizes]
    return {number: [row[place] for row in from_rank] for place, number in enumerate(pieces)}


def _their_sizes(sizes: Tensor, comm: Communicator) -> list[list[int]]:
    """For each rank, how many bytes it has for this one, by exchange."""
    received = torch.empty_like(sizes)
    comm.wait(comm.work(dist.all_to_all_single(received, sizes, group=comm.group, async_op=True)))
    listed: list[list[int]] = received.tolist()
    return listed
