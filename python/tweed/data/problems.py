"""Optimisation problems for ranks: sums of functions, one per rank, in the style of LAG's synthetic problems.

All in numpy and float64; a seed gives the same problem everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tweed.data.partition import Partition, deal
from tweed.data.sets import load

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """A sum of functions of `numel` values, one per rank.

    Attributes:
      ranks, numel: sizes.
      rate: gradient descent's step on the sum: 1 / L.
      gradients: of all ranks at a point and in an iteration, `[ranks, numel]`; the iteration draws the batch,
        if there is one.
      gap: how far a point is from the goal: the sum above its least value, or another loss.
      start: `[numel]`.
    """

    ranks: int
    numel: int
    rate: float
    gradients: Callable[[Array, int], Array]
    gap: Callable[[Array], float]
    start: Array


def _scaled(random: np.random.Generator, ranks: int, growth: float) -> Array:
    """`[ranks, samples, numel]`: data whose squares have `growth ** (rank + 1)` as the largest eigenvalue."""
    data = random.normal(size=(ranks, 50, 50))
    for rank in range(ranks):
        data[rank] *= np.sqrt(growth ** (rank + 1)) / np.linalg.norm(data[rank], 2)
    return data


def linear(ranks: int, growth: float, seed: int = 0) -> Problem:
    """Least squares; the smoothness of rank m's part is `growth ** m`."""
    random = np.random.default_rng(seed)
    data = _scaled(random, ranks, growth)
    wanted = data @ random.normal(size=50) + 0.1 * random.normal(size=(ranks, 50))
    hessians = data.transpose(0, 2, 1) @ data
    targets = (data.transpose(0, 2, 1) @ wanted[:, :, None])[:, :, 0]
    best = np.linalg.solve(hessians.sum(axis=0), targets.sum(axis=0))
    whole = hessians.sum(axis=0)

    def gap(x: Array) -> float:
        away = x - best
        return float(away @ whole @ away) / 2

    rate = 1 / float(np.linalg.norm(whole, 2))
    return Problem(ranks, 50, rate, lambda x, step: hessians @ x - targets, gap, np.zeros(50))


def _labels(random: np.random.Generator, data: Array) -> Array:
    labels: Array = np.sign(data @ random.normal(size=50) + 0.1 * random.normal(size=data.shape[:2]))
    return labels


def logistic(ranks: int, growth: float, seed: int = 0, penalty: float = 1e-3) -> Problem:
    """Logistic regression with an l2 penalty in each rank's part."""
    random = np.random.default_rng(seed)
    data = 2 * _scaled(random, ranks, growth)
    signed = data * _labels(random, data)[:, :, None]
    flat = signed.reshape(-1, 50)

    def gradients(x: Array, step: int) -> Array:
        pull = -1 / (1 + np.exp(signed @ x))
        found: Array = (pull[:, None, :] @ signed)[:, 0] + penalty * x
        return found

    def value(x: Array) -> float:
        return float(np.logaddexp(0, -(flat @ x)).sum() + ranks * penalty / 2 * (x @ x))

    best = np.zeros(50)
    for _ in range(60):
        odds = 1 / (1 + np.exp(flat @ best))
        hessian = (flat * (odds * (1 - odds))[:, None]).T @ flat + ranks * penalty * np.eye(50)
        best = best - np.linalg.solve(hessian, gradients(best, 0).sum(axis=0))
    least = value(best)
    rate = 1 / (float(np.linalg.norm(flat, 2)) ** 2 / 4 + ranks * penalty)
    return Problem(ranks, 50, rate, gradients, lambda x: value(x) - least, np.zeros(50))


def robust(ranks: int, growth: float, seed: int = 0) -> Problem:
    """Regression with the loss r² / (1 + r²), which is not convex. `gap` is the squared length of the
    gradient."""
    random = np.random.default_rng(seed)
    data = _scaled(random, ranks, growth)
    wanted = data @ random.normal(size=50) + random.standard_t(2, size=(ranks, 50))

    def gradients(x: Array, step: int) -> Array:
        rest = data @ x - wanted
        found: Array = ((2 * rest / (1 + rest**2) ** 2)[:, None, :] @ data)[:, 0]
        return found

    rate = 1 / (2 * float(np.linalg.norm(data.reshape(-1, 50), 2)) ** 2)
    return Problem(
        ranks,
        50,
        rate,
        gradients,
        lambda x: float(np.square(gradients(x, 0).sum(axis=0)).sum()),
        np.zeros(50),
    )


