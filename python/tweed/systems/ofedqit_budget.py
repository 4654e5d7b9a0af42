"""How to spend a budget of bytes in OFedQIT: which p, L, s and b. Pure.

The regret of online gradient descent grows as the square root of the summed squared lengths of the gradients
that are used. With N clients, mean gradient g, variance V of one client's gradient per slot, rounds of L
slots, probability p, and a quantiser that makes squared lengths 1 + w times as large on average, that is per
slot

    L |g|² + ((1 + w) (V + L |g|²) / p - L |g|²) / N.

A budget of B bits per number and slot, at c bits per number of a message, gives p = B L / c. So the quantiser
that is best is that with the least (1 + w) c, whatever the rest; and the best round has L = sqrt((1 + w) c V
/ (B N)) / |g| slots. Own derivation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from tweed.errors import UsageError
from tweed.systems.ofedqit_online import Split

LEVELS = (1, 3, 7, 15, 31)
#: Numbers that share a norm.
BLOCKS = (8, 16, 32, 64, 128, 256, 512)
ROUNDS = (1, 2, 3, 5, 10)
#: Rounds that a stream must have at least. A guess: the formula knows of noise alone.
STEPS = 100


@dataclass(frozen=True, slots=True)
class Score:
    """A split and what it is expected to cost: the summand above, in units of |g|²."""

    split: Split
    cost: float


def growth(gradients: Tensor, levels: int, block: int) -> float:
    """1 + w: how much longer squared the quantised `gradients`, `[count, numel]`, are than themselves, on
    average."""
    short = -gradients.shape[1] % block
    blocks = torch.nn.functional.pad(gradients, (0, short)).reshape(len(gradients), -1, block)
    norms = blocks.norm(dim=2, keepdim=True)
    places = blocks.abs() * (levels / norms.clamp_min(1e-30))
    below = places.floor()
    squares = below.square() + (places - below) * (2 * below + 1)
    said = (squares * (norms / levels).square()).sum()
    return float(said / blocks.square().sum().clamp_min(1e-30))


def choose(share: float, clients: int, gradients: Tensor, slots: int) -> Score:
    """The best split of a budget, among those with `STEPS` rounds or more: fewer get an optimizer nowhere.

    Args:
      share: of OFedAvg's traffic.
      clients: how many.
      gradients: `[count, numel]` of single clients at one model, count 2 or more; samples.
      slots: length of the stream.

    Raises: UsageError if no split fits the budget.
    """
    rounds = [every for every in ROUNDS if every == 1 or every * STEPS <= slots]
    forms = {form: growth(gradients, *form) for form in product(LEVELS, BLOCKS)}
    scores = [score for every in rounds for score in _scores(share, clients, gradients, every, forms)]
    if not scores:
        raise UsageError(
            f"no split of OFedQIT has {share:.2%} of the full traffic: that is below a bit per round"
        )
    return min(scores, key=lambda score: score.cost)


def _scores(
    share: float, clients: int, gradients: Tensor, every: int, grows: Mapping[tuple[int, int], float]
) -> Iterator[Score]:
    numel = gradients.shape[1]
    mean_square, variance = _moments(gradients)
    for (levels, block), grown in grows.items():
        whole = Split(1.0, every, levels, -(-numel // block))
        probability = min(1.0, share / whole.share(numel))
        if probability * clients < 1:
            continue  # rounds in which nobody sends
        split = Split(probability, every, levels, whole.pieces)
        one = grown * (variance + every * mean_square) / probability - every * mean_square
        yield Score(split, (every * mean_square + one / clients) / mean_square)


def _moments(gradients: Tensor) -> tuple[float, float]:
    """Unbiased estimates of |g|² and V; the first at least a hundredth of the second divided by the count."""
    count = len(gradients)
    mean = gradients.mean(dim=0)
    variance = float((gradients - mean).square().sum()) / (count - 1)
    return max(float(mean.square().sum()) - variance / count, variance / count / 100), variance
