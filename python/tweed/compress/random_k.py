"""Values drawn at random, the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.checks import check_density, count_of
from tweed.compress.packet import Values
from tweed.rng import permutation

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 3.4028234663852886e38  # of float32


@dataclass(frozen=True, slots=True)
class RandomK:
    """Sends a share `density` of all values, drawn anew each turn. All ranks draw the same, so no indices go
    out.

    Args:
      density: share of values, above 0 and at most 1; at least one number is sent.
      scaled: what is sent is multiplied by `1 / density`, so that its mean is the input: for use without a
        memory. With a memory send values as they are.
      seed: of the draws.

    Raises: UsageError for another density.
    Cost: 4 bytes per value that is sent; an ordinary all-reduce. Time grows with what is sent only, apart
      from adding the error.
    Source: Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", 2018.
    """

    density: float
    scaled: bool = False
    seed: int = 0

    sums = True
    reply_codec = None

    def __post_init__(self) -> None:
        check_density("random-k", self.density)

    @property
    def unbiased(self) -> bool:
        return self.scaled

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Values, None]:
        """Values that are sent unscaled are sent exactly."""
        if error is not None:
            value = error.add_(value)
        count = count_of(self.density, value.numel())
        indices = permutation(0, count, value.numel(), turn.shared(self.seed), value.device)
        sent = value[indices]
        if self.scaled and count:
            sent = sent.mul_(value.numel() / count).clamp_(-_LARGEST, _LARGEST)
        if error is not None:
            error[indices] -= sent
        return Values(sent, value.numel(), partial(_place, indices)), None

    def error_bound(self, spec: Spec) -> float:
        """What is not sent; scaled, the variance. Exact for every `v`."""
        share = count_of(self.density, spec.numel) / max(1, spec.numel)
        return 1 / share - 1 if self.scaled and share else 1 - share

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value that is sent."""
        return 4.0 * count_of(self.density, spec.numel)


def _place(indices: Tensor, values: Tensor, out: Tensor) -> None:
    out.index_add_(0, indices, values)
