"""Training behind a virtual hub, beside plain loops of torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.simulate.problem import SIZE, batch, numbers, perceptron
from tweed.aggregate import (
    All,
    Cache,
    Each,
    Krum,
    Mean,
    Median,
    QFair,
    Quorum,
    Reason,
    Round,
    Zeno,
    ZenoPlusPlus,
    ZenoPS,
    ZenoPSAsync,
)
from tweed.cadence import EveryStep, LocalSteps
from tweed.collective import Hub
from tweed.compress import Chain, Direct, ErrorFeedback, Identity, Quantise, Relaxing, TopK
from tweed.compress.base import Spec
from tweed.errors import StrategyError, UsageError
from tweed.hub.wire.form import ModelForm
from tweed.order import BoundedDelay, FirstIn
from tweed.recipes import mlfabric, teasq, zeno_ps
from tweed.simulate.attacks import HostileLayers, Noise, SignFlip
from tweed.simulate.hub import Conditions
from tweed.simulate.hub_training import HubTraining, Members
from tweed.simulate.member_steps import SampleLoss
from tweed.strategy import Strategy

STEPS, LR = 6, 0.1


def batch_loss(member: int, model: nn.Module, number: int) -> Tensor:
    x, y = batch(member, number)
    return nn.functional.cross_entropy(model(x), y)


def descent(params: Any, lr: float = LR) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=lr)


def one(params: Any) -> torch.optim.Optimizer:
    return descent(params, 1.0)


def conditions(members: int = SIZE) -> Conditions:
    return Conditions(
        members,
        lambda member, task: 1.0 + member / 10,
        hub_rate=1e6,
        rates=lambda member: (1e4, 1e5),
        latency_s=0.01,
    )


def train(strategy: Strategy, updates: int = STEPS, optimizer: Any = one, **members: Any) -> HubTraining:
    who = Members(batch_loss, descent, **members)
    training = HubTraining(perceptron(), strategy, conditions(), who, optimizer)
    training.run.until(updates=updates, seconds=1000.0)
    return training


def test_in_step_it_is_synchronous_training() -> None:
    training = train(Strategy(collective=Hub(0, All())), optimizer=descent)
    model = perceptron()
    optimizer = descent(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(batch_loss(member, model, step) for member in range(SIZE)) / SIZE).backward()
        optimizer.step()
    torch.testing.assert_close(numbers(training.model), numbers(model))


@pytest.mark.parametrize("exchange", ["model", "difference"])
def test_averages_of_models_after_proximal_local_steps(exchange: Any) -> None:
    proximal = 0.7
    training = train(Strategy(exchange, LocalSteps(3, proximal=proximal), collective=Hub(0, All())))
    newest = numbers(perceptron())
    for step in range(STEPS):
        ends = []
        for member in range(SIZE):
            model = perceptron()
            nn.utils.vector_to_parameters(newest.clone(), model.parameters())
            optimizer = descent(model.parameters())
            for number in range(3 * step, 3 * step + 3):
                optimizer.zero_grad()
                here = nn.utils.parameters_to_vector(model.parameters())
                pull = proximal / 2 * (here - newest).square().sum()
                (batch_loss(member, model, number) + pull).backward()
                optimizer.step()
            ends.append(numbers(model))
        newest = torch.stack(ends).mean(0)
    torch.testing.assert_close(numbers(training.model), newest)


FEW = Chain(TopK(0.2), Quantise(8, nearest=True))
STRATEGIES = {
    "asynchronous": Strategy(collective=Hub(0)),
    "a cache, and sparse": Strategy(compress=ErrorFeedback(FEW), collective=Hub(0, Cache(2), tasks=3)),
    "rounds, models": Strategy("model", LocalSteps(2), collective=Hub(0, Round(2))),
    "8 bits both ways": Strategy(compress=Direct(Quantise(8)), collective=Hub(0, model=Quantise(8))),
    "relaxing": Strategy(compress=ErrorFeedback(Relaxing((FEW, TopK(0.5)), 2)), collective=Hub(0, Quorum(3))),
    "bounded delay": Strategy(collective=Hub(0), order=BoundedDelay(2)),
    "TEASQ-Fed": teasq(0, every=2, tasks=2),
    "MLfabric": mlfabric(most=4, at_once=2),
    "MLfabric, aggregators, 8 bits": mlfabric(most=4, aggregators=2, bits=8),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_members_learn(name: str) -> None:
    strategy = STRATEGIES[name]
    training = train(strategy, 60, one if strategy.exchange != "gradient" else descent)
    x, y = (torch.cat(parts) for parts in zip(*(batch(9, number) for number in range(20)), strict=True))
    with torch.no_grad():
        before, after = (float(nn.functional.cross_entropy(m(x), y)) for m in (perceptron(), training.model))
    assert after < 0.8 * before


def test_what_is_left_out_or_dropped_comes_later() -> None:
    """Gradients are ones: what the model has moved by, and what members still hold, is all they computed."""

    def ones(member: int, model: nn.Module, number: int) -> Tensor:
        return sum((param.sum() for param in model.parameters()), start=torch.zeros(()))

    strategy = Strategy(compress=ErrorFeedback(TopK(0.1)), collective=Hub(0), order=BoundedDelay(1))
    training = HubTraining(perceptron(), strategy, conditions(), Members(ones, descent), one)
    run = training.run
    run.until(updates=40)
    run._learn_begun()  # all that are at it
    counted = {each for step in run.steps for each in step}
    held = 0.0
    for number, (form, member) in enumerate(zip(training._forms, run._members, strict=True)):
        task = member.worker.last if member.worker.task is None else member.worker.task.number
        assert form._open is not None  # each has computed since it last heard what became of a task
        _, total, sent = form._open
        held += float((total - sent if (number, task) in counted else total).sum())
    moved = numbers(perceptron()) - numbers(training.model)
    assert any(member.worker.outcomes.get("LATE") for member in run._members)
    assert float(moved.sum()) + held == pytest.approx(sum(training._steps._batches) * moved.numel(), rel=1e-4)


@pytest.mark.parametrize("attack", [SignFlip(10.0), Noise(50.0)], ids=repr)
def test_a_rule_holds_against_hostile_members(attack: Any) -> None:
    losses = {}
    for rule in (Median(), Krum(1)):
        strategy = Strategy(collective=Hub(0, All()), aggregate=rule)
        training = train(strategy, 30, descent, hostile=1, attack=attack)
        with torch.no_grad():
            losses[rule] = float(batch_loss(3, training.model, 1000))
    plain = train(Strategy(collective=Hub(0, All())), 30, descent, hostile=1, attack=attack)
    with torch.no_grad():
        undefended = float(batch_loss(3, plain.model, 1000))
    assert max(losses.values()) < 1.2 and not undefended < 1.5


TRUSTED = [Zeno(3, lr=LR), ZenoPlusPlus(lr=LR, record=0.5), ZenoPS(2, LR, 2), ZenoPSAsync(2, LR)]


def test_zeno_ps_learns_with_hostile_layers_of_all_members() -> None:
    layers = HostileLayers(SignFlip(6.0), 0.2, seed=2)
    who = Members(batch_loss, descent, layers=layers)

    def trusted(model: nn.Module, number: int) -> Tensor:
        return sum((batch_loss(50 + one, model, number) for one in range(8)), start=torch.zeros(())) / 8

    found = {}
    for rule in (ZenoPS(2, LR, 2), Mean()):
        strategy = replace(zeno_ps(0, 2, LR, 2, skip_all=0.2), aggregate=rule)
        training = HubTraining(perceptron(), strategy, conditions(), who, one, trusted)
        training.run.until(updates=100)
        with torch.no_grad():
            found[rule] = float(batch_loss(9, training.model, 1000))
    with torch.no_grad():
        before = float(batch_loss(9, perceptron(), 1000))
    judged, undefended = found.values()
    assert judged < 0.7 * before and not undefended < 2 * judged


@pytest.mark.parametrize("rule", TRUSTED, ids=repr)
def test_with_trusted_samples_all_but_one_may_be_hostile(rule: Any) -> None:
    when = All() if isinstance(rule, Zeno) else Each()
    strategy = (
        Strategy("difference", LocalSteps(2), collective=Hub(0, when), aggregate=rule)
        if isinstance(rule, ZenoPS | ZenoPSAsync)
        else Strategy(collective=Hub(0, when), aggregate=rule)
    )
    who = Members(batch_loss, descent, hostile=3, attack=SignFlip(10.0))

    def trusted(model: nn.Module, number: int) -> Tensor:
        return sum((batch_loss(50 + one, model, number) for one in range(16)), start=torch.zeros(())) / 16

    hub = one if strategy.exchange == "difference" else descent
    training = HubTraining(perceptron(), strategy, conditions(), who, hub, trusted)
    training.run.until(updates=60)
    verdicts = [verdict for batch in training.verdicts for verdict in batch]
    hostile, honest = ([v.weight > 0 for v in verdicts if (v.sender > 0) is bad] for bad in (True, False))
    assert sum(hostile) < 0.05 * len(hostile) and sum(honest) > 0.5 * len(honest)
    with torch.no_grad():
        assert float(batch_loss(9, training.model, 1)) < float(batch_loss(9, perceptron(), 1))
    with pytest.raises(UsageError, match="judges by trusted samples"):
        HubTraining(perceptron(), strategy, conditions(), who, descent)


@pytest.mark.parametrize("rule", [Zeno(1, lr=0.5), ZenoPlusPlus(lr=0.5)], ids=repr)
def test_a_rule_that_judges_by_another_learning_rate_is_named(rule: Any, caplog: Any) -> None:
    def training(optimizer: Any) -> str:
        caplog.clear()
        strategy = Strategy(collective=Hub(0, All()), aggregate=rule)
        who = Members(batch_loss, descent)
        HubTraining(
            perceptron(), strategy, conditions(), who, optimizer, lambda model, at: batch_loss(0, model, at)
        )
        return str(caplog.text)

    warned = training(descent)
    assert "judges contributions by steps with lr=0.5" in warned and "(lr=0.1)" in warned
    assert type(rule).__name__ in warned
    assert not training(lambda params: descent(params, 0.5))
    assert not training(lambda params: torch.optim.Adam(params, lr=0.1))


def test_a_model_that_is_not_finite_is_told_as_such_in_any_form() -> None:
    form = ModelForm(Quantise(8), Spec(((4,),)), 3)
    fine = form.decode(form.encode(torch.tensor([1.0, -2.0, 0.5, 0.0]), 1), 1)
    torch.testing.assert_close(fine, torch.tensor([1.0, -2.0, 0.5, 0.0]), atol=0.02, rtol=0)
    for number, bad in enumerate((math.nan, math.inf)):
        told = form.decode(form.encode(torch.tensor([1.0, bad, 0.5, 0.0]), 2 + number), 2 + number)
        assert not told.isfinite().any()


def test_members_that_crash_forget_what_was_left_to_send() -> None:
    strategy = Strategy(compress=ErrorFeedback(TopK(0.1)), collective=Hub(0))
    often = replace(conditions(), cuts=0.3, away_s=0.5, crashes=1.0)
    training = HubTraining(perceptron(), strategy, often, Members(batch_loss, descent), descent)
    before = list(training._forms)
    training.run.until(updates=30)
    assert any(now is not then for now, then in zip(training._forms, before, strict=True))


def test_without_compression_a_form_changes_nothing() -> None:
    whole = Strategy(collective=Hub(0, Cache(2)))
    same = Strategy(compress=Direct(Identity()), collective=Hub(0, Cache(2), model=Identity()))
    first, second = (numbers(train(strategy, 10, descent).model) for strategy in (whole, same))
    assert torch.equal(first, second)


def test_q_fair_brings_losses_nearer_to_each_other() -> None:
    """One member's data are of another kind than those of the three others: a mean leaves it behind."""

    def unlike(member: int, model: nn.Module, number: int) -> Tensor:
        x, y = batch(member, number)
        return nn.functional.cross_entropy(model(x), (y + 1) % 4 if member == 3 else y)

    spread = {}
    for q in (0.0, 4.0):
        strategy = Strategy(collective=Hub(0, All()), aggregate=QFair(q, rho=LR))
        who = Members(unlike, descent)
        training = HubTraining(perceptron(), strategy, conditions(), who, descent)
        training.run.until(updates=150)
        with torch.no_grad():
            each = [float(unlike(member, training.model, 999)) for member in (0, 3)]
        spread[q] = each[1] - each[0]
        assert all(math.isfinite(offer.loss) for offer in training.run._offers.values())
        assert all(one.reason is Reason.BY_LOSS for verdicts in training.verdicts for one in verdicts)
    assert spread[4.0] < 0.6 * spread[0.0]


