"""Members die and come back, and the model is the one of a run in which nobody dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.errors import UsageError
from tweed.simulate.elastic import Run, Training, train
from tweed.testbed.faults import Plan

SAMPLES, NUMEL, BATCH = 60, 5, 12
X = torch.randn(SAMPLES, NUMEL, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tanh(X @ torch.arange(NUMEL, dtype=torch.float64))


def gradient(params: Tensor, samples: Sequence[int]) -> Tensor:
    """Of least squares behind a bend, summed."""
    rows = torch.tensor([*samples], dtype=torch.int64)
    x, y = X[rows], Y[rows]
    out = torch.tanh(x @ params)
    return ((out - y) * (1 - out**2)) @ x


def trained(plan: Plan, seed: int = 0, steps: int = 50, members: int = 6, lr: float = 0.5) -> Run:
    def sgd(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=lr, momentum=0.9)

    sampler = Sampler(GlobalOrder(SAMPLES, seed=1), BATCH)
    training = Training(gradient, torch.zeros(NUMEL, dtype=torch.float64), sgd, sampler)
    return train(training, members=members, steps=steps, faults=plan.by_step(), seed=seed)


def test_after_kills_at_any_moment_the_model_is_that_of_a_run_without() -> None:
    undisturbed = trained(Plan())
    for seed in range(3):
        run = trained(Plan.drawn(6, {"kill": 40}, seed=seed, mean_steps=0.5), seed)
        assert run.kills > 15 and run.taken > 2 and run.anew > 2 and run.epochs > 20
        assert torch.allclose(run.params, undisturbed.params, rtol=0, atol=1e-12)
        assert run.counts == undisturbed.counts
    # 50 steps of 12 samples are 10 passes: each sample once in each.
    assert set(undisturbed.counts.values()) == {50 * BATCH // SAMPLES}


def test_all_kinds_of_faults_in_one_run() -> None:
    plan = Plan.drawn(6, {"kill": 8, "stop": 8, "cut": 8}, seed=5, mean_steps=1)
    run = trained(plan, 5, steps=80)
    assert run.kills == 8
    assert run.evicted == 4, "long stops evict; short ones and cuts do not"
    assert torch.allclose(run.params, trained(Plan(), steps=80).params, rtol=0, atol=1e-12)


def test_cuts_between_two_cost_no_member() -> None:
    plan = Plan.drawn(7, {"cut": 60}, seed=1, mean_steps=2.25)
    run = trained(plan, 1, steps=150, members=7)
    assert run.evicted == 0 and run.epochs > 20


class Counting(torch.optim.Optimizer):
    """Adds up in how many updates each sample was: their gradient is one where they are."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        (param,) = self.param_groups[0]["params"]
        param += (param.grad / param.grad[param.grad > 0].min()).round()


def counting(plan: Plan, seed: int, steps: int, members: int) -> Run:
    """With a batch per member; the parameters are how often each sample is in an update."""

    def one_each(params: Tensor, samples: Sequence[int]) -> Tensor:
        return torch.bincount(torch.tensor([*samples], dtype=torch.int64), minlength=SAMPLES).double()

    sampler = Sampler(GlobalOrder(SAMPLES, seed=1), 3, per_member=True)
    training = Training(one_each, torch.zeros(SAMPLES, dtype=torch.float64), Counting, sampler)
    return train(training, members=members, steps=steps, faults=plan.by_step(), seed=seed)


def each_comes_once_per_pass(run: Run) -> None:
    """But those that come in the next step: by what is in the updates, and not by who was to compute what."""
    order, later = run.sampler.order, {*run.sampler.again}
    due = Counter(order.samples([place for place in range(run.sampler.cursor) if place not in later]))
    assert run.params.tolist() == [due[sample] for sample in range(SAMPLES)]
    assert run.counts == due
    for begin in range(0, min(later, default=run.sampler.cursor) - SAMPLES + 1, SAMPLES):
        assert sorted(order.samples(range(begin, begin + SAMPLES))) == [*range(SAMPLES)]


def test_with_a_batch_per_member_each_sample_comes_once_per_pass_whoever_dies() -> None:
    runs = []
    for seed in range(3):
        plan = Plan.drawn(6, {"kill": 40, "stop": 4, "cut": 8}, seed=seed, mean_steps=0.5)
        runs.append(run := counting(plan, seed, steps=60, members=6))
        assert run.kills > 15
        assert len(run.sampler.again) <= 3 * 6 and run.sampler.cursor > 10 * SAMPLES
        each_comes_once_per_pass(run)
    assert sum(run.taken for run in runs) > 6 and sum(run.anew for run in runs) > 6


def test_two_at_once_are_killed_within_one_step() -> None:
    run = trained(Plan.parse("after 3 steps kill 0,4"), steps=8)
    assert (run.kills, run.taken + run.anew) == (2, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "after 1 step clock 2 by 5s",
            "members, 0 to 5, have kill, stop, cut, not `after 1 step clock",
        ),
        ("after 1 step kill 6", "not `after 1 step kill 6`"),
        ("after 1s kill 0", "no seconds between steps"),
    ],
)
def test_what_virtual_members_cannot_have_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        trained(Plan.parse(text))
