"""Contributions judged layer by layer, by how far steps on trusted samples lead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.aggregate.by_layers import ByLayers, check_settings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ZenoPS(ByLayers):
    """Averages, layer by layer, what goes where a validator's steps on trusted samples go, and not much
    farther.

        <u, v> > eta * |v|^2    and    |u|^2 < (1 + rho) * |v|^2

    is what a contribution `u` must hold to count, where `v` is how far these steps lead. With several
    validators a sender is judged by the one with its number modulo theirs. A layer is a tensor of the model.
    One that was not sent counts for nothing, and one that nobody sent, or of which nothing is believed, stays
    as it is.

    Args:
      steps: that a validator takes: as many as workers take between exchanges.
      lr: of these steps: that of workers' optimizers.
      validators: how many there are, each with samples of its own.
      eta, rho: see above.
      every: validators take their steps anew after so many contributions.

    Raises: UsageError for settings that cannot be.
    Cost: `validators * steps` backward passes over a batch of trusted samples per `every` contributions, and
      two inner products per contribution.
    Source: ZenoPS, Algorithms 15(7):233, 2022, as its code does it for training in step.
    """

    steps: int = 8
    lr: float = 0.1
    validators: int = 1
    eta: float = -1e-3
    rho: float = 0.6
    every: int = 1

    def __post_init__(self) -> None:
        check_settings(self, self.eta, -1 < self.rho < math.inf, "and rho above -1")

    def factor(self, value: Tensor, trusted: Tensor) -> float | None:
        """1. Not what is not finite, and nothing where the validator's is not, or is zero."""
        mine, theirs = value.double(), trusted.double()
        squared = float(theirs.square().sum())
        near = float(mine.square().sum()) < (1 + self.rho) * squared < math.inf
        return 1.0 if near and float(mine @ theirs) > self.eta * squared else None