@pytest.mark.parametrize(
    "strategy", [mlfabric(most=4), teasq(0, every=3, tasks=3)], ids=["gradients", "TEASQ"]
)
def test_side_by_side_members_compute_what_they_do_one_by_one(strategy: Strategy) -> None:
    """With momentum, and members that begin again as their lease has ended."""
    sums = SampleLoss(batch, nn.functional.cross_entropy)
    assert strategy.hub is not None
    strategy = replace(strategy, collective=replace(strategy.hub, task_s=1.25))
    found = []
    for loss in (sums, lambda member, model, number: sums(member, model, number)):
        members = Members(loss, lambda params: torch.optim.SGD(params, lr=LR, momentum=0.5))
        training = HubTraining(perceptron(), strategy, conditions(), members, descent)
        training.run.until(updates=12, seconds=1000.0)
        found.append(numbers(training.model))
        assert len(training.run.steps) == 12
    torch.testing.assert_close(*found)
    assert any(one.worker.outcomes.get("EXPIRED") for one in training.run._members)


def test_no_hub_is_refused() -> None:
    with pytest.raises(UsageError, match="has no hub"):
        train(Strategy())


@pytest.mark.parametrize("exchange", ["gradient", "difference", "model"])
def test_which_way_contributions_take_decides_nothing_about_the_model(exchange: Any) -> None:
    """In step, with and without aggregators: the same model to rounding."""
    slow = Conditions(12, lambda member, task: 1.0, hub_rate=1000.0, rates=lambda member: (1000.0, 1000.0))
    found = []
    for aggregators in (0, 3):
        strategy = Strategy(
            exchange=exchange,
            order=FirstIn(12),
            cadence=EveryStep() if exchange == "gradient" else LocalSteps(2),
            collective=Hub(0, when=All(), aggregators=aggregators, payload_s=600.0),
        )
        training = HubTraining(perceptron(), strategy, slow, Members(batch_loss, descent), one)
        training.run.until(updates=8)
        found.append(training)
    assert found[0].run.sums == 0 < found[1].run.sums
    assert found[1].run.now < found[0].run.now
    for mine, other in zip(found[0].model.parameters(), found[1].model.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_aggregators_and_a_rule_that_must_see_each_alone_are_refused_by_name() -> None:
    with pytest.raises(StrategyError, match=r"aggregate=Krum.*does not go with collective=Hub.*aggregators"):
        Strategy(aggregate=Krum(1), collective=Hub(0, when=All(), aggregators=2))
