"""How long a product takes that n workers compute, coded or not, and into how many blocks to cut it. Pure.

The model of delays is `times.Stragglers`: all of the product takes one worker `alpha` seconds, and an
exponential time with rate `mu` more; a part with 1/k of the rows takes 1/k of both. What comes of it depends
on `alpha * mu` alone: the larger, the less workers straggle.

Source: Lee, Lam, Pedarsani, Papailiopoulos, Ramchandran, "Speeding up distributed machine learning using
  codes", 2018, whose model has `alpha` 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, exp, floor, isnan
from statistics import fmean

from tweed.data.coding.times import Stragglers
from tweed.errors import UsageError


def uncoded_s(n: int, stragglers: Stragglers) -> float:
    """Expected seconds of n parts on n workers, all of which are needed: of order log n / n."""
    return coded_s(n, n, stragglers)


def replicated_s(n: int, copies: int, stragglers: Stragglers) -> float:
    """Expected seconds of n / copies parts, each on so many workers; UsageError for no divisor."""
    if not 1 <= copies <= n or n % copies:
        raise UsageError(f"{n} workers cannot have {copies} copies of each part: give a divisor of {n}")
    parts = n // copies
    return (copies * stragglers.alpha + _harmonic(parts) / stragglers.mu) / n + stragglers.message_s


def coded_s(n: int, k: int, stragglers: Stragglers) -> float:
    """Expected seconds of an (n, k) code, without decoding: the k-th of n workers. Raises: UsageError for k
    above n."""
    if not 1 <= k <= n:
        raise UsageError(f"an ({n}, {k}) code cannot be: give k from 1 to {n}")
    beyond = (_harmonic(n) - _harmonic(n - k)) / stragglers.mu
    return (stragglers.alpha + beyond) / k + stragglers.message_s


def best_share(stragglers: Stragglers) -> float:
    """The best k / n for many workers: `1 + 1 / W`, from 0 to 1.

    W is Lambert's function of `-exp(-alpha * mu - 1)`, on its lower branch.

    Example:
      >>> round(best_share(Stragglers(alpha=1.0, mu=1.0)), 3)
      0.682
    """
    from scipy.special import lambertw

    even = min(stragglers.alpha * stragglers.mu, 700.0)  # above, `exp` is zero; the share is nearly 1
    found = float(lambertw(-exp(-even - 1), -1).real)
    return 0.0 if isnan(found) else max(0.0, 1 + 1 / found)  # no number: its branch point, alpha 0


def best_k(n: int, stragglers: Stragglers) -> int:
    """The best k for n workers: of the whole numbers beside `n * best_share` the quicker one."""
    near = n * best_share(stragglers)
    return min({max(1, floor(near)), min(n, max(1, ceil(near)))}, key=lambda k: coded_s(n, k, stragglers))


def speedup(n: int, stragglers: Stragglers) -> float:
    """How many times as long the uncoded product takes as the best coded one, as expected.

    Example:
      >>> round(speedup(100, Stragglers(alpha=1.0, mu=1.0)), 2)
      1.98
    """
    return uncoded_s(n, stragglers) / coded_s(n, best_k(n, stragglers), stragglers)


def fitted_to_first(seconds: Sequence[float], n: int) -> Stragglers:
    """The model by the first of n workers, whose others were not waited for: no bias in `alpha` and `1 / mu`.

    Args:
      seconds: what the first workers took, each as for all of the product; two at least.

    Raises: UsageError for fewer, or more than n.
    Source: the estimator of a shifted exponential distribution from a sample censored at its r-th value
      (Epstein and Sobel, "Some theorems relevant to life testing from an exponential distribution", 1954).
    """
    if not 2 <= len(seconds) <= n:
        raise UsageError(f"{len(seconds)} times of {n} workers give no model: give from 2 to {n}")
    first, *_, last = sorted(seconds)
    late = (n - len(seconds)) * (last - first)
    beyond = (sum(seconds) - len(seconds) * first + late) / (len(seconds) - 1)
    return _model(first - beyond / n, beyond)


@dataclass(slots=True)
class AdaptiveK:
    """The best k for n workers, by the model that is fitted again after each product.

    Args:
      n: workers.
      k: the first one.
      most: the largest k, such as the number of rows.
      gain: a new k is taken if the model expects so much less time of it, as a share: encoding anew costs.
      products: the last ones, to which the model is fitted.

    Attributes:
      stragglers: the model; None before the first product.
    """

    n: int
    k: int
    most: int
    gain: float = 0.05
    products: int = 32
    stragglers: Stragglers | None = None
    _fits: deque[Stragglers] = field(default_factory=deque)

    def handle(self, seconds: Sequence[float]) -> int:
        """A product was computed with this k. Returns the k for the next one.

        Args:
          seconds: what each part took whose result came. Fewer than two say nothing.
        """
        if len(seconds) < 2:
            return self.k
        self._fits.append(fitted_to_first([self.k * part for part in seconds], self.n))
        while len(self._fits) > self.products:
            self._fits.popleft()
        model = _model(fmean(fit.alpha for fit in self._fits), fmean(1 / fit.mu for fit in self._fits))
        best = min(best_k(self.n, model), self.most)
        if coded_s(self.n, best, model) < (1 - self.gain) * coded_s(self.n, self.k, model):
            self.k = best
        self.stragglers = model
        return self.k


def _model(alpha: float, beyond: float) -> Stragglers:
    """The mean time beyond is never zero, so that its rate is a number."""
    alpha = max(alpha, 0.0)
    return Stragglers(alpha, 1 / max(beyond, 1e-9 * max(alpha, 1e-9)))


def _harmonic(count: int) -> float:
    return sum(1 / number for number in range(1, count + 1))
