"""Nothing leaves a worker without noise: what members send does not depend on their data, under any fault."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.simulate.problem import SIZE, batch, perceptron
from tests.simulate.test_hub_training import conditions, descent
from tweed.aggregate import All, Cache, Each
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import (
    Chain,
    ClippedNoise,
    Direct,
    ErrorFeedback,
    LocalResidual,
    Quantise,
    RandomTensors,
    TopK,
)
from tweed.errors import StrategyError
from tweed.hub.machine import Offer, Payload
from tweed.order import BoundedDelay
from tweed.simulate.hub_training import HubTraining, Members
from tweed.strategy import Strategy

#: Noise beside which a contribution is nothing at all.
DEAF = ClippedNoise(1.0)
object.__setattr__(DEAF, "noise", 1e15)
FEW = Chain(TopK(0.2), Quantise(8, nearest=True))
SKIPS = LocalResidual(RandomTensors(0.3, skip_all=0.2))


def strategies(privacy: Any) -> dict[str, Strategy]:
    hub = Hub(0, Each(), privacy=privacy)
    steps = LocalSteps(2)
    return {
        "gradients": Strategy(collective=hub),
        "differences": Strategy("difference", steps, collective=Hub(0, Cache(2), privacy=privacy)),
        "sparse, fed back": Strategy(compress=ErrorFeedback(FEW), collective=hub, order=BoundedDelay(1)),
        "8 bits": Strategy(compress=Direct(Quantise(8)), collective=Hub(0, All(), privacy=privacy)),
        "skipped layers": Strategy("difference", steps, SKIPS, collective=hub, order=BoundedDelay(1)),
    }


def sent(strategy: Strategy, data: int, spoilt: bool = False, **faults: float) -> list[tuple[Any, ...]]:
    """All that members send, in its order, where each has these data; with cuts, crashes and drops."""

    def loss(member: int, model: nn.Module, number: int) -> Tensor:
        x, y = batch(data + member, number)
        found = nn.functional.cross_entropy(model(x), y) * (1 + data)
        return found / 0 if spoilt and number % 5 == member else found

    often = replace(conditions(), **{"cuts": 0.2, "away_s": 0.3, "crashes": 0.5, **faults}, seed=4)
    who = Members(loss, descent, samples=lambda member: 10.0 + data)
    training = HubTraining(perceptron(), strategy, often, who, lambda params: descent(params, 1e-16))
    found: list[tuple[Any, ...]] = []
    send = training.run._send

    def heard(number: int, message: Any, numbytes: int | None = None) -> None:
        plain = message.value.tolist() if isinstance(message, Payload) else message
        found.append((number, type(message), message.number if hasattr(message, "number") else 0, plain))
        send(number, message, numbytes)

    training.run._send = heard  # type: ignore[method-assign]
    training.run.until(updates=60 if faults else 25, seconds=300)
    return found


@pytest.mark.parametrize("name", strategies(None))
def test_what_is_sent_does_not_depend_on_the_data(name: str) -> None:
    strategy = strategies(DEAF)[name]
    first = sent(strategy, 0)
    assert sum(one[1] is Payload for one in first) > 20
    assert repr(sent(strategy, 7)) == repr(first)  # NaN is no equal of NaN
    assert repr(sent(strategy, 3, spoilt=True)) == repr(first)
    bare = strategies(None)[name]
    assert repr(sent(bare, 7)) != repr(sent(bare, 0))


@pytest.mark.parametrize("name", strategies(None))
@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_what_is_sent_again_is_the_same_and_no_noise_comes_twice(name: str, crashes: float) -> None:
    """A member that has forgotten all computes its task again, which is another contribution."""
    by_task: dict[Any, list[Any]] = defaultdict(list)
    strategy = strategies(ClippedNoise(0.1, 2.0))[name]
    for number, kind, task, plain in sent(strategy, 0, cuts=0.8, crashes=crashes):
        if kind in (Offer, Payload):
            by_task[number, kind, task].append(plain)
    if not crashes:
        assert any(len(again) > 1 for again in by_task.values())
        assert all(again[1:] == again[:-1] for again in by_task.values())
    payloads = [again[-1] for (_, kind, _), again in by_task.items() if kind is Payload]
    full = [str(plain) for plain in payloads if len(plain) > 16]  # not one of which all layers are skipped
    assert len(set(full)) == len(full) > 20


def test_contributions_are_cut_and_have_the_noise_that_is_asked_for() -> None:
    """Seen by who knows the noise: from the same source it is the same."""
    noise, clip = 0.5, 1e-2
    quiet, loud = (
        sent(Strategy(collective=Hub(0, All(), privacy=ClippedNoise(clip, size))), 0) for size in (0.0, noise)
    )
    values = [
        torch.tensor(plain, dtype=torch.uint8).view(torch.float32)
        for found in (quiet, loud)
        for _, kind, _, plain in found
        if kind is Payload
    ]
    half = len(values) // 2
    numel = len(values[0])
    assert all(float(value.norm()) <= clip * 1.00001 for value in values[:half])
    lengths = torch.stack([value.norm() for value in values[half + 5 :]])
    expected = clip * (1 + noise**2 * numel) ** 0.5
    assert abs(float(lengths.mean()) / expected - 1) < 0.1


def test_models_and_what_hides_nothing_are_refused() -> None:
    with pytest.raises(StrategyError, match="a model is not"):
        Strategy("model", LocalSteps(2), collective=Hub(0, privacy=ClippedNoise(1.0)))
    for wrong in (1.0, ClippedNoise):
        with pytest.raises(StrategyError, match="hides nothing"):
            Strategy(collective=Hub(0, privacy=wrong))


def test_a_hub_averages_each_layer_over_those_who_sent_it_and_what_was_not_sent_moves_its_member() -> None:
    """Gradients are ones: what members send of a layer is one length, whoever sends it."""

    def ones(member: int, model: nn.Module, number: int) -> Tensor:
        return sum((param.sum() for param in model.parameters()), start=torch.zeros(()))

    begun: list[Tensor] = []
    strategy = Strategy(
        "difference", LocalSteps(2), LocalResidual(RandomTensors(0.5)), collective=Hub(0, All())
    )
    training = HubTraining(
        perceptron(), strategy, conditions(), Members(ones, descent), lambda params: descent(params, 1.0)
    )
    inner = training._steps.run
    training._steps.run = lambda jobs: begun.extend(start for _, start in jobs) or inner(jobs)  # type: ignore
    start = torch.cat([param.detach().flatten() for param in perceptron().parameters()])
    training.run.until(updates=1)
    moved = start - torch.cat([param.detach().flatten() for param in training.model.parameters()])
    assert {round(value, 4) for value in moved.tolist()} <= {0.0, 0.2}  # not a part of 0.2
    assert 0 < float(moved.sum()) < 0.2 * moved.numel() or float(moved.min()) > 0.19
    training.run.until(updates=2)
    ahead = [(start - moved) - one for one in begun[SIZE : 2 * SIZE]]
    assert len(ahead) == SIZE and any(bool(one.any()) for one in ahead)
    for one in ahead:
        layers = torch.split(one, list(training._newest.spec.sizes))
        assert all({round(value, 4) for value in layer.tolist()} in ({0.0}, {0.2}) for layer in layers)
