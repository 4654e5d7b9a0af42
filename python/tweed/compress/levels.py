"""Levels of a block's norm (QSGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.codes import Codes, coded, form_bytes, shared_by
from tweed.compress.native.form import Form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Levels:
    """Sends each number as a sign and a level of its block's l2 norm, drawn so that the mean is the input.

    Args:
      levels: from zero to the norm, 1 to 127. Those that fill their bits are best: 1, 3, 7, 15 and so on.
      block: values that share a norm; None: all of the buffer. More blocks are more exact.
      bidirectional: the average goes back in the same form, from other draws.
      seed: of the draws.

    Raises: UsageError for other values.
    Cost: `1 + ceil(log2(levels + 1))` bits per value and 4 bytes per block; two passes over a block that
      stays in cache.
    Source: QSGD, Alistarh et al., 2017; blocks as in OFedQIT, arXiv 2205.06491.
    """

    levels: int = 1
    block: int | None = 256
    bidirectional: bool = True
    seed: int = 0

    unbiased = True
    sums = False

    def __post_init__(self) -> None:
        self._form(1)

    @property
    def reply_codec(self) -> Levels | None:
        return self if self.bidirectional else None

    def _form(self, numel: int) -> Form:
        return Form.of_levels(self.levels, shared_by(self.block, numel))

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Codes, None]:
        return coded(value, self._form(value.numel()), turn.own(self.seed), error), None

    def error_bound(self, spec: Spec) -> float:
        """With `r = sqrt(block) / levels`: `r - 1` for equal magnitudes; where `r` is below 2, `r² / 4`."""
        ratio = math.sqrt(min(shared_by(self.block, spec.numel), max(1, spec.numel))) / self.levels
        return ratio - 1 if ratio >= 2 else ratio**2 / 4

    def packet_bytes(self, spec: Spec) -> float:
        """Bits per value, four bytes per block."""
        return form_bytes(self._form(spec.numel), spec.numel)
