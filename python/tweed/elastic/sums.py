"""How the contributions of members are summed: as they are, in parts.

A part may begin to be summed while the backward pass still computes what is behind it. All members have the
same parts, in one order; so it does not matter which of them begins one early, and which, with samples of a
lost member or none of its own, begins all when it has computed. If a group breaks, what has begun ends with
it: the next one sums contributions anew, which are kept whole until the step counts.

Behind the samples each member contributes a mark of its step: if one is of another step, all see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

from tweed.errors import TweedError
from tweed.exchange.communicator import Communicator, Stats, Wait


class Sum(Protocol):
    """Sums contributions over the members of a group, to the same bits at all."""

    def start(self, contribution: Tensor, ready: int, group: dist.ProcessGroup, step: int, met: int) -> None:
        """The first `ready` values of this member's contribution to a step are there, and stay as they are:
        their sum may begin. It raises what a lost member makes of calls."""

    def stop(self) -> bool:
        """Its group ends: forgets what has begun there. Whether anything had."""
        ...

    def __call__(
        self, contribution: Tensor, samples: int, group: dist.ProcessGroup, step: int, met: int
    ) -> Tensor:
        """The sum, `[numel + 1]`, whose last element counts samples, and must be exact.

        Args:
          contribution: this member's, `[numel]`, which stays as it is.
          samples: that are in it.
          met: the number of the group among those that this process was in.
        """
        ...


class WholeSums:
    """All-reduces of contributions as they are: a `Sum`.

    Args:
      parts: elements of each part that may begin early; what is behind these makes the last one.
      stats: counts what goes over the wire.
    """

    def __init__(self, parts: Sequence[int] = (), stats: Stats | None = None) -> None:
        self._ends = [0, *accumulate(parts)]
        self._stats = stats or Stats()
        self._of = (-1, -1)  # the step and the group of what has begun
        self._total: Tensor | None = None
        self._works: list[dist.Work] = []  # of its parts, as far as they have begun
        self._flies = False  # one may have begun

    def start(self, contribution: Tensor, ready: int, group: dist.ProcessGroup, step: int, met: int) -> None:
        total = self._begun(contribution, step, met)
        for begin, end in pairwise(self._ends[len(self._works) :]):
            if end <= ready:
                self._flies = True
                self._works.append(_started(total[begin:end].copy_(contribution[begin:end]), group))

    def __call__(
        self, contribution: Tensor, samples: int, group: dist.ProcessGroup, step: int, met: int
    ) -> Tensor:
        wait, last, mark = Wait(group), self._ends[-1], _mark(step, group.size())
        self.start(contribution, contribution.numel(), group, step, met)
        total = self._begun(contribution, step, met)
        total[last:-2] = contribution[last:]
        total[-2], total[-1] = samples, mark
        self._flies = True
        works = [*self._works, _started(total[last:], group)]
        for work in works:
            work.wait()
        self.stop()
        self._stats.bytes_exchanged += total.numel() * total.element_size()
        self._stats.waiting_s += wait.seconds()
        wait.end()
        if total[-1] != group.size() * mark:
            raise TweedError(
                f"the sum of step {step} contains contributions to other steps, so that no member counts it: "
                "a call of one member was interrupted, and that member went on in the same group. Call for "
                "the step again on all members, and they make a new group"
            )
        return total[:-1]

    def stop(self) -> bool:
        flies = self._flies
        self._works, self._total, self._of, self._flies = [], None, (-1, -1), False
        return flies

    def _begun(self, contribution: Tensor, step: int, met: int) -> Tensor:
        if self._total is None or self._of != (step, met):
            self._total, self._works = contribution.new_empty(contribution.numel() + 2), []
            self._of = (step, met)
        return self._total


def _mark(step: int, size: int) -> int:
    """A mark of a step: the sum of `size` marks is exact in 24 bits, and is unlikely the sum of others."""
    return (step * 0x9E3779B1 % (1 << 32)) >> (8 + (size - 1).bit_length())


def _started(part: Tensor, group: dist.ProcessGroup) -> dist.Work:
    return Communicator.work(dist.all_reduce(part, group=group, async_op=True))
