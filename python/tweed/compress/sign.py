"""The sign of each number, and the mean magnitude of each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Spec, Turn
from tweed.compress.codes import Codes, coded, form_bytes, shared_by
from tweed.compress.native.form import Form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sign:
    """Sends of each number whether it is negative, and of each block the mean of magnitudes.

    Args:
      block: values that share a scale; None: all of the buffer, as in the paper.
      bidirectional: the average goes back in the same form; what is left stays with the owner of the range.

    Cost: 1 bit per value and 4 bytes per block; two passes over a block that stays in cache.
    Source: Karimireddy et al., "Error feedback fixes SignSGD", 2019.
    """

    block: int | None = 4096
    bidirectional: bool = True

    unbiased = False
    sums = False

    @property
    def reply_codec(self) -> Sign | None:
        return self if self.bidirectional else None

    def _form(self, numel: int) -> Form:
        return Form("sign", 1, shared_by(self.block, numel))

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Codes, None]:
        return coded(value, self._form(value.numel()), None, error), None

    def error_bound(self, spec: Spec) -> float:
        """`1 - 1 / block`, where one number has all the magnitude. Of Gaussian values `1 - 2 / pi`."""
        return 1 - 1 / min(shared_by(self.block, spec.numel), max(1, spec.numel))

    def packet_bytes(self, spec: Spec) -> float:
        """A bit per value, four bytes per block."""
        return form_bytes(self._form(spec.numel), spec.numel)
