"""Local differential privacy: what a worker sends is cut to a norm and has noise on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed import distribution
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

#: So many random bytes. Live it is the system's, which nobody can guess; in a simulation it has a seed. It
#: must never give the same bytes twice: of what has the same noise, anybody can tell the difference.
Source = Callable[[int], bytes]

#: Orders of Rényi divergence among which the accountant chooses.
_ORDERS = [1 + 10 ** (place / 20 - 3) for place in range(141)]
_GRID_BITS = 20  # values are multiples of the noise's deviation by about 2**20


@dataclass(frozen=True, slots=True)
class ClippedNoise:
    """Cuts a contribution to the norm `clip`, and adds normal noise with a standard deviation of
    `noise * clip` to each value, before anything else is done to it.

    What comes after, such as a codec or a residual, adds nothing that the noise does not cover. So the hub,
    and whoever listens, learns from all that a worker sends no more than `epsilon` says, about anything that
    the worker computed on: for any two data sets that it could have.

    Args:
      clip: the largest norm that is sent, in the units of what is exchanged.
      noise: 0: none, and no privacy.

    Raises: UsageError for settings that cannot be.
    Cost: eight random bytes per value, and memory for two copies in float64.
    Source: the Gaussian mechanism (Dwork and Roth, "The algorithmic foundations of differential privacy",
      2014); rounded to a grid, as low bits of floats tell what the noise hides (Mironov, 2012).
    """

    clip: float
    noise: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.clip <= 1e30 and 0 <= self.noise <= 1e6):
            raise UsageError(f"{self!r}: clip is to be above 0 and noise from 0 on, neither absurdly large")

    def randomised(self, value: Tensor, source: Source) -> Tensor:
        """What may be sent in the place of `value`.

        What is not finite counts as zero: that it was not would be told without noise.

        Args:
          value: `[numel]` float32; not changed.
          source: of the noise.
        """
        double = value.double()
        norm = float(double.norm())
        if not math.isfinite(norm):
            double.zero_()
        elif norm > self.clip:
            double.mul_(self.clip / norm)
        if self.noise:
            deviation = self.noise * self.clip
            double.add_(_normal(source, len(double)).to(double.device), alpha=deviation)
            grid = 2.0 ** (math.frexp(deviation)[1] - _GRID_BITS)
            double.div_(grid).round_().mul_(grid)
        return double.to(value.dtype)

    def epsilon(self, contributions: int, delta: float = 1e-5) -> float:
        """The epsilon of a worker's `contributions` together: another data set of the worker makes no event
        more likely than by a factor of `exp(epsilon)`, but for a probability of `delta`.

        Two contributions before noise are at most `2 * clip` apart, which the accountant takes for their
        sensitivity. It counts none as hidden: the hub sees who sends.

        Returns: infinite without noise.
        Raises: UsageError if the accountant is not installed.
        Source: Rényi differential privacy (Mironov, 2017), by Google's `dp-accounting`.
        """
        if contributions == 0:
            return 0.0
        if self.noise == 0:
            return math.inf
        try:
            from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, rdp
        except ImportError as error:
            raise UsageError(
                "epsilon is computed by dp-accounting, which is not installed: "
                + distribution.install_extra("privacy")
            ) from error
        accountant = rdp.RdpAccountant(_ORDERS)
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(self.noise / 2), contributions))
        return float(accountant.get_epsilon(delta))


def _normal(source: Source, count: int) -> Tensor:
    """`[count]` float64 normal draws, from pairs of uniform ones of 53 bits (Box and Muller, 1958)."""
    import torch

    pairs = -(-count // 2)
    drawn = torch.frombuffer(bytearray(source(16 * pairs)), dtype=torch.int64)
    uniform = ((drawn & (2**53 - 1)).double() + 0.5) * 2.0**-53
    radius, angle = (-2 * uniform[:pairs].log()).sqrt(), 2 * math.pi * uniform[pairs:]
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]
