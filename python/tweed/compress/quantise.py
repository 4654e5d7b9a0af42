"""Whole steps of a block's largest magnitude."""

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
class Quantise:
    """Sends each number as a whole number of steps; a block has as many steps as fit up to its largest.

    Args:
      bits: per value, 2 to 8: `2^(bits - 1) - 1` steps each way.
      block: values that share a scale; None: all of the buffer.
      nearest: round to the nearest step, for use with a memory. Otherwise at random, so that the mean is the
        input.
      bidirectional: the average goes back in the same form, from other draws. What is left of it if it is
        rounded to nearest stays with the owner of the range.
      seed: of the draws.

    Raises: UsageError for other values.
    Cost: `bits` bits per value and 4 bytes per block; two passes over a block that stays in cache.
    Source: Dettmers, "8-bit approximations for parallelism in deep learning", 2016; QSGD (Alistarh et al.,
      2017) for random rounding and blocks.
    """

    bits: int = 8
    block: int | None = 256
    nearest: bool = False
    bidirectional: bool = True
    seed: int = 0

    sums = False

    def __post_init__(self) -> None:
        self._form(1)

    @property
    def unbiased(self) -> bool:
        """If rounded at random."""
        return not self.nearest

    @property
    def reply_codec(self) -> Quantise | None:
        return self if self.bidirectional else None

    def _form(self, numel: int) -> Form:
        return Form("uniform", self.bits, shared_by(self.block, numel))

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Codes, None]:
        key = None if self.nearest else turn.own(self.seed)
        return coded(value, self._form(value.numel()), key, error), None

    def error_bound(self, spec: Spec) -> float:
        """One number of a block is its largest, and all others are where rounding costs most for their size.

        With `c = (block - 1) / steps²`: rounded to nearest all are half a step, `c / (4 + c)`; at random they
        are `(sqrt(1 + c) - 1) / c` steps, `(sqrt(1 + c) - 1) / 2`.
        """
        form = self._form(spec.numel)
        c = (min(form.block, max(1, spec.numel)) - 1) / form.levels**2
        return c / (4 + c) if self.nearest else (math.sqrt(1 + c) - 1) / 2

    def packet_bytes(self, spec: Spec) -> float:
        """Bits per value, four bytes per block."""
        return form_bytes(self._form(spec.numel), spec.numel)
