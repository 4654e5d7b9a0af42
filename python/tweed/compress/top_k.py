"""The numbers of largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.density import check_density, count_of
from tweed.compress.entries import Entries
from tweed.compress.packet import HEADER_BYTES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TopK:
    """Says the share `density` of all numbers that has the largest magnitude; ties go to the lowest index.

    Args:
      density: share of numbers, above 0 and at most 1; at least one number is said.

    Raises: UsageError for another density.
    Cost: one pass to select; 8 bytes per number that is said.
    Source: Aji and Heafield, "Sparse communication for distributed gradient descent", 2017.
    """

    density: float

    unbiased = False
    sums = False
    back = None

    def __post_init__(self) -> None:
        check_density("top-k", self.density)

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Entries, None]:
        """See `Compressor`; numbers that are said are said exactly."""
        from tweed.compress.native import sparse

        indices, values = sparse.top_k(value, count_of(self.density, value.numel()), error)
        return Entries(indices, values, value.numel()), None

    def error_bound(self, spec: Spec) -> float:
        """All but the said share, where magnitudes are equal."""
        return 1 - count_of(self.density, spec.numel) / max(1, spec.numel)

    def packet_bytes(self, spec: Spec) -> float:
        """Eight per number that is said."""
        return HEADER_BYTES + 8.0 * count_of(self.density, spec.numel)
