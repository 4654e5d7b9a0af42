"""The reduce-scatter of one FSDP2 module, compressed. See `sharded`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress import Direct, ErrorFeedback, Packet, Spec, Turn, Values, unpack
from tweed.compress.native.sparse import all_finite
from tweed.errors import UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.collectives import all_to_all
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.owners import mean_of
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


@dataclass(slots=True)
class Kept:
    """What this rank keeps of one owner's shard: the memory's state and the codec's."""

    memory: Any
    codec: Any


class PackedReduceScatter:
    """In place of FSDP2's own, for one module.

    Args:
      name: of the module, for warnings.
      memory: of one compressor, with packets.
      slot: number of the module, equal on all ranks.
      stats: counts.
    """

    def __init__(self, name: str, memory: ErrorFeedback | Direct, slot: int, stats: Stats) -> None:
        self._name, self._memory, self._slot, self._stats = name, memory, slot, stats
        self._codec: Any = memory.compressor
        self._comm: Communicator | None = None
        self._kept: list[Kept] = []
        self._turns = 0
        self._stored: Mapping[str, Any] | None = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what goes in and comes out."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Leaves this rank's shard of the sum or average over ranks of `input_tensor` in `output_tensor`."""
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise UsageError(f"{op} in FSDP2's reduce-scatter: leave set_gradient_divide_factor out")
        self._comm = comm = self._comm or Communicator(group, Strategy(compress=self._memory), self._stats)
        shards = input_tensor.float().view(comm.size, -1)
        if not self._kept:
            self._begin(shards)
        if self._is_bad(shards, comm):
            output_tensor.fill_(math.nan)
            return
        mean = self._mean(shards, comm)
        output_tensor.copy_(mean if op == dist.ReduceOp.AVG else mean.mul_(comm.size))

    def _begin(self, shards: Tensor) -> None:
        spec = Spec((tuple(shards[0].shape),))
        self._kept = [Kept(self._memory.start(shard), self._codec.start(spec)) for shard in shards]
        if self._stored is not None:
            self._kept = filled(self._kept, self._stored["kept"])
            self._turns, self._stored = self._stored["turns"], None

    def _is_bad(self, shards: Tensor, comm: Communicator) -> bool:
        flag = torch.tensor(0 if all_finite(shards.view(-1)) else 1 + comm.rank, device=shards.device)
        comm.wait(comm.work(dist.all_reduce(flag, dist.ReduceOp.MAX, comm.group, async_op=True)))
        rank = int(flag) - 1
        if rank >= 0:
            log.warning("NaN or infinity in the gradient of %s on rank %d: not exchanged", self._name, rank)
        return rank >= 0

    def _mean(self, shards: Tensor, comm: Communicator) -> Tensor:
        """The memory's coroutine for every shard; only that of this rank's own goes on with an average."""
        packets: list[Packet] = []
        requests = []
        for owner, (shard, kept) in enumerate(zip(shards, self._kept, strict=True)):
            slot = self._slot * comm.size + owner
            turn = Turn(Spec((tuple(shard.shape),)), self._turns, slot, comm.rank, comm.size)
            requests.append(self._memory.exchange(shard, kept.memory, turn))
            request = next(requests[-1])
            packet, kept.codec = self._codec.encode(request.value, kept.codec, turn, request.error)
            packets.append(packet)
        self._turns += 1
        mean = self._averaged(packets, comm)
        try:
            requests[comm.rank].send(mean)
        except StopIteration as end:
            delta: Tensor = end.value.delta
            return delta
        raise AssertionError("a memory with one compressor asks once")

    def _averaged(self, packets: list[Packet], comm: Communicator) -> Tensor:
        """The average over ranks of what they send about this rank's shard."""
        mine = packets[comm.rank]
        pieces = [_values(packet) if self._codec.sums else packet.pack() for packet in packets]
        self._stats.bytes_packed += sum(piece.numel() for piece in pieces)
        received = all_to_all({0: pieces}, comm)[0]
        mean = torch.zeros(mine.numel, device=pieces[0].device)
        if self._codec.sums:
            assert isinstance(mine, Values)  # the contract of `sums`
            total = torch.stack([piece.view(mine.values.dtype).float() for piece in received]).sum(0)
            replace(mine, values=mean_of(total, comm.size)).add_to(mean)
            return mean
        for piece in received:
            packet = unpack(piece, mine.numel)
            if packet is not None:
                packet.add_to(mean)
        return mean_of(mean, comm.size)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {"kept": plain(self._kept), "turns": self._turns}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run, when the first gradient comes."""
        self._kept, self._stored = [], state


def _values(packet: Packet) -> Tensor:
    """Values that can be added up are sent bare: their owner has as many, in the same places."""
    assert isinstance(packet, Values)  # the contract of `sums`
    return packet.values.contiguous().view(torch.uint8)
