"""Maximum distance separable codes over real numbers: n parts of k blocks, any k of which give them. Pure.

    code = mds_code(n=8, k=6)
    parts = code.encode(blocks)                  # [6, ...] to [8, ...]: each a combination of all blocks
    blocks = code.decode([0, 2, 3, 5, 6, 7], parts[[0, 2, 3, 5, 6, 7]])

Decoding solves a system of k equations, and loses about as many decimal digits as its condition number has.
That differs by subset and by code, so that a code is checked when it is made, over all subsets or a sample.

    systematic   the first k parts are the blocks themselves, the others have random weights
    orthogonal   columns are orthonormal and random
    chebyshev    values of polynomials at Chebyshev points: orthonormal too, though subsets that leave out
                 neighbours lose all digits for n above some 20
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Real = NDArray[np.float64]
#: So many subsets are looked at: all of them up to (12, 6).
SUBSETS = 1000
#: A random code is the best of so many.
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class MdsCode:
    """An (n, k) code, as `mds_code` makes it.

    Attributes:
      name: the kind of points.
      generator: `[n, k]`, the weights of blocks in each part.
      digits: decimal digits that decoding may lose.
      worst: the largest condition number of the subsets that were looked at.
    """

    name: str
    generator: Real
    digits: float
    worst: float

    @property
    def n(self) -> int:
        """How many parts there are."""
        return len(self.generator)

    @property
    def k(self) -> int:
        """How many blocks there are, and parts that are enough."""
        return int(self.generator.shape[1])

    def encode(self, blocks: NDArray[Any]) -> NDArray[Any]:
        """`[k, ...]` to `[n, ...]`, of the dtype of the blocks.

        Raises: UsageError for another number of blocks.
        Cost: `n k` multiplications per value of a block; `(n - k) k` of a systematic code.
        """
        if len(blocks) != self.k:
            raise UsageError(f"{len(blocks)} blocks cannot be encoded by {self}: give {self.k}")
        flat = blocks.reshape(self.k, -1)
        coded: NDArray[Any] = np.empty((self.n, flat.shape[1]), blocks.dtype)
        plain = self.k if self.name == "systematic" else 0
        coded[:plain] = flat[:plain]
        np.matmul(self.generator[plain:].astype(blocks.dtype), flat, out=coded[plain:])
        return coded.reshape(self.n, *blocks.shape[1:])

    def condition(self, which: Sequence[int]) -> float:
        """The condition number of decoding from these parts; infinite if they do not give the blocks."""
        if len(which) < self.k:
            return np.inf
        return float(np.linalg.cond(self.generator[list(which)]))

    def is_enough(self, which: Sequence[int]) -> bool:
        """Whether these parts give the blocks and lose at most `digits`: more than k are better than k."""
        return len(which) >= self.k and self.condition(which) <= 10**self.digits

    def decode(self, which: Sequence[int], parts: NDArray[Any]) -> NDArray[Any]:
        """The blocks from k parts or more.

        Args:
          which: numbers of parts, each once.
          parts: `[len(which), ...]`, in that order.

        Returns: `[k, ...]`, of the dtype of the parts.
        Raises: UsageError for too few parts, for numbers that are none or come twice, and for a subset that
          loses more than `digits`.
        Cost: a system of k equations, or of as many as there are blocks missing from a systematic code, and
          that number times k per value of a block.
        """
        self._check(which, len(parts))
        numbers, flat = np.array(which), parts.reshape(len(which), -1).astype(np.float64)
        rows, blocks = self.generator[numbers], np.empty((self.k, flat.shape[1]))
        is_block = numbers < (self.k if self.name == "systematic" else 0)
        known = numbers[is_block]
        missing = np.setdiff1d(np.arange(self.k), known)
        blocks[known] = flat[is_block]
        if len(missing):
            equations = rows[~is_block]
            rest = flat[~is_block] - equations[:, known] @ blocks[known]
            blocks[missing] = _solve(equations[:, missing], rest)
        return blocks.astype(parts.dtype).reshape(self.k, *parts.shape[1:])

    def _check(self, which: Sequence[int], given: int) -> None:
        if len({*which} & {*range(self.n)}) != len(which) or given != len(which):
            raise UsageError(
                f"parts {list(which)}, {given} of them, of {self}: give each part once, by number"
            )
        if len(which) < self.k:
            raise UsageError(f"{len(which)} parts do not give the blocks of {self}: {self.k} are needed")
        if not self.is_enough(which):
            lost = f"{log10(self.condition(which)):.1f} digits, and {self.digits:g} may be lost"
            raise UsageError(
                f"parts {list(which)} of {self} are singular, or nearly: decoding loses {lost}. "
                "Wait for another part"
            )

    def __str__(self) -> str:
        return f"a {self.name} ({self.n}, {self.k}) code"


def mds_code(n: int, k: int, points: str = "systematic", digits: float = 6.0, seed: int = 0) -> MdsCode:
    """An (n, k) code, checked.

    Args:
      points: one of `POINTS`.
      digits: decimal digits that decoding may lose at worst, of 15.9 that float64 has and 7.2 of float32.
      seed: draws random codes, and the subsets that are looked at where there are more than `SUBSETS`.

    Raises: UsageError for k above n, for points that there are not, and for a code that loses more digits.
    Cost: condition numbers of `SUBSETS` systems of k equations, four times for random codes: two seconds for
      n = 100, once per process.
    Source: Lee, Lam, Pedarsani, Papailiopoulos, Ramchandran, "Speeding up distributed machine learning using
      codes", 2018, for what such codes are good for; that the best of several random ones is taken is ours.

    Example:
      >>> code = mds_code(4, 2)
      >>> blocks = np.array([[1.0, 2.0], [3.0, 4.0]])
      >>> code.decode([3, 1], code.encode(blocks)[[3, 1]]).round(9).tolist()
      [[1.0, 2.0], [3.0, 4.0]]
    """
    if not 1 <= k <= n:
        raise UsageError(
            f"an ({n}, {k}) code cannot be: any k of n parts are enough, so give k from 1 to {n}"
        )
    if points not in POINTS:
        raise UsageError(f"there are no {points!r} points; there are {', '.join(POINTS)}")
    generator, worst = _best(n, k, points, seed)
    code = MdsCode(points, generator, digits, worst)
    if not code.worst <= 10**digits:
        others = " or ".join(name for name in POINTS if name != points)
        raise UsageError(
            f"{code} loses {log10(code.worst):.1f} digits at worst over the subsets looked at, "
            f"and {digits:g} may be lost: take {others} points, or another k"
        )
    return code


@cache
def _best(n: int, k: int, points: str, seed: int) -> tuple[Real, float]:
    """The generator whose worst condition number is the least, of several random ones; and that number."""
    subsets = _subsets(n, k, seed)
    attempts = 1 if points == "chebyshev" else _ATTEMPTS
    generators = [POINTS[points](n, k, seed + attempt) for attempt in range(attempts)]
    worst = [max(float(np.linalg.cond(rows[part]).max()) for part in subsets) for rows in generators]
    best = int(np.argmin(worst))
    return generators[best], worst[best]


def _systematic(n: int, k: int, seed: int) -> Real:
    random = np.random.default_rng([seed, n, k])
    return np.concatenate([np.eye(k), random.normal(size=(n - k, k)) / np.sqrt(k)])


def _orthogonal(n: int, k: int, seed: int) -> Real:
    columns: Real = np.linalg.qr(np.random.default_rng([seed, n, k]).normal(size=(n, k)))[0]
    return columns


def _chebyshev(n: int, k: int, seed: int) -> Real:
    angles = (2 * np.arange(n) + 1) * np.pi / (2 * n)
    values: Real = np.cos(np.outer(angles, np.arange(k))) * np.sqrt(2 / n)
    values[:, 0] /= np.sqrt(2)
    return values


#: By name, what makes a generator of n, k and a seed.
POINTS: dict[str, Callable[[int, int, int], Real]] = {
    "systematic": _systematic,
    "orthogonal": _orthogonal,
    "chebyshev": _chebyshev,
}


def _subsets(n: int, k: int, seed: int) -> list[NDArray[np.int64]]:
    """Subsets of k parts in a few arrays `[., k]`: all of them, or `SUBSETS` drawn ones."""
    if comb(n, k) <= SUBSETS:
        found = np.array([*combinations(range(n), k)])
    else:
        random = np.random.default_rng([seed, n, k])
        found = np.stack([random.permutation(n)[:k] for _ in range(SUBSETS)])
    return np.array_split(found, -(-len(found) // 100))


def _solve(equations: Real, values: Real) -> NDArray[Any]:
    if len(equations) == equations.shape[1]:
        return np.linalg.solve(equations, values)
    found: NDArray[Any] = np.linalg.lstsq(equations, values, rcond=None)[0]
    return found
