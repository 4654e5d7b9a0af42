"""Values as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.packet import HEADER_BYTES, Values

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Identity:
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
        """Whether packets can be added: true, unless they go by ranges."""
        return not self.by_ranges

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Values, None]:
        """Sends all values as they are, so nothing is left."""
        if error is not None:
            value.add_(error)
            error.zero_()
        return Values(value, value.numel()), None

    def error_bound(self, spec: Spec) -> float:
        return 0.0

    def packet_bytes(self, spec: Spec) -> float:
        """Four bytes per value, and a header where packets go by ranges."""
        return HEADER_BYTES * self.by_ranges + 4.0 * spec.numel
