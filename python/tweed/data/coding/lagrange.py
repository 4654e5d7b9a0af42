"""Lagrange coded computing: workers compute a polynomial of encoded shards; enough values give all of it.

    code = Lagrange(shards=20, points=60)
    stored = code.encode(shards)                       # [points, ...]: what each computation works on
    total = code.decode(which, values)                 # the sum of f over shards, of any 2 K - 1 values

`f` is of degree 2, as the gradient of least squares, `X^T X w`, is in X. All points lie on the unit circle,
so that values which arrive at random decode well, though not those of one arc; values are complex.

Source: Yu, Li, Raviv, Kalan, Soltanolkotabi, Avestimehr, "Lagrange coded computing: optimal design for
  resiliency, security, and privacy", 2019. Points on the circle instead of the line are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Complex = NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class Lagrange:
    """See above.

    Args:
      shards: K.
      points: encoded shards, over all workers; at least 2 K - 1.

    Raises: UsageError for fewer points.
    """

    shards: int
    points: int

    def __post_init__(self) -> None:
        if self.shards < 1 or self.points < self.needed:
            raise UsageError(f"{self!r}: {self.needed} values are needed, of as many points at least")

    @property
    def needed(self) -> int:
        """Values that are enough: a polynomial of degree 2 (K - 1)."""
        return 2 * self.shards - 1

    @property
    def places(self) -> Complex:
        """`[points]`, where encoded shards lie: evenly over the circle."""
        found: Complex = np.exp(2j * np.pi * np.arange(self.points) / self.points)
        return found

    @property
    def data(self) -> Complex:
        """`[K]`, where shards lie: evenly over the circle, and never where an encoded one does."""
        turn = np.pi / np.lcm(self.points, self.shards)
        found: Complex = np.exp(2j * np.pi * np.arange(self.shards) / self.shards + 1j * turn)
        return found

    def encode(self, shards: NDArray[np.float64]) -> Complex:
        """The polynomial through all shards at every place: `[K, ...]` to `[points, ...]`."""
        weights = np.stack([_basis(self.data, place) for place in self.places])
        return np.tensordot(weights, shards, axes=1)

    def decode(self, which: Sequence[int], values: Complex) -> Complex:
        """The sum of `f` over shards.

        Args:
          which: numbers of places, `needed` different ones.
          values: `[needed, ...]`, `f` of what was encoded there.

        Raises: UsageError for another number of values.
        """
        if (
            len({*which} & {*range(self.points)}) != len(which)
            or not len(which) == len(values) == self.needed
        ):
            words = f"{len(set(which))} different values came"
            raise UsageError(f"{self!r}: {words}, and {self.needed} are needed")
        came = self.places[list(which)]
        weights = sum(_basis(came, point) for point in self.data)
        return np.tensordot(weights, values, axes=1)


def _basis(nodes: Complex, at: complex) -> Complex:
    """The Lagrange polynomials of `nodes` at a point that is none of them: `[len(nodes)]`."""
    between = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(between, 1.0)
    # In logarithms: products of that many small numbers leave the range of floats.
    weights = -np.log(between).sum(axis=1) - np.log(at - nodes)
    found: Complex = np.exp(weights - weights.real.max())
    found /= found.sum()
    return found
