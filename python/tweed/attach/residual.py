"""What a rank contributed and the network lost: kept per bucket, and added to the next contribution.

    sent = contribution + residual        what goes out
    sent = delivered + lost               number by number, one of the two is zero
    residual = lost                       what is owed from now on

So of all that was contributed, each number has either been applied or is owed: nothing is destroyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Delivery(Protocol):
    """What the engine tells of one operation, when all of this rank's contributions to it are through.

    Attributes:
      sent_bytes, lost_bytes: of this rank's contributions.
      by_rank: bytes sent to and received from each other rank as contributions, and how many were lost.
      lost: what did not arrive: address in this rank's memory, and values as bytes. Empty if nobody asked.
    """

    sent_bytes: int
    lost_bytes: int
    by_rank: dict[int, tuple[int, int]]
    lost: Sequence[tuple[int, bytes]]


class Residual:
    """What one rank's contributions to one bucket have lost and not yet returned.

    Args:
      flat: `[numel]`, the bucket's buffer, on the CPU.

    Attributes:
      owed: `[numel]`, same dtype: to be added to the next contribution.
    """

    def __init__(self, flat: Tensor) -> None:
        self._flat = flat
        self._owes = False
        self.owed = torch.zeros_like(flat)

    def give(self) -> None:
        """Adds what is owed to the buffer, which is to be sent now. Nothing is owed then."""
        if self._owes:
            self._flat.add_(self.owed)
            self.owed.zero_()
            self._owes = False

    def take_back(self, address: int, values: bytes) -> bool:
        """Owes `values`, which were at `address` when they were sent. False if that is not in the buffer."""
        width = self._flat.element_size()
        first = (address - self._flat.data_ptr()) // width
        count = len(values) // width
        if not 0 <= first <= self._flat.numel() - count:
            return False
        self.owed[first : first + count] += torch.frombuffer(bytearray(values), dtype=self._flat.dtype)
        self._owes = True
        return True

    def owes(self, view: Tensor) -> bool:
        """Whether anything is owed of `view`, a dense view into the buffer."""
        if not self._owes:
            return False
        first = view.storage_offset() - self._flat.storage_offset()
        return bool(self.owed[first : first + view.numel()].any())

    def load(self, owed: Tensor) -> None:
        """Goes on from the `owed` of another run."""
        self.owed.copy_(owed)
        self._owes = bool(owed.any())


@dataclass(frozen=True, slots=True)
class Delivered:
    """How much of the contributions of one step arrived, as far as this rank has sent or received them.

    Attributes:
      step: optimizer steps taken before.
      by_rank: for each other rank, bytes of contributions to and from it, and how many of them were lost.
    """

    step: int
    by_rank: dict[int, tuple[int, int]]

    def shares(self) -> dict[int, float]:
        """By rank, the share that arrived; 1.0 where nothing was sent."""
        return {rank: 1 - lost / sent if sent else 1.0 for rank, (sent, lost) in self.by_rank.items()}


def together(step: int, deliveries: Sequence[Delivery]) -> Delivered:
    """The deliveries of one step as one."""
    total: dict[int, tuple[int, int]] = {}
    for delivery in deliveries:
        for rank, (sent, lost) in delivery.by_rank.items():
            before = total.get(rank, (0, 0))
            total[rank] = (before[0] + sent, before[1] + lost)
    return Delivered(step, dict(sorted(total.items())))
