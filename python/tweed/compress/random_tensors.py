"""Whole tensors drawn at random, by each rank for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.entries import Entries
from tweed.compress.packet import HEADER_BYTES
from tweed.errors import UsageError
from tweed.rng import uniform

if TYPE_CHECKING:
    from torch import Tensor

_GAP_BYTES = 1 / 32  # of each value's place, where they stand side by side


@dataclass(frozen=True, slots=True)
class RandomTensors:
    """Sends each tensor with some probability, exactly, and skips it otherwise; and now and then all of them.

    Args:
      skip: probability with which a tensor is not sent.
      skip_all: with which none is.
      seed: of the draws, which are other ones for each rank and turn.

    Raises: UsageError unless both are from 0 on and below 1.
    Cost: 4 bytes per value that is sent, and a bit for its place.
    Source: ZenoPS, Algorithms 15(7):233, 2022, where layers and workers are skipped.

    Example:
      >>> RandomTensors(0.2, skip_all=0.5).error_bound(Spec(((10,),)))
      0.6
    """

    skip: float = 0.2
    skip_all: float = 0.0
    seed: int = 0

    sums = False
    reply_codec = None

    def __post_init__(self) -> None:
        if not (0 <= self.skip < 1 and 0 <= self.skip_all < 1):
            raise UsageError(f"{self!r}: skip and skip_all are probabilities: from 0 on, and below 1")

    @property
    def unbiased(self) -> bool:
        """If nothing is ever skipped."""
        return self.skip == self.skip_all == 0

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Entries, None]:
        """What is sent is sent exactly."""
        import torch

        if error is not None:
            value = error.add_(value)
        places = [torch.arange(low, high, dtype=torch.int32) for low, high in self._sent(turn)]
        indices = torch.cat([torch.empty(0, dtype=torch.int32), *places]).to(value.device)
        values = value[indices.long()]
        if error is not None:
            error[indices.long()] = 0.0
        return Entries(indices, values, value.numel(), "shortest"), None

    def _sent(self, turn: Turn) -> list[tuple[int, int]]:
        """Begin and end of each tensor that is sent."""
        key, at, found = turn.own(self.seed), 0, []
        if uniform(key, 0) < self.skip_all:
            return []
        for number, size in enumerate(turn.spec.sizes):
            if uniform(key, 1, number) >= self.skip:
                found.append((at, at + size))
            at += size
        return found

    def error_bound(self, spec: Spec) -> float:
        """The share that is not sent. Exact for every `v`."""
        return 1 - self._share

    def packet_bytes(self, spec: Spec) -> float:
        """In the mean over draws."""
        return HEADER_BYTES + (4 + _GAP_BYTES) * spec.numel * self._share

    @property
    def _share(self) -> float:
        return (1 - self.skip) * (1 - self.skip_all)
