"""How long an iteration takes where workers send several messages: straggler models, as papers give them.

A worker takes equally long for each of its shards within an iteration: `alpha` seconds, and an exponential
time with rate `mu` more. Computing and sending take turns: after a message it goes on with the next shard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tweed.data.coding.gradient_codes import decode, gradient_code, hybrid, nested

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """How long computing and sending take.

    Attributes:
      alpha: seconds per shard at least.
      mu: rate of the exponential time beyond, per second.
      message_s: of each message.
    """

    alpha: float
    mu: float
    message_s: float = 0.0

    def task_s(self, workers: int, trials: int, seed: int = 0) -> Seconds:
        """`[trials, workers]`, seconds per shard."""
        drawn = np.random.default_rng(seed).exponential(1 / self.mu, size=(trials, workers))
        return self.alpha + drawn


class Iteration(NamedTuple):
    """When a sum is known, and how many messages had come by then."""

    seconds: float
    messages: int


def of_rows(rows: Sequence[NDArray[np.float64]], task_s: Seconds, message_s: float) -> Iteration:
    """An iteration of a scheme of `data.coding`, of which each worker has its messages.

    A worker with fewer messages than shards sends after the last of those that a message needs.

    Args:
      rows: per worker, `[messages, K]`.
      task_s: `[workers]`, seconds per shard.
    """
    arrivals = []
    for worker, own in enumerate(rows):
        shards = np.cumsum([0, *_new_shards(own)])[1:]
        for place, row in enumerate(own):
            arrivals.append((shards[place] * task_s[worker] + (place + 1) * message_s, row))
    arrivals.sort(key=lambda one: one[0])
    came, wanted = np.stack([row for _, row in arrivals]), np.ones(rows[0].shape[1])
    low, high = 1, len(arrivals)  # so many are enough, by halving: what adds up goes on adding up
    while low < high:
        middle = (low + high) // 2
        if decode(came[:middle], wanted) is None:
            low = middle + 1
        else:
            high = middle
    return Iteration(float(arrivals[low - 1][0]), low)


def _new_shards(rows: NDArray[np.float64]) -> list[int]:
    """The shards that each message needs and none before it did."""
    seen, found = np.zeros(rows.shape[1], dtype=bool), []
    for row in rows:
        found.append(int(((row != 0) & ~seen).sum()))
        seen |= row != 0
    return found


def of_shares(load: int, share: float, task_s: Seconds, message_s: float) -> Iteration:
    """Uncoded messages, until a share of all shards has come: `share` 1 for all of them."""
    workers = len(task_s)
    ends = np.arange(1, load + 1)[None, :] * (task_s[:, None] + message_s)
    first = np.full(workers, np.inf)
    for place in range(load):
        shard = (np.arange(workers) + place) % workers
        np.minimum.at(first, shard, ends[:, place])
    seconds = float(np.sort(first)[int(np.ceil(share * workers - 1e-9)) - 1])
    return Iteration(seconds, int((ends <= seconds).sum()))


def of_values(needed: int, load: int, several: bool, task_s: Seconds, message_s: float) -> Iteration:
    """Any `needed` values of a Lagrange code: a message for each, or for all of a worker's at once."""
    if several:
        ends = (np.arange(1, load + 1)[None, :] * (task_s[:, None] + message_s)).ravel()
    else:
        ends = load * task_s + message_s
    return Iteration(float(np.sort(ends)[needed - 1]), needed)


#: Of a load, seconds per shard and seconds per message, an iteration: the schemes by name.
Scheme = Callable[[int, Seconds, float], Iteration]


def _rows_of(make: Callable[[int, int], list[NDArray[np.float64]]]) -> Scheme:
    made = cache(make)  # the same rows in each trial
    return lambda load, task_s, message_s: of_rows(made(len(task_s), load), task_s, message_s)


def _values(several: bool) -> Scheme:
    def iteration(load: int, task_s: Seconds, message_s: float) -> Iteration:
        shards = len(task_s)
        needed = 2 * shards - 1 if several else 2 * -(-shards // load) - 1
        if needed > (load * shards if several else shards):
            return Iteration(math.inf, 0)
        return of_values(needed, load, several, task_s, message_s)

    return iteration


SCHEMES: dict[str, Scheme] = {
    "uncoded, one shard": lambda load, task_s, message_s: of_shares(1, 1.0, task_s, message_s),
    "GC": _rows_of(gradient_code),
    "GC, messages": _rows_of(nested),
    "LCC": _values(several=False),
    "LCC, messages": _values(several=True),
    "uncoded, messages": lambda load, task_s, message_s: of_shares(load, 1.0, task_s, message_s),
    "uncoded, messages, 95 %": lambda load, task_s, message_s: of_shares(load, 0.95, task_s, message_s),
    "hybrid": _rows_of(hybrid),
}


def mean_of(
    scheme: str, load: int, stragglers: Stragglers, workers: int, trials: int, seed: int = 0
) -> Iteration:
    """The mean over iterations: seconds, and messages rounded."""
    found = [
        SCHEMES[scheme](load, task_s, stragglers.message_s)
        for task_s in stragglers.task_s(workers, trials, seed)
    ]
    return Iteration(fmean(one.seconds for one in found), round(fmean(one.messages for one in found)))


#: Those that are exact; of nested and hybrid codes, which know a sum no sooner than uncoded messages, none.
EXACT = ("uncoded, one shard", "uncoded, messages", "GC", "LCC", "LCC, messages")


def choose(
    stragglers: Stragglers,
    workers: int,
    loads: Sequence[int],
    seed: int = 1,
    schemes: Sequence[str] = EXACT,
) -> tuple[str, int]:
    """The scheme and the load that are quickest over 100 iterations of this model; of equals the first."""
    tried = {
        (scheme, load): mean_of(scheme, load, stragglers, workers, 100, seed).seconds
        for scheme in schemes
        for load in loads
    }
    return min(tried, key=tried.__getitem__)


def fitted(task_s: Sequence[float], message_s: Sequence[float]) -> Stragglers:
    """The model of measured times: the likeliest `alpha` and `mu`, and the mean of messages.

    Args:
      task_s: seconds per shard, one for each worker and iteration; at least one.
      message_s: seconds of messages; at least one.
    """
    alpha = min(task_s)
    beyond = fmean(task_s) - alpha
    return Stragglers(alpha, 1 / max(beyond, 1e-9 * max(alpha, 1e-9)), fmean(message_s))
