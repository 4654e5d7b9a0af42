"""Members die and come back, and the model is the one of a run in which nobody dies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.simulate.elastic import Run, Training, train

SAMPLES, NUMEL, BATCH = 60, 5, 12
X = torch.randn(SAMPLES, NUMEL, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tanh(X @ torch.arange(NUMEL, dtype=torch.float64))


def gradient(params: Tensor, samples: Sequence[int]) -> Tensor:
    """Of least squares behind a bend, summed."""
    x, out = X[list(samples)], torch.tanh(X[list(samples)] @ params)
    return ((out - Y[list(samples)]) * (1 - out**2)) @ x


def trained(kills: int, seed: int, steps: int = 50, members: int = 6, lr: float = 0.5) -> Run:
    def sgd(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=lr, momentum=0.9)

    sampler = Sampler(GlobalOrder(SAMPLES, seed=1), BATCH)
    training = Training(gradient, torch.zeros(NUMEL, dtype=torch.float64), sgd, sampler)
    return train(training, members=members, steps=steps, kills=kills, seed=seed)


def test_after_kills_at_any_moment_the_model_is_that_of_a_run_without() -> None:
    undisturbed = trained(0, 0)
    for seed in range(3):
        run = trained(40, seed)
        assert run.kills > 20 and run.taken > 2 and run.anew > 2 and run.epochs > 20
        assert torch.allclose(run.params, undisturbed.params, rtol=0, atol=1e-12)
        assert run.counts == undisturbed.counts
    # 50 steps of 12 samples are 10 passes: each sample once in each.
    assert set(undisturbed.counts.values()) == {50 * BATCH // SAMPLES}
