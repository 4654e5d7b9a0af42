"""Codes for a sum over shards: each of K workers holds `load` shards, i, i + 1 and so on, cyclically.

Of a scheme each worker has its messages, in the order in which it sends them: `[messages, K]` coefficients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Rows = NDArray[np.float64]


def uncoded(workers: int, load: int) -> list[Rows]:
    """A message per shard, each shard alone: `load` messages per worker. K different ones are enough."""
    return [np.eye(workers)[held(worker, workers, load)] for worker in range(workers)]


def gradient_code(workers: int, load: int, seed: int = 0) -> list[Rows]:
    """One message per worker, when all of its shards are done: any `workers - load + 1` of them are enough.

    Raises: UsageError for a load that is no number of shards.
    Source: Tandon, Lei, Dimakis, Karampatziakis, "Gradient coding: avoiding stragglers in distributed
      learning", 2017, algorithm 2, for `load - 1` stragglers.

    Example:
      >>> sum(bool(value) for value in gradient_code(5, 2)[4][0])
      2
    """
    shards, rows = [held(worker, workers, load) for worker in range(workers)], np.zeros((workers, workers))
    # Rows with the same null space: each lies in the space of vectors that `checks` maps to zero.
    checks = np.random.default_rng([seed, workers, load]).normal(size=(load - 1, workers))
    if load > 1:
        checks[:, -1] = -checks[:, :-1].sum(axis=1)
    for worker, (first, *rest) in enumerate(shards):
        rows[worker, first] = 1.0
        if rest:
            rows[worker, rest] = -np.linalg.solve(checks[:, rest], checks[:, first])
    return [row[None] for row in rows]


def nested(workers: int, load: int, seed: int = 0) -> list[Rows]:
    """After each shard a message: that of a gradient code with as many shards as are done.

    The first is uncoded. After each shard a worker's messages span the same as the shards alone, so that a
    sum is known no sooner than with `uncoded`; it is one message of many shards that saves something.
    """
    codes = [gradient_code(workers, count, seed) for count in range(1, load + 1)]
    return [np.concatenate([code[worker] for code in codes]) for worker in range(workers)]


def hybrid(workers: int, load: int, seed: int = 0) -> list[Rows]:
    """After each shard but the last a message with it alone; then one of a gradient code over all of them.

    It spans what `nested` does.

    Source: Ozfatura, Ulukus, Gunduz, "Straggler-aware distributed learning: communication-computation latency
      trade-off", 2020: coded partial gradients; which messages are coded is ours.
    """
    plain, coded = uncoded(workers, load), gradient_code(workers, load, seed)
    return [np.concatenate([one[:-1], last]) for one, last in zip(plain, coded, strict=True)]


def decode(came: NDArray[Any], wanted: NDArray[Any], tolerance: float = 1e-6) -> NDArray[Any] | None:
    """The weights with which what came adds up to what is wanted.

    Weights of coded messages can be large, 1e4 for 20 workers that hold three shards each: sums of float32
    lose as much. Add up in float64.

    Args:
      came: `[m, K]`, a row per message; of complex numbers for values of a polynomial.
      wanted: `[K]`, ones for the sum over all shards.
      tolerance: how far each coefficient of the result may be off.

    Returns: `[m]`; None if it does not add up yet.
    """
    if len(came) == 0:
        return None
    weights: NDArray[Any] = np.linalg.lstsq(came.T, wanted, rcond=None)[0]
    return weights if bool(np.abs(weights @ came - wanted).max() <= tolerance) else None


def held(worker: int, workers: int, load: int) -> list[int]:
    """The shards of a worker, in its order. Raises UsageError for a load that is no number of shards."""
    if not 1 <= load <= workers:
        raise UsageError(f"load={load}: each of {workers} workers holds from one shard to {workers}")
    return [(worker + at) % workers for at in range(load)]
