"""Which samples a rank sees at which step. Pure, so that a resumed run sees the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Batches:
    """Endless passes over one rank's samples, each in another order.

    Args:
      indices: `[n]`, the rank's samples, n at least 1.
      size: samples per batch. A batch may reach over the end of a pass into the next.
      seed: decides the order, together with `rank` and the number of the pass.
    """

    def __init__(self, indices: NDArray[np.int64], size: int, seed: int, rank: int) -> None:
        self._indices = indices
        self._size = size
        self._key = (seed, rank)
        self._shuffled: tuple[int, NDArray[np.int64]] = (-1, indices)

    def at(self, step: int) -> NDArray[np.int64]:
        """`[size]`, the samples of step `step`, which counts from 0. Cost: one shuffle per pass."""
        places = np.arange(step * self._size, (step + 1) * self._size)
        passes, within = np.divmod(places, len(self._indices))
        picked = [self._pass(number)[within[passes == number]] for number in np.unique(passes).tolist()]
        return np.concatenate(picked)

    def _pass(self, number: int) -> NDArray[np.int64]:
        if self._shuffled[0] != number:
            # numpy's generator, not `tweed.rng`: another one would change every published training.
            random = np.random.default_rng([*self._key, number])
            self._shuffled = (number, random.permutation(self._indices))
        return self._shuffled[1]