def network(ranks: int, batch: int, lr: float = 0.1, hidden: int = 32, seed: int = 0) -> Problem:
    """A perceptron with one hidden layer on the digits, with stochastic gradients; `gap` is the cross entropy
    of held-out pictures.

    Rank m's part is the mean loss of its batch divided by the ranks. Ranks have few classes each, drawn by
    Dirichlet's distribution; every iteration draws `batch` samples per rank.
    """
    arrays = load("digits")
    train, test = arrays.train.x.reshape(-1, 64) / 16.0, arrays.test.x.reshape(-1, 64) / 16.0
    hands = deal(arrays.train.y.astype(np.int64), ranks, Partition.parse("dirichlet:0.3"), seed=seed)
    random = np.random.default_rng([1, seed])
    first, second = (
        random.normal(size=(65, hidden)) / 8,
        random.normal(size=(hidden + 1, 10)) / np.sqrt(hidden),
    )

    def parts(x: Array) -> tuple[Array, Array]:
        return x[: 65 * hidden].reshape(65, hidden), x[65 * hidden :].reshape(hidden + 1, 10)

    def gradients(x: Array, step: int) -> Array:
        draws = np.random.default_rng([2, seed, step])
        picked = np.stack([draws.choice(hand, batch) for hand in hands])
        return _backward(parts(x), _with_ones(train[picked]), arrays.train.y[picked]) / ranks

    def loss(x: Array) -> float:
        scores = _forward(parts(x), _with_ones(test[None]))[1][0]
        most = scores.max(axis=1)
        right = scores[np.arange(len(scores)), arrays.test.y]
        return float((np.log(np.exp(scores - most[:, None]).sum(axis=1)) + most - right).mean())

    start = np.concatenate([first.ravel(), second.ravel()])
    return Problem(ranks, start.size, lr, gradients, loss, start)


def _with_ones(x: Array) -> Array:
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)


def _forward(layers: tuple[Array, Array], inputs: Array) -> tuple[Array, Array]:
    active = _with_ones(np.maximum(inputs @ layers[0], 0))
    return active, active @ layers[1]


def _backward(layers: tuple[Array, Array], inputs: Array, labels: NDArray[np.uint8]) -> Array:
    """Gradients of the mean cross entropy, `[ranks, numel]`; inputs `[ranks, batch, 65]`."""
    active, scores = _forward(layers, inputs)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    odds -= np.eye(10)[labels]
    odds /= inputs.shape[1]
    back = (odds @ layers[1][:-1].T) * (active[..., :-1] > 0)
    first, second = inputs.transpose(0, 2, 1) @ back, active.transpose(0, 2, 1) @ odds
    return np.concatenate([first.reshape(len(inputs), -1), second.reshape(len(inputs), -1)], axis=1)


#: By name, the problem of a seed; M ranks, of which rank m's part has so much smoothness.
PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "linear, 1.69^m, M=9": lambda seed: linear(9, 1.69, seed),
    "linear, 1.69^m, M=18": lambda seed: linear(18, 1.69, seed),
    "linear, 1.3^m, M=9": lambda seed: linear(9, 1.3, seed),
    "linear, 1.3^m, M=18": lambda seed: linear(18, 1.3, seed),
    "linear, 1.1^m, M=20": lambda seed: linear(20, 1.1, seed),
    "linear, 1.1^m, M=40": lambda seed: linear(40, 1.1, seed),
    "linear, equal, M=20": lambda seed: linear(20, 1.0, seed),
    "logistic, 1.3^m, M=18": lambda seed: logistic(18, 1.3, seed, penalty=0.1),
    "logistic, equal, M=18": lambda seed: logistic(18, 1.0, seed, penalty=0.1),
    "not convex, 1.3^m, M=18": lambda seed: robust(18, 1.3, seed),
}
