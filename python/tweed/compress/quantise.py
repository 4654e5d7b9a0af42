"""A few bits per value, and a scale per block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.compress.base import Bidirectional, Spec, Stateless, Turn
from tweed.compress.codes import Codes, coded, form_bytes, shared_by
from tweed.compress.native.form import Form

if TYPE_CHECKING:
    from torch import Tensor


class _BlockCodec(Bidirectional, Stateless):
    """What these codecs have in common; each has its form, and its draws if it rounds at random."""

    __slots__ = ()
    sums = False

    def _form(self, numel: int) -> Form:
        raise NotImplementedError

    def _key(self, turn: Turn) -> int | None:
        """Where draws come from; None: there are none."""

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Codes, None]:
        """See `Compressor`."""
        return coded(value, self._form(value.numel()), self._key(turn), error), None

    def packet_bytes(self, spec: Spec) -> float:
        """So many bits per value, four bytes per block."""
        return form_bytes(self._form(spec.numel), spec.numel)


@dataclass(frozen=True, slots=True)
class Quantise(_BlockCodec):
    """Sends each number as a whole number of steps; a block has as many steps as fit up to its largest.

    Args:
      bits: per value, 2 to 8: `2^(bits - 1) - 1` steps each way.
      block: values that share a scale; None: all of the buffer.
      nearest: round to the nearest step, for use with a memory. Otherwise at random, so that the mean is the
        input.
      both_ways: the average goes back in the same form, from other draws. What is left of it if it is rounded
        to nearest stays with the owner of the range.
      seed: of the draws.

    Raises: UsageError for other values.
    Cost: `bits` bits per value and 4 bytes per block; two passes over a block that stays in cache.
    Source: Dettmers, "8-bit approximations for parallelism in deep learning", 2016; QSGD (Alistarh et al.,
      2017) for random rounding and blocks.
    """

    bits: int = 8
    block: int | None = 256
    nearest: bool = False
    both_ways: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        self._form(1)

    @property
    def unbiased(self) -> bool:
        """If rounded at random."""
        return not self.nearest

    def _form(self, numel: int) -> Form:
        return Form("uniform", self.bits, shared_by(self.block, numel))

    def _key(self, turn: Turn) -> int | None:
        return None if self.nearest else turn.own(self.seed)

    def error_bound(self, spec: Spec) -> float:
        """One number of a block is its largest, and all others are where rounding costs most for their size.

        With `c = (block - 1) / steps²`: rounded to nearest all are half a step, `c / (4 + c)`; at random they
        are `(sqrt(1 + c) - 1) / c` steps, `(sqrt(1 + c) - 1) / 2`.
        """
        form = self._form(spec.numel)
        c = (min(form.block, max(1, spec.numel)) - 1) / form.levels**2
        return c / (4 + c) if self.nearest else (math.sqrt(1 + c) - 1) / 2


@dataclass(frozen=True, slots=True)
class Levels(_BlockCodec):
    """Sends each number as a sign and a level of its block's l2 norm, drawn so that the mean is the input.

    Args:
      levels: from zero to the norm, 1 to 127. Those that fill their bits are best: 1, 3, 7, 15 and so on.
      block: values that share a norm; None: all of the buffer. More blocks are more exact.
      both_ways: the average goes back in the same form, from other draws.
      seed: of the draws.

    Raises: UsageError for other values.
    Cost: `1 + ceil(log2(levels + 1))` bits per value and 4 bytes per block; two passes over a block that
      stays in cache.
    Source: QSGD, Alistarh et al., 2017; blocks as in OFedQIT, arXiv 2205.06491.
    """

    levels: int = 1
    block: int | None = 256
    both_ways: bool = True
    seed: int = 0

    unbiased = True

    def __post_init__(self) -> None:
        self._form(1)

    def _form(self, numel: int) -> Form:
        return Form.of_levels(self.levels, shared_by(self.block, numel))

    def _key(self, turn: Turn) -> int | None:
        return turn.own(self.seed)

    def error_bound(self, spec: Spec) -> float:
        """With `r = sqrt(block) / levels`: `r - 1` for equal magnitudes; where `r` is below 2, `r² / 4`."""
        ratio = math.sqrt(min(shared_by(self.block, spec.numel), max(1, spec.numel))) / self.levels
        return ratio - 1 if ratio >= 2 else ratio**2 / 4


@dataclass(frozen=True, slots=True)
class Sign(_BlockCodec):
    """Sends of each number whether it is negative, and of each block the mean of magnitudes.

    Args:
      block: values that share a scale; None: all of the buffer, as in the paper.
      both_ways: the average goes back in the same form; what is left of it stays with the owner of the range.

    Cost: 1 bit per value and 4 bytes per block; two passes over a block that stays in cache.
    Source: Karimireddy et al., "Error feedback fixes SignSGD", 2019.
    """

    block: int | None = 4096
    both_ways: bool = True

    unbiased = False

    def _form(self, numel: int) -> Form:
        return Form("sign", 1, shared_by(self.block, numel))

    def error_bound(self, spec: Spec) -> float:
        """`1 - 1 / block`, where one number has all the magnitude. Of Gaussian values `1 - 2 / pi`."""
        return 1 - 1 / min(shared_by(self.block, spec.numel), max(1, spec.numel))
