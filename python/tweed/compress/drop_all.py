"""No number at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.packet import Values

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Nothing:
    """Sends nothing: a memory that applies everything locally needs no more.

    Cost: none.
    Source: CSER (Xie et al., 2020), whose special cases CSEA and CSER-PL exchange no gradients.
    """

    unbiased = False
    sums = True
    reply_codec = None

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Values, None]:
        """Sends no values, so all of them are left."""
        if error is not None:
            error.add_(value)
        return Values(value.new_empty(0), value.numel(), _drop), None

    def error_bound(self, spec: Spec) -> float:
        return 1.0

    def packet_bytes(self, spec: Spec) -> float:
        return 0.0


def _drop(values: Tensor, out: Tensor) -> None:
    return None
