"""Products simulated by the model of delays: coded, uncoded, replicated, and with speculation. Pure.

    times = simulate_products("coded", 100, Stragglers(1.0, 1.0), trials=4_000)      # [trials], seconds

Each worker draws how long it takes, `data.coding.times`; all begin at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np

from tweed.data.coding.product_times import best_k, replicated_s
from tweed.data.coding.times import Seconds, Stragglers
from tweed.errors import UsageError

#: A part gets a speculative copy when it runs longer than this share of all parts do.
PERCENTILE = 0.95


def simulate_products(
    scheme: str, n: int, stragglers: Stragglers, trials: int, seed: int = 0, decode_s: float = 0.0
) -> Seconds:
    """When each of so many products is known, in seconds.

    Args:
      scheme: one of `SCHEMES`.
      decode_s: of decoding, which only coded products have.

    Returns: `[trials]`.
    Raises: UsageError for a scheme that there is not.

    Example:
      >>> even = Stragglers(alpha=8.0, mu=1e9)
      >>> simulate_products("uncoded", 4, even, trials=2).round(3).tolist()
      [2.0, 2.0]
    """
    if scheme not in SCHEMES:
        raise UsageError(f"there is no scheme {scheme!r}; there are {', '.join(SCHEMES)}")
    whole = stragglers.task_s(n, trials, seed)
    seconds = SCHEMES[scheme](whole, stragglers, seed) + stragglers.message_s
    return seconds + decode_s if scheme == "coded" else seconds


def coded(whole: Seconds, k: int) -> Seconds:
    """The k-th of n workers, each with 1/k of the rows.

    Args:
      whole: `[trials, n]`, seconds as for all of the product.
    """
    seconds: Seconds = np.partition(whole, k - 1, axis=1)[:, k - 1] / k
    return seconds


def replicated(whole: Seconds, copies: int) -> Seconds:
    """The slowest part, of which the quickest of so many copies counts; `whole` as for `coded`."""
    trials, n = whole.shape
    slowest = whole.reshape(trials, n // copies, copies).min(axis=2).max(axis=1)
    seconds: Seconds = slowest * copies / n
    return seconds


def speculative(whole: Seconds, spare: Seconds, late_s: float) -> Seconds:
    """The slowest part, where each that runs longer than `late_s` gets a copy on a worker that is done.

    Copies begin then, or when half of the workers are done, so that there is one for each part that runs.

    Args:
      whole: as for `coded`.
      spare: `[trials, n]`, seconds of copies, as for all of the product.
      late_s: seconds of a part.
    """
    n = whole.shape[1]
    parts = np.sort(whole / n, axis=1)
    begin = np.maximum(late_s, parts[:, (n - 1) // 2])[:, None]
    ends = np.where(parts > begin, np.minimum(parts, begin + spare / n), parts)
    slowest: Seconds = ends.max(axis=1)
    return slowest


def _coded(whole: Seconds, stragglers: Stragglers, seed: int) -> Seconds:
    return coded(whole, best_k(whole.shape[1], stragglers))


def _replicated(whole: Seconds, stragglers: Stragglers, seed: int) -> Seconds:
    """With the number of copies that is best."""
    n = whole.shape[1]
    divisors = [copies for copies in range(1, n + 1) if n % copies == 0]
    return replicated(whole, min(divisors, key=lambda copies: replicated_s(n, copies, stragglers)))


def _speculative(whole: Seconds, stragglers: Stragglers, seed: int) -> Seconds:
    trials, n = whole.shape
    late_s = (stragglers.alpha - log(1 - PERCENTILE) / stragglers.mu) / n
    return speculative(whole, stragglers.task_s(n, trials, seed + 1), late_s)


#: By name, when products are known, of `[trials, n]` seconds, the model and the seed.
SCHEMES: dict[str, Callable[[Seconds, Stragglers, int], Seconds]] = {
    "uncoded": lambda whole, stragglers, seed: coded(whole, whole.shape[1]),
    "replicated": _replicated,
    "speculative": _speculative,
    "coded": _coded,
}
