"""The values of largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.checks import check_density, count_of
from tweed.compress.entries import Entries, joined, parted
from tweed.compress.packet import HEADER_BYTES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TopK:
    """Sends the share `density` of all values that has the largest magnitude; ties go to the lowest index.

    Args:
      density: share of values, above 0 and at most 1; at least one number is sent.
      per_tensor: choose from each tensor alone.
      bidirectional: the average goes back in the same form; what is left stays with the owner of the range.
        Otherwise it goes back exactly.

    Raises: UsageError for another density.
    Cost: one pass to select; 8 bytes per value that is sent.
    Source: Aji and Heafield, "Sparse communication for distributed gradient descent", 2017.
    """

    density: float
    per_tensor: bool = False
    bidirectional: bool = False

    unbiased = False
    sums = False

    def __post_init__(self) -> None:
        check_density("top-k", self.density)

    @property
    def reply_codec(self) -> TopK | None:
        return self if self.bidirectional else None

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Entries, None]:
        """Values that are sent are sent exactly."""
        from tweed.compress.native import sparse

        counts = self.counts(turn.spec)
        sizes = [size for _, size in counts]
        tensors = zip(parted(value, error, sizes), counts, strict=True)
        parts = [sparse.top_k(mine, count, left) for (mine, left), (count, _) in tensors]
        return joined(parts, sizes), None

    def counts(self, spec: Spec) -> list[tuple[int, int]]:
        """How many values are sent of each part that is chosen from alone, of how many."""
        sizes = spec.sizes if self.per_tensor else [spec.numel]
        return [(count_of(self.density, size), size) for size in sizes]

    def error_bound(self, spec: Spec) -> float:
        """All but the sent share, where magnitudes are equal."""
        return 1 - min((count / size for count, size in self.counts(spec) if size), default=1.0)

    def packet_bytes(self, spec: Spec) -> float:
        """Eight per value that is sent."""
        return HEADER_BYTES + 8.0 * sum(count for count, _ in self.counts(spec))
