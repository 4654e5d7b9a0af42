"""How the contributions of members are summed: as they are, or gradients through a codec without a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress import Memory
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.strategy import Strategy


class WholeSums:
    """One all-reduce of all.

    Args:
      stats: counts what goes over the wire.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def __call__(self, addend: Tensor, step: int, epoch: int) -> Tensor:
        """See `tweed.elastic.run.Sum`."""
        self._stats.bytes_exchanged += addend.numel() * addend.element_size()
        dist.all_reduce(addend)
        return addend


class PackedSums:
    """Gradients go as packets, to owners of ranges; what stands behind them in a contribution goes whole.

    Contributions are kept whole (`tweed.exchange.commit`), so a sum that a loss has broken is formed anew, of
    other packets; where it was formed, the others take it as it is. What is not finite at a member is so in
    the sum, and no packet is sent.

    Args:
      memory: the strategy's, which keeps nothing.
      gradients: the buckets that begin a contribution, in its order.
      stats: counts what goes over the wire.
    """

    def __init__(self, memory: Memory[Any], gradients: Sequence[GradientBucket], stats: Stats) -> None:
        self._memory, self._stats = memory, stats
        self._views = [one.bucket.views for one in gradients]
        self._sizes = [one.bucket.values.numel() for one in gradients]
        self._buffers: CompressedBuffers | None = None
        self._epoch = 0

    def __call__(self, addend: Tensor, step: int, epoch: int) -> Tensor:
        """See `tweed.elastic.run.Sum`."""
        gradients, rest = addend.split_with_sizes([sum(self._sizes), addend.numel() - sum(self._sizes)])
        broken = rest.new_tensor([not gradients.isfinite().all()])
        rest = torch.cat([rest, broken])
        self._stats.bytes_exchanged += rest.numel() * rest.element_size()
        dist.all_reduce(rest)
        if rest[-1]:
            return torch.cat([torch.full_like(gradients, torch.nan), rest[:-1]])
        return torch.cat([self._summed(gradients, int(rest[-2]), step, epoch), rest[:-1]])

    def _summed(self, gradients: Tensor, samples: int, step: int, epoch: int) -> Tensor:
        if self._buffers is None or self._epoch != epoch:
            comm = Communicator(None, Strategy(), self._stats)
            self._buffers, self._epoch = CompressedBuffers(self._memory, self._views, comm), epoch
        # The mean over members of these is that over samples.
        scaled = (gradients * (dist.get_world_size() / samples)).float()
        self._buffers.turns = step
        updates = self._buffers.exchange(list(scaled.split_with_sizes(self._sizes)))
        return torch.cat([update.delta for update in updates]).to(gradients.dtype) * samples
