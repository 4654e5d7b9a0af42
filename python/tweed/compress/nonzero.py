"""All values that are not zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.entries import Coding, Entries
from tweed.compress.packet import HEADER_BYTES, Packet, Values

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Nonzero:
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

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Packet, None]:
        """Sends all values that are not zero, so nothing is left."""
        from tweed.compress.native import sparse

        if error is not None:
            value.add_(error)
            error.zero_()
        indices, values = sparse.nonzero(value)
        if 2 * len(indices) >= value.numel():
            return Values(value, value.numel()), None
        return Entries(indices, values, value.numel(), self.indices), None

    def error_bound(self, spec: Spec) -> float:
        return 0.0

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value, where none is zero."""
        return HEADER_BYTES + 4.0 * spec.numel
