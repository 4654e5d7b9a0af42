"""Whose measurements make one figure: those of all ranks together, or of one that measures for all."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.exchange.values import gather


def crossed(exchanged: int, ranks: int) -> int:
    """What each of N ranks must send for all-reduces of `exchanged` bytes: `2 (N - 1) / N` of them, at least.

    The same reckoning for every side. It is computed, not measured; a ring sends exactly that much.
    """
    return exchanged * 2 * (ranks - 1) // ranks


class Together:
    """The ranks of the default group; each calls everything here at the same place.

    Attributes:
      rank: of this process.
      size: number of ranks.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def meet(self) -> None:
        """Returns when all are here."""
        dist.barrier()

    def sum(self, values: Tensor) -> Tensor:
        """Sums over all ranks."""
        dist.all_reduce(values)
        return values

    def sums(self, values: list[float]) -> list[float]:
        """Sums plain values over all ranks."""
        found: list[float] = self.sum(torch.tensor(values, dtype=torch.float64)).tolist()
        return found

    def gather(self, value: Any) -> list[Any]:
        """The value of each, by rank: see `exchange.values`."""
        return gather(None, value)

    def crossed(self, exchanged: int) -> int:
        """What a rank must send for all-reduces of `exchanged` bytes."""
        return crossed(exchanged, self.size)


class Alone(Together):
    """A process that waits for nobody: its own measurements are the figure."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1

    def meet(self) -> None:
        return

    def sum(self, values: Tensor) -> Tensor:
        return values

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def crossed(self, exchanged: int) -> int:
        """What has crossed is counted where the number of ranks is known."""
        return exchanged
