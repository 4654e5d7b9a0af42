"""Numbers drawn by lot, the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.density import check_density, count_of
from tweed.compress.packet import Numbers
from tweed.rng import permutation

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 3.4028234663852886e38  # of float32


@dataclass(frozen=True, slots=True)
class RandomK:
    """Says a share `density` of all numbers, drawn anew each turn. All ranks draw the same, so no indices go
    out.

    Args:
      density: share of numbers, above 0 and at most 1; at least one number is said.
      scaled: what is said is multiplied by `1 / density`, so that its mean is the input: for use without a
        memory. With a memory say numbers as they are.
      seed: of the lots.

    Raises: UsageError for another density.
    Cost: 4 bytes per number that is said; an ordinary all-reduce. Time grows with what is said only, apart
      from adding the error.
    Source: Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", 2018.
    """

    density: float
    scaled: bool = False
    seed: int = 0

    sums = True
    back = None

    def __post_init__(self) -> None:
        check_density("random-k", self.density)

    @property
    def unbiased(self) -> bool:
        """If scaled."""
        return self.scaled

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Numbers, None]:
        """See `Compressor`; numbers that are said unscaled are said exactly."""
        if error is not None:
            value = error.add_(value)
        count = count_of(self.density, value.numel())
        indices = permutation(0, count, value.numel(), turn.shared(self.seed), value.device)
        said = value[indices]
        if self.scaled and count:
            said = said.mul_(value.numel() / count).clamp_(-_LARGEST, _LARGEST)
        if error is not None:
            error[indices] -= said
        return Numbers(said, value.numel(), partial(_place, indices)), None

    def error_bound(self, spec: Spec) -> float:
        """What is not said; scaled, the variance. Exact for every `v`."""
        share = count_of(self.density, spec.numel) / max(1, spec.numel)
        return 1 / share - 1 if self.scaled and share else 1 - share

    def packet_bytes(self, spec: Spec) -> float:
        """Four per number that is said."""
        return 4.0 * count_of(self.density, spec.numel)


def _place(indices: Tensor, values: Tensor, out: Tensor) -> None:
    out.index_add_(0, indices, values)
