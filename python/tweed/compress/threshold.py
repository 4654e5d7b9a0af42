"""All values from a threshold on, which lives for many turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.checks import check_density, count_of
from tweed.compress.entries import Entries, joined, parted
from tweed.compress.packet import HEADER_BYTES, Packet, Values
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_TINY = 2.0**-149  # the least float32 above zero


@dataclass(frozen=True, slots=True)
class Thresholds:
    """State of `Threshold`.

    Args:
      taus: `[tensors]` float32 on the host, of each tensor; 0 sends all of it.
      until: the step at which they are to be found anew.
    """

    taus: Tensor
    until: int


@dataclass(frozen=True, slots=True)
class Threshold:
    """Sends, of each tensor, the values of magnitude tau and more; tau is what a share `density` reaches. It
    is found anew every `lifespan` turns; between, more or fewer values may be sent.

    Args:
      density: share of values, above 0 and at most 1.
      lifespan: turns that a threshold lives.
      dense_below: of tensors with fewer values, all are sent.
      bidirectional: the average goes back in the same form; what is left stays with the owner of the range.
        Otherwise it goes back exactly.

    Where entries would take more bytes than all values, all are sent.
    Raises: UsageError for other values.
    Cost: 8 bytes per value that is sent; one pass, and every `lifespan` turns a selection.
    Source: DCT, arXiv 2010.08899, 2021.
    """

    density: float
    lifespan: int = 1000
    dense_below: int = 256
    bidirectional: bool = False

    unbiased = False
    sums = False

    def __post_init__(self) -> None:
        check_density("threshold", self.density)
        if self.lifespan < 1:
            raise UsageError(f"threshold: lifespan={self.lifespan!r} is to be 1 or more turns")

    @property
    def reply_codec(self) -> Threshold | None:
        """See `bidirectional`."""
        return self if self.bidirectional else None

    def start(self, spec: Spec) -> Thresholds:
        """Thresholds are found at the first turn."""
        import torch

        return Thresholds(torch.zeros(len(spec.shapes)), until=0)

    def encode(
        self, value: Tensor, state: Thresholds, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, Thresholds]:
        """See `Compressor`; values that are sent are sent exactly."""
        from tweed.compress.native import sparse

        if turn.step >= state.until:
            if error is not None:
                value.add_(error)
                error.zero_()
            state = Thresholds(self._found(value, turn.spec), turn.step + self.lifespan)
        sizes = turn.spec.sizes
        tensors = zip(parted(value, error, sizes), state.taus.tolist(), strict=True)
        parts = [sparse.threshold(mine, tau, left) for (mine, left), tau in tensors]
        return _all_if_shorter(joined(parts, sizes), value, error), state

    def _found(self, value: Tensor, spec: Spec) -> Tensor:
        import torch

        from tweed.compress.native import sparse

        taus, at = [], 0
        for size in spec.sizes:
            dense = size < self.dense_below or self.density == 1
            count = count_of(self.density, size)
            taus.append(0.0 if dense else max(_TINY, sparse.kth_magnitude(value[at : at + size], count)))
            at += size
        return torch.tensor(taus)

    def error_bound(self, spec: Spec) -> float:
        """One: all may have fallen below. At a turn that finds a threshold, all but the share."""
        if self.lifespan > 1 and self.density < 1:
            return 1.0
        return 1 - min((count / size for count, size in self.counts(spec) if size), default=1.0)

    def packet_bytes(self, spec: Spec) -> float:
        """Eight per value that is sent, at a turn that finds a threshold."""
        count = sum(count for count, _ in self.counts(spec))
        return float(HEADER_BYTES + min(8 * count, 4 * spec.numel))

    def counts(self, spec: Spec) -> list[tuple[int, int]]:
        """How many values are sent of each tensor, of how many, at a turn that finds a threshold."""
        return [
            (size if size < self.dense_below else count_of(self.density, size), size) for size in spec.sizes
        ]


def _all_if_shorter(entries: Entries, value: Tensor, error: Tensor | None) -> Packet:
    if 2 * len(entries.indices) < entries.numel:
        return entries
    if error is None:
        return Values(value, entries.numel)
    entries.add_to(error)
    whole = Values(error.clone(), entries.numel)
    error.zero_()
    return whole
