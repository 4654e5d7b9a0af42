"""Values as they are: all of them, none, or those that are not zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Encoded, Spec, Stateless, Turn
from tweed.compress.entries import Coding, Entries
from tweed.compress.packet import HEADER_BYTES, Values

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Identity(Stateless):
    """Sends all, in float32.

    Args:
      by_ranges: go as a packet and not as a sum, so that a rank that is silent sends nothing.

    Cost: 4 bytes per value; an ordinary all-reduce.
    """

    by_ranges: bool = False

    unbiased = True
    reply_codec = None

    @property
    def sums(self) -> bool:
        """See `by_ranges`."""
        return not self.by_ranges

    def encode(self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None) -> Encoded:
        """See `Compressor`: nothing is left."""
        if error is not None:
            value.add_(error)
            error.zero_()
        return Values(value, value.numel()), None

    def error_bound(self, spec: Spec) -> float:
        """Zero."""
        return 0.0

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value."""
        return HEADER_BYTES * self.by_ranges + 4.0 * spec.numel


@dataclass(frozen=True, slots=True)
class Nothing(Stateless):
    """Sends nothing and sends nothing: a memory that applies everything locally needs no more.

    Cost: none.
    Source: CSER (Xie et al., 2020), whose special cases CSEA and CSER-PL exchange no gradients.
    """

    unbiased = False
    sums = True
    reply_codec = None

    def encode(self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None) -> Encoded:
        """See `Compressor`: all is left."""
        if error is not None:
            error.add_(value)
        return Values(value.new_empty(0), value.numel(), lambda values, out: None), None

    def error_bound(self, spec: Spec) -> float:
        """One."""
        return 1.0

    def packet_bytes(self, spec: Spec) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Nonzero(Stateless):
    """Sends all, exactly: as entries while few values are not zero, else as they are. So the owner of a range
    answers where nothing else is asked for.

    Args:
      indices: how entries write them.

    Cost: 4 bytes per value, or fewer; one pass.
    """

    indices: Coding = "raw"

    unbiased = True
    sums = False
    reply_codec = None

    def encode(self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None) -> Encoded:
        """See `Compressor`: nothing is left."""
        from tweed.compress.native import sparse

        if error is not None:
            value.add_(error)
            error.zero_()
        indices, values = sparse.nonzero(value)
        if 2 * len(indices) >= value.numel():
            return Values(value, value.numel()), None
        return Entries(indices, values, value.numel(), self.indices), None

    def error_bound(self, spec: Spec) -> float:
        """Zero."""
        return 0.0

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value, where none is zero."""
        return HEADER_BYTES + 4.0 * spec.numel
