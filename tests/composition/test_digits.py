"""Digits are learned as well through a server, in few bits of few values, over a network that loses them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn

import tweed
from tweed.recipes.named import named_strategy
from tweed.testbed import Network, run_ranks
from tweed.train.shard import Shard

STEPS, BATCH = 250, 32
PLAIN = "every_step"
COMPOSED = "sparse(density=0.1, bits=8) + ltp(server=0, slack_s=0.002)"


class Learned(NamedTuple):
    """How a rank ended: the share of test samples that it gets right; bytes of contributions, and lost."""

    accuracy: float
    contributed: int
    lost: int


def learns(rank: int, size: int, strategy: str, seed: int) -> Learned:
    """Trains a perceptron wide enough that packets have many datagrams: a small packet goes whole."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
    model.append(nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chosen = named_strategy(strategy)
    serves = chosen.collective is not None
    shard = Shard("digits", BATCH, max(0, rank - serves), size - serves, seed=seed)
    run = tweed.attach(model, optimizer, chosen)
    for step in range(STEPS):
        if not run.serves:
            shard.loss(model, shard.batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    run.finish()
    _, right, count = shard.scores(model, 360).tolist()
    run.detach()
    return Learned(right / count, run.stats.bytes_contributed, run.stats.bytes_lost)


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
def test_a_lossy_server_learns_digits_within_a_point_of_plain() -> None:
    network = Network(rate_bits=2e8, loss=0.01)
    plain = run_ranks(learns, 2, PLAIN, 0, backend="tweed")
    composed = run_ranks(learns, 3, COMPOSED, 0, backend="tweed", network=network)
    lost, contributed = (sum(getattr(one, name) for one in composed) for name in ("lost", "contributed"))
    print(
        f"plain {plain[0].accuracy:.2%}, {COMPOSED} {composed[0].accuracy:.2%}; lost {lost} of {contributed}"
    )
    assert lost > 0
    assert composed[0].accuracy >= plain[0].accuracy - 0.01
    assert {one.accuracy for one in composed} == {composed[0].accuracy}
