"""Who owns which range of a buffer, and what owners make of it.

Each range of a buffer has one owner: every rank a share, or one server all of it. The owner decodes what it
received about its range, aggregates, and replies to all. A rank so sends `(P - 1) / P` of its packet and its
share of the reply `P - 1` times, however many ranks there are; an all-gather of packets would send the packet
`P - 1` times.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tweed.aggregate import Aggregate, Arrival, Question, concluded
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.preprocess import Preprocess
from tweed.compress import Packet
from tweed.compress.packet import ByteRanges
from tweed.strategy import Strategy
from tweed.transport import Ltp

#: Ranges begin at multiples of this many numbers, so that codes of a few bits are never cut within a byte.
GRAIN = 64


class Received(NamedTuple):
    """What one rank sent about a range: None if it sent nothing; and which of its value bytes were lost."""

    packet: Packet | None
    missing: ByteRanges = ()


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of a strategy's exchanges, as one rank sees them.

    Args:
      rank, size: of the group.
      aggregate: the strategy's.
      server: the rank that owns everything and contributes nothing; None: every rank owns a share.
      by_delivered: what was lost of a contribution is left out of an average, instead of counting as zero.
    """

    rank: int
    size: int
    aggregate: Aggregate[Any]
    server: int | None = None
    by_delivered: bool = False

    @classmethod
    def of(cls, strategy: Strategy, rank: int, size: int) -> Owners:
        """As `strategy` asks for them.

        Raises: UsageError if its aggregate needs more contributors.
        """
        server = None if strategy.collective is None else strategy.collective.rank
        by_delivered = (
            strategy.may_lose
            and isinstance(strategy.transport, Ltp)
            and strategy.transport.divide_by == "delivered"
        )
        found = cls(rank, size, strategy.aggregate, server, by_delivered)
        strategy.aggregate.require(found.contributors)
        return found

    @property
    def linear(self) -> bool:
        """The aggregate is a mean, whose sum may be formed anywhere, also on the way."""
        return self.aggregate.in_network == "mean"

    def can_do_without(self, broken: int) -> bool:
        """Whether the rule tolerates that this many contributions, which are not finite, are left out."""
        rule, most = self.aggregate, (self.contributors - 1) // 2
        while isinstance(rule, Preprocess):
            rule = rule.then
        if isinstance(rule, Bounded):
            most = min(most, rule.byzantine(self.contributors))
        return not self.linear and broken <= most

    @property
    def contributes(self) -> bool:
        """Whether this rank does: all but a server."""
        return self.rank != self.server

    @property
    def contributors(self) -> int:
        """How many ranks contribute."""
        return self.size - (self.server is not None)

    @property
    def contributor(self) -> int:
        """This rank's number among them; a server has that of a worker that is not there."""
        if not self.contributes:
            return self.contributors
        return self.rank - (self.server is not None and self.server < self.rank)

    @property
    def first(self) -> int:
        """The first rank that contributes."""
        return int(self.server == 0)

    def bounds(self, numel: int) -> list[int]:
        """Where ranges of `numel` values begin, by rank, and `numel`: `size + 1` numbers that ascend. Ranges
        may be empty."""
        if self.server is not None:
            return [numel if rank > self.server else 0 for rank in range(self.size)] + [numel]
        blocks = -(-numel // GRAIN)
        return [min(numel, GRAIN * (blocks * rank // self.size)) for rank in range(self.size)] + [numel]

    def mine(self, buffer: Tensor) -> Tensor:
        """This rank's range of `buffer`."""
        ends = self.bounds(buffer.numel())
        return buffer[ends[self.rank] : ends[self.rank + 1]]

    def combine(
        self, received: Sequence[Received], state: Any, now: float, out: Tensor
    ) -> Generator[Question, Any, Any]:
        """Leaves in `out`, this rank's range, the aggregate of what was received about it.

        A sum is formed of packets as they are, with the same result as by the aggregate's own `handle` and
        `poll`; wherever a contribution must be seen alone, or lacks parts that do not count as zero, these
        are called. What the aggregate asks is asked at all owners alike, also at one of an empty range.

        Args:
          received: by rank; a server's own is ignored.
          state: of the aggregate, for its next batch.
          now: seconds.

        Returns: the new state.
        """
        theirs = [(rank, one) for rank, one in enumerate(received) if rank != self.server]
        if self.linear and not (self.by_delivered and any(one.missing for _, one in theirs)):
            out.zero_()
            for _, one in theirs:
                _add(one, out)
            out.div_(self.contributors)
            return state
        for rank, one in theirs:
            value, missing = torch.zeros_like(out), None
            if one.packet is None and not self.linear:  # it has nothing that is finite
                value.fill_(math.nan)
            lost = _add(one, value)
            if lost is not None:
                missing = torch.zeros_like(out)
                missing[lost.long()] = 1
            state = self.aggregate.handle(Arrival(value, rank, missing=missing), state, now)
        update, _, state = yield from concluded(self.aggregate, state, now)
        assert update is not None  # something was received
        out.copy_(update)
        return state


def mean_of(total: Tensor, contributors: int) -> Tensor:
    """The average over contributors of what `total`, used as scratch memory, is the sum of, as float32."""
    return total.float().div_(contributors)


def _add(received: Received, out: Tensor) -> Tensor | None:
    """Adds what has arrived to `out`. Returns where something is missing, `[k]`; None: nowhere."""
    packet, missing = received
    if packet is None:
        return None
    if not missing:
        packet.add_to(out)
        return None
    value = torch.zeros_like(out)  # bytes that were lost are zeros, and need not stand for zero
    packet.add_to(value)
    lost = packet.lost(missing).indices
    value[lost.long()] = 0
    out.add_(value)
    return lost
