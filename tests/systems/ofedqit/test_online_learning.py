"""Online federated learning: messages that are right on average, bytes, exactness, the choice of a split."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD

from tweed.cadence import Intermittent, Joined
from tweed.compress import Levels, Spec, Turn
from tweed.data.streams import Learner, convolutions, lines, perceptron, regression
from tweed.errors import UsageError
from tweed.systems import system
from tweed.systems.ofedqit.online_learning import Split, averaged, choose, growth, learn

CLIENTS, NUMEL = 8, 20


def sgd(params: list[Tensor]) -> SGD:
    return SGD(params, lr=0.5)


@pytest.mark.parametrize("learner", [perceptron(4), convolutions()], ids=["perceptron", "convolutions"])
def test_each_client_has_the_gradient_of_its_own_sample(learner: Learner) -> None:
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([3, 1, 4])
    _, gradients = learner.gradients(learner.start, x, y)
    for client in range(3):
        params = learner.start.clone().requires_grad_()
        loss = learner.losses(learner.outputs(params[None], x[client : client + 1]), y[client : client + 1])
        (alone,) = torch.autograd.grad(loss.sum(), params)
        torch.testing.assert_close(gradients[client], alone, atol=1e-5, rtol=1e-4)


def test_the_convolutions_are_torchs() -> None:
    learner = convolutions()
    assert learner.start.numel() == 34_826
    x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    sizes = [9 * 32, 32, 288 * 64, 64, 16_000, 10]
    w1, b1, w2, b2, w3, b3 = learner.start.split(sizes)  # type: ignore[no-untyped-call]
    first = torch.relu(F.max_pool2d(F.conv2d(x, w1.view(9, 32).T.reshape(32, 1, 3, 3), b1), 2))
    second = torch.relu(F.max_pool2d(F.conv2d(first, w2.view(288, 64).T.reshape(64, 32, 3, 3), b2), 2))
    expected = second.reshape(2, -1) @ w3.view(1600, 10) + b3
    torch.testing.assert_close(
        learner.outputs(learner.start.expand(2, -1), x), expected, atol=1e-5, rtol=1e-4
    )


def test_messages_are_right_on_average() -> None:
    """Draws and levels together: the mean of what is summed is the sum over all clients."""
    draws, probability = 4_000, 0.5
    random = torch.Generator().manual_seed(3)
    values = torch.randn(CLIENTS, NUMEL, generator=random)
    cadence, levels, spec = (
        Intermittent(probability=probability),
        Levels(1, 5, bidirectional=False),
        Spec(((NUMEL,),)),
    )
    paces = [cadence.handle(Joined(rank, CLIENTS), cadence.start(), 0.0) for rank in range(CLIENTS)]
    sums = torch.zeros(draws, NUMEL)
    for draw in range(draws):
        for rank in range(CLIENTS):
            decision, paces[rank] = cadence.poll(paces[rank], 0.0)
            if not decision.silent:
                turn = Turn(spec, draw, 0, rank, CLIENTS)
                packet, _ = levels.encode(values[rank] / probability, None, turn)
                packet.add_to(sums[draw])
    off = (sums.mean(dim=0) - values.sum(dim=0)) / (sums.std(dim=0) / draws**0.5)
    assert off.abs().max() < 4.5, off


@pytest.mark.parametrize("split", [Split(0.5, 2, 1, 4), Split(1.0, 1, 7, 3), Split(0.7, 3, None)], ids=repr)
def test_bytes_are_those_of_the_formula(split: Split) -> None:
    outcome = learn(regression(NUMEL), lines(CLIENTS, 30, NUMEL, 0), split, sgd)
    bits = outcome.messages * split.message_bits(NUMEL)
    assert abs(outcome.sent_bytes - bits / 8) <= outcome.messages  # a message is a whole number of bytes
    assert len(outcome.losses) == 30


def test_without_quantiser_draws_and_rounds_it_is_plain_averaging() -> None:
    stream, learner = lines(CLIENTS, 20, NUMEL, 1), regression(NUMEL)
    assert torch.equal(learn(learner, stream, Split(), sgd).params, averaged(learner, stream, sgd))


def test_the_growth_of_squares_is_what_the_quantiser_does() -> None:
    values = torch.randn(1, 640, generator=torch.Generator().manual_seed(5))
    levels, spec = Levels(3, 64, bidirectional=False), Spec(((640,),))
    squares = 0.0
    for step in range(400):
        out = torch.zeros(640)
        packet, _ = levels.encode(values[0].clone(), None, Turn(spec, step))
        packet.add_to(out)
        squares += float(out.square().sum())
    assert abs(squares / 400 / float(values.square().sum()) / growth(values, 3, 64) - 1) < 0.03


@pytest.mark.parametrize("share", [0.3, 0.05, 0.01])
def test_a_choice_stays_within_its_budget(share: float) -> None:
    gradients = torch.randn(50, 3_000, generator=torch.Generator().manual_seed(6)) + 0.1
    score = choose(share, 100, gradients, 1_000)
    assert score.split.share(3_000) <= share * (1 + 1e-9)
    assert score.split.levels is not None and score.split.levels > 1


def test_a_budget_of_next_to_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no split"):
        choose(1e-5, 100, torch.randn(20, 100, generator=torch.Generator().manual_seed(7)), 1_000)


def test_the_report_of_nothing_has_goals_all_the_same() -> None:
    assert system("ofedqit").study([]).sections[0].title == "Goals"
