"""What hostile workers send."""

from __future__ import annotations

import pytest
import torch

from tests.simulate.problem import loss, perceptron, sgd
from tweed.aggregate import Krum, Mean, Median, TrimmedMean
from tweed.simulate.attacks import (
    Alie,
    Attack,
    Constant,
    HostileLayers,
    Ipm,
    LabelFlip,
    Mimic,
    Noise,
    NoiseAsLong,
    SignFlip,
    Sleeper,
    Tuned,
    hiding,
)
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy

OWN = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
HONEST = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0]])
ATTACKS: list[Attack] = [
    SignFlip(), LabelFlip(), Noise(), NoiseAsLong(), Alie(), Ipm(), Mimic(), Constant(), Sleeper(Noise()),
    Tuned(Alie(), Krum(1)), Tuned(Ipm(), Median()),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_each_hostile_worker_sends_one_contribution_again_the_same(attack: Attack) -> None:
    own, honest = OWN.clone(), HONEST.clone()
    sent = attack.contributions(own, honest, 3)
    assert sent.shape == own.shape
    assert torch.equal(own, OWN) and torch.equal(honest, HONEST)
    assert torch.equal(sent, attack.contributions(OWN, HONEST, 3))


def test_attacks_are_what_their_papers_say() -> None:
    assert torch.equal(SignFlip(10.0).contributions(OWN, HONEST, 0), -10 * OWN)
    assert torch.equal(Ipm(0.5).contributions(OWN, HONEST, 0), torch.tensor([[-1.0, -1.0]] * 2))
    assert torch.equal(Mimic(2).contributions(OWN, HONEST, 0), HONEST[[2, 2]])
    deviation = HONEST.std(dim=0, correction=0)
    torch.testing.assert_close(Alie(2.0).contributions(OWN, HONEST, 0)[0], HONEST.mean(0) - 2 * deviation)
    assert torch.equal(LabelFlip().labels(torch.tensor([0, 3, 9])), torch.tensor([9, 6, 0]))
    noise = Noise(200.0).contributions(torch.zeros(2, 50_000), HONEST, 1)
    assert abs(float(noise.std()) - 200) < 2 and not torch.equal(noise[0], noise[1])
    long = NoiseAsLong(8.0).contributions(OWN, HONEST, 0)
    torch.testing.assert_close(long.norm(dim=1), 8 * OWN.norm(dim=1))


def test_a_share_of_layers_is_hostile_whoever_sends_them_and_the_others_are_not_touched() -> None:
    attack, value, sizes, count = (
        HostileLayers(SignFlip(6.0), 0.2, seed=1),
        torch.arange(1.0, 7.0),
        [3, 1, 2],
        0,
    )
    for member in range(20):
        for number in range(20):
            sent = attack.spoilt(value, sizes, member, number)
            assert torch.equal(sent, attack.spoilt(value, sizes, member, number))
            for mine, own in zip(torch.split(sent, sizes), torch.split(value, sizes), strict=True):
                hostile = torch.equal(mine, -6 * own)
                assert hostile or torch.equal(mine, own)
                count += hostile
    assert abs(count / 1200 - 0.2) < 0.05 and value.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    noisy = HostileLayers(Noise(1.0), 1.0).spoilt(torch.zeros(6), [3, 3], 0, 0)
    assert not torch.equal(noisy[:3], noisy[3:])  # each layer has noise of its own


def test_a_little_is_enough_counts_those_it_needs() -> None:
    """The paper's example: of 50 workers 24 are hostile, and two honest ones must be farther out."""
    assert round(hiding(26, 24), 2) == 1.43


def test_a_sleeper_wakes() -> None:
    attack = Sleeper(SignFlip(), wakes=2)
    sent = [attack.contributions(OWN, HONEST, number) for number in range(4)]
    assert [torch.equal(one, OWN) for one in sent] == [True, True, False, False]


def test_what_is_tuned_harms_at_least_as_much_as_any_strength() -> None:
    torch.manual_seed(1)
    honest, own = torch.randn(9, 40), torch.randn(3, 40)
    rule = TrimmedMean(3)
    tuned = Tuned(Alie(), rule, (0.5, 1.0, 2.0, 30.0))
    harm = {}
    for strength in tuned.strengths:
        sent = Alie(strength).contributions(own, honest, 0)
        harm[strength] = float((tuned.result(honest, sent) - honest.mean(dim=0)).norm())
    best = max(harm, key=harm.__getitem__)
    assert torch.equal(tuned.contributions(own, honest, 0), Alie(best).contributions(own, honest, 0))


def test_a_rule_keeps_training_where_the_mean_does_not() -> None:
    found = {}
    for rule in (Mean(), Median()):
        workers = Workers(perceptron(), sgd, Strategy(aggregate=rule), 7, hostile=2, attack=Constant(1e6))
        for step in range(10):
            workers.step(loss(step))
        found[rule] = float(workers.average()(torch.ones(1, 8)).detach().abs().max())
    assert found[Median()] < 100 < found[Mean()]
