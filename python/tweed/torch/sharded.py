"""Compression in torch's FSDP2 (`fully_shard`), as its custom reduce-scatter.

FSDP2 hands over a whole gradient and wants this rank's shard of the average back. So each shard is a buffer
of its own here: this rank compresses it for its owner, and nobody else receives it. What a codec must be
able to do for that:

    it is for gradients            a memory that moves the model has no gradient to give back
    it is done when a shard's      `ErrorFeedback` and `Direct` are; one that goes on with the average of all
      owner has the average        shards (`LowRank`, `LazyAggregation`) would have to send it to all
    it compresses one way          a compressed reply (`reply_codec`) saves nothing: there is no reply
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tweed.compress import (
    Codec,
    Compressor,
    Direct,
    ErrorFeedback,
    Memory,
    Packet,
    Spec,
    Turn,
    Values,
    unpack,
)
from tweed.compress.native.sparse import all_finite
from tweed.errors import StrategyError, UsageError
from tweed.exchange.checkpoint import FORMAT, check_format, filled, plain
from tweed.exchange.collectives import all_to_all
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.owners import mean_of
from tweed.exchange.pending import wait_for
from tweed.strategy import Strategy


def sharded_compression(model: nn.Module, memory: Memory[Any] | Codec) -> ShardedCompression:
    """Compresses what the modules of `model` that went through `fully_shard` exchange.

        fully_shard(model)
        hook = tweed.torch.sharded_compression(model, ErrorFeedback(TopK(0.01)))

    Each shard of each module's gradient is compressed for itself. If a number of a module's gradient is not
    finite on some rank, its whole gradient becomes NaN on all, and a warning names module and rank.

    Args:
      model: sharded over one group, of any backend.
      memory: `ErrorFeedback` or `Direct`; a compressor that needs none stands for `Direct` of it.

    Returns: what is remembered and counted; see `ShardedCompression`.
    Raises:
      StrategyError: a memory or compressor for which this is impossible; the text says why.
      UsageError: no module of `model` is sharded.
    Cost: with `ErrorFeedback`, memory for the whole gradient on each rank: what is left is this rank's own.
    """
    chosen = Strategy(compress=memory).memory
    assert chosen is not None  # one was given
    return ShardedCompression(model, _checked(chosen))


def _checked(memory: Memory[Any]) -> ErrorFeedback | Direct:
    if not isinstance(memory, ErrorFeedback | Direct):
        raise StrategyError(
            f"compress={memory!r} needs the average of the whole gradient, and in FSDP2 a rank gets its own "
            "shard only. Take ErrorFeedback or Direct"
        )
    if not isinstance(memory.compressor, Compressor):
        raise StrategyError(
            f"compress={memory!r} takes several sums, each of which all ranks must know, and FSDP2 only "
            "gives it to a shard's owner. Take another compressor"
        )
    return memory


class ShardedCompression:
    """What `sharded_compression` returns.

    Attributes:
      stats: counters; of `steps` and `exchanges` nothing is counted.
    """

    def __init__(self, model: nn.Module, memory: ErrorFeedback | Direct) -> None:
        from torch.distributed.fsdp import FSDPModule

        self.stats = Stats()
        self._memory = memory
        modules = [(name, part) for name, part in model.named_modules() if isinstance(part, FSDPModule)]
        if not modules:
            raise UsageError("no module of the model is sharded: call torch's fully_shard first")
        self._parts = {
            name: PackedReduceScatter(name or "the model", memory, slot, self.stats)
            for slot, (name, _) in enumerate(modules)
        }
        for name, part in modules:
            part.set_custom_reduce_scatter(self._parts[name])  # type: ignore[arg-type]  # in form only

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, as plain values and tensors; store it beside the model's and the optimizer's."""
        parts = {name: part.state() for name, part in self._parts.items()}
        return {"format": FORMAT, "memory": repr(self._memory), "parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on exactly where `state_dict` was taken.

        Raises: UsageError for the state of another memory, of other modules, of another number of ranks or of
          another version of tweed.
        """
        check_format(state)
        if state["memory"] != repr(self._memory) or set(state["parts"]) != set(self._parts):
            raise UsageError(
                f"the state is of {state['memory']} for {sorted(state['parts'])}, and the hook is of "
                f"{self._memory!r} for {sorted(self._parts)}"
            )
        for name, part in self._parts.items():
            part.load(state["parts"][name])


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
        received = wait_for(all_to_all({0: pieces}, comm))[0]
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
