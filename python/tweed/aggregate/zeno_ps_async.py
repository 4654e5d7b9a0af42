"""Contributions one by one: each layer is cut to the norm of steps on trusted samples, or reversed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.by_layers import ByLayers, check_settings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ZenoPSAsync(ByLayers):
    """As `ZenoPS`, but cuts each layer `u` to the norm of the validator's `v`, and counts it in full if its
    cosine with `v` is at least `eta`; otherwise times that cosine: what goes against `v` is reversed, and the
    less it does the less it counts. Of several that are there at once the mean is taken.

    The hub's learning rate is the paper's alpha: 0.4 to 0.8, with a decay.

    Args:
      steps, lr, validators, every: as of `ZenoPS`.
      eta: see above.

    Raises: UsageError for settings that cannot be.
    Cost: as of `ZenoPS`.
    Source: ZenoPS, Algorithms 15(7):233, 2022, as its code does it for asynchronous training.
    """

    steps: int = 8
    lr: float = 0.1
    validators: int = 1
    eta: float = -0.02
    every: int = 10
    counts: ClassVar[Reason] = Reason.CLIPPED_TO_STEPS

    def __post_init__(self) -> None:
        check_settings(self, self.eta, True, "")

    def factor(self, value: Tensor, trusted: Tensor) -> float | None:
        """Not what is not finite, and nothing where the validator's is not, or is zero."""
        mine, theirs = value.double(), trusted.double()
        own, norm = float(mine.norm()), float(theirs.norm())
        if not (math.isfinite(own) and 0 < norm < math.inf):
            return None
        cosine = float((mine / own) @ (theirs / norm)) if own else 0.0
        return min(1.0, norm / own if own else 1.0) * (1.0 if cosine >= self.eta else cosine)
