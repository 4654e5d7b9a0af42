"""How the contributions of members are summed through a codec; as they are: `tweed.elastic.sums`.

What a codec keeps from step to step is of two kinds. What a member has not sent yet, the residual of
`ErrorFeedback`, is its own: who joins begins with none, and it is lost with its member. What follows from
means, the factors of `LowRank`, is shared: who joins has it from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress import Memory, Rounds
from tweed.compress.error_feedback import Residual
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.checkpoint import filled, plain, restored, stored
from tweed.exchange.communicator import Communicator, Stats, Wait
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.encoding import most_state_bytes
from tweed.exchange.finite import is_finite
from tweed.exchange.owners import Owners
from tweed.exchange.pending import wait_for
from tweed.exchange.transfers import BufferState
from tweed.exchange.values import gather
from tweed.strategy import Strategy

#: Owners of the ranges, and what is kept of each buffer: that of replies is of a range.
_Kept = tuple[Owners | None, list[dict[str, Any]]]


class PackedSums:
    """Gradients go as packets, to owners of ranges; what stands behind them in a contribution goes whole.

    Contributions are kept whole (`tweed.elastic.commit`), so a sum that a loss has broken is formed anew, of
    other packets, from what was kept before it; where it was formed, the others take it as it is: what they
    keep is then of the packets that are in it, as all had sent theirs. What is not finite at a member is so
    in the sum, and no packet is sent.

    Args:
      memory: the strategy's: `Direct` or `ErrorFeedback`.
      gradients: the buckets that begin a contribution, in its order.
      stats: counts what goes over the wire.

    Cost: where the memory keeps something, a copy of that per step.
    """

    def __init__(self, memory: Memory[Any], gradients: Sequence[GradientBucket], stats: Stats) -> None:
        self._memory, self._stats = memory, stats
        self._views = [one.bucket.views for one in gradients]
        self._sizes = [one.bucket.values.numel() for one in gradients]
        self._shared = [name for name, codec in memory.parts.items() if isinstance(codec, Rounds)]
        self._buffers: CompressedBuffers | None = None
        self._met = self._attempted = -1
        self._before: _Kept = (None, [])  # the step that was attempted last
        self._summed_to = 0  # steps, all of which are in what is kept here

    def start(self, contribution: Tensor, ready: int, group: dist.ProcessGroup, step: int, met: int) -> None:
        """Nothing, as packets are of whole gradients."""

    def stop(self) -> bool:
        """Always False, as nothing is started before a contribution is whole."""
        return False

    def __call__(
        self, contribution: Tensor, samples: int, group: dist.ProcessGroup, step: int, met: int
    ) -> Tensor:
        gradients, rest = contribution.tensor_split([sum(self._sizes)])
        is_broken, lacks = not is_finite(gradients), bool(self._shared) and not self._follows(step)
        rest = torch.cat([rest, rest.new_tensor([samples, lacks, is_broken])])
        self._stats.bytes_exchanged += rest.numel() * rest.element_size()
        wait = Wait(group)
        dist.all_reduce(rest, group=group)
        self._stats.waiting_s += wait.seconds()
        wait.end()
        rest, lacking, broken = rest[:-2], bool(rest[-2]), bool(rest[-1])
        buffers = self._enter(step, met, group)
        if lacking:
            self._share(buffers, lacks, group)
        self._before, self._attempted = self._now(), step
        if broken:
            summed = torch.full_like(gradients, torch.nan)
        else:
            buffers.turns = step
            count = int(rest[-1])
            # The mean over members of these is that over samples.
            summed = self._mean(buffers, gradients * (group.size() / count)) * count
        self._summed_to = step + 1
        return torch.cat([summed, rest])

    def _follows(self, step: int) -> bool:
        """What is kept here has all steps before this one in it."""
        return step in (self._summed_to, self._attempted)

    def _now(self) -> _Kept:
        if self._buffers is None:
            return None, []
        return self._buffers.owners, [stored(buffer) for buffer in self._buffers.buffers]

    def _enter(self, step: int, met: int, group: dist.ProcessGroup) -> CompressedBuffers:
        """What is kept is as it was before the step, in the units of this group."""
        again = step == self._attempted
        if self._buffers is None or again or met != self._met:
            owners, kept = self._before if again else self._now()
            comm = Communicator(group, Strategy(), self._stats)
            self._buffers, self._met = CompressedBuffers(self._memory, self._views, comm), met
            for fresh, one in zip(self._buffers.buffers, kept, strict=False):  # of a first one there is none
                assert owners is not None  # they have kept this
                carry(fresh, one, owners)
        return self._buffers

    def _share(self, buffers: CompressedBuffers, lacks: bool, group: dist.ProcessGroup) -> None:
        """Who has not been in all steps takes what is shared from one who has; if none has, all are new."""
        own = [{name: plain(buffer.parts[name]) for name in self._shared} for buffer in buffers.buffers]
        most = most_state_bytes(
            sum(view.numel() * view.element_size() for views in self._views for view in views)
        )
        given = gather(group, None if lacks else own, most_bytes=most)
        found = next((one for one in given if one is not None), None)
        for number, buffer in enumerate(buffers.buffers if lacks else ()):
            for name in self._shared:
                fresh = self._memory.parts[name].start(buffers.specs[number])
                buffer.parts[name] = fresh if found is None else filled(fresh, found[number][name])

    def _mean(self, buffers: CompressedBuffers, gradients: Tensor) -> Tensor:
        updates = wait_for(buffers.exchange(list(gradients.float().split_with_sizes(self._sizes))))
        return torch.cat([update.delta for update in updates]).to(gradients.dtype)


def carry(fresh: BufferState, kept: Mapping[str, Any], before: Owners) -> None:
    """`kept`, of a group whose owners were `before`, becomes what is kept in the next one.

    What a member has yet to send counts there as before: means are over another number. What replies have
    left out, of the range that this member owned, it sends itself from now on.
    """
    replies = kept["replies"]
    restored(fresh, {**kept, "replies": {}})
    if not isinstance(fresh.state, Residual):
        return
    size = fresh.owners.contributors
    fresh.state.error.mul_(size / before.contributors)
    for _, error in replies.values():
        if error is not None:
            before.mine(fresh.state.error).add_(error, alpha=size)
