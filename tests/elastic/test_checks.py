"""A loop, an optimizer or a DDP that does not fit members is told what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import tweed
from tests.elastic.loops import (
    BATCH,
    Trainee,
    dataset,
)
from tweed.elastic import Elastic, start
from tweed.elastic.training.run import ElasticTraining
from tweed.errors import UsageError
from tweed.hooks.deferred_steps import say_at_once


def alone() -> tuple[Trainee, ElasticTraining]:
    trainee, control = Trainee(0), start(dist.HashStore(), 0, 1, Elastic(1, 1))
    return trainee, tweed.attach(trainee.model, trainee.optimizer, elastic=control)


def draw(run: ElasticTraining, **options: Any) -> Any:
    return next(iter(run.batches(dataset(), 5, BATCH, **options)))


def _own_loader(trainee: Trainee, run: ElasticTraining) -> None:
    trainee.learn(*dataset()[:4])


def _twice(trainee: Trainee, run: ElasticTraining) -> None:
    x, y = draw(run)
    loss = (trainee.model(x) - y).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def _no_step(trainee: Trainee, run: ElasticTraining) -> None:
    for x, y in run.batches(dataset(), 5, BATCH):
        (trainee.model(x) - y).square().mean().backward()


def _no_pass(trainee: Trainee, run: ElasticTraining) -> None:
    for _ in run.batches(dataset(), 5, BATCH):
        pass


def _closure(trainee: Trainee, run: ElasticTraining) -> None:
    draw(run)
    trainee.optimizer.step(lambda: 0.0)


def _evaluated(trainee: Trainee, run: ElasticTraining, loop: Callable[..., Any]) -> None:
    """A loop with a closure of the run's."""

    def loss(batch: Any) -> Tensor:
        x, y = batch
        return (trainee.model(x) - y).square().mean()

    closure = run.closure(loss)
    for batch in run.batches(dataset(), 5, BATCH):
        loop(trainee.optimizer, closure, lambda batch=batch: loss(batch).backward())


def _unreached(trainee: Trainee, run: ElasticTraining) -> None:
    closure = run.closure(lambda batch: torch.zeros((), requires_grad=True) + 1)
    draw(run)
    trainee.optimizer.step(closure)


def _late(trainee: Trainee, run: ElasticTraining) -> None:
    draw(run)
    run.keep("schedule", trainee.schedule)


class Odd:
    """Its state is not of plain values."""

    def state_dict(self) -> dict[str, Any]:
        return {"value": object()}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def _no_sync(trainee: Trainee, run: ElasticTraining) -> None:
    with run.no_sync():
        pass


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (_own_loader, r"loop over run\.batches"),
        (_twice, "one backward pass and one step for each batch"),
        (_no_step, r"optimizer\.step\(\) was not called"),
        (_no_pass, "no backward pass for the last batch"),
        (_closure, r"make it by closure = run\.closure"),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: opt.step()), "make it by"),
        (
            lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: opt.step(own)),
            "outside of the",
        ),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: ours()), "taken no step"),
        (lambda trainee, run: _evaluated(trainee, run, lambda opt, ours, own: None), "taken no step"),
        (_unreached, "reaches no parameter"),
        (lambda trainee, run: run.closure(lambda batch: batch)(), r"without a batch: loop over run\.batches"),
        (lambda trainee, run: (draw(run), run.closure(lambda batch: batch)), r"before run\.batches"),
        (
            lambda trainee, run: (
                run.closure(lambda batch: batch),
                next(run.batches(dataset(), 5, per_member=3)),
            ),
            "the same samples: give batch=",
        ),
        (_late, r"before run\.batches"),
        (lambda trainee, run: run.keep("model", trainee.schedule), "this name is taken"),
        (lambda trainee, run: run.keep("a number", 3), "needs state_dict"),
        (lambda trainee, run: run.keep("an object", Odd()), "plain values and tensors"),
        (_no_sync, r"batches\(at_most=n\)|batches of"),
        (lambda trainee, run: draw(run, shuffle=True), "samples of a step of all together"),
        (lambda trainee, run: draw(run, sampler=[1]), "a part of the data for each rank would be lost"),
        (lambda trainee, run: next(run.batches(iter([]), 1, 1)), "dealt by number"),
        (lambda trainee, run: next(run.batches(dataset(), 1)), "one of the two"),
        (lambda trainee, run: draw(run, per_member=3), "one of the two"),
    ],
)
def test_a_wrong_loop_is_told_the_way(wrong: Callable[[Trainee, ElasticTraining], Any], words: str) -> None:
    trainee, run = alone()
    try:
        with pytest.raises(UsageError, match=words):
            wrong(trainee, run)
    finally:
        run.detach()


def attach(**options: Any) -> None:
    trainee = Trainee(0)
    tweed.attach(trainee.model, trainee.optimizer, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"elastic": Elastic(1, 1), "hub": "K@h:1"}, "give elastic alone"),
        ({"elastic": Elastic(1, 1)}, "this process does not know the other members"),
    ],
)
def test_attach_says_what_members_lack(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TWEED_JOIN", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=words):
        attach(**options)


def test_a_place_that_strangers_reach_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWEED_SECRET", "TWEED_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"without a secret nothing listens on 0\.0\.0\.0"):
        start(dist.HashStore(), 0, 1, Elastic(1, 1, host="0.0.0.0"))


def test_ddp_that_has_a_hook_is_refused_before_anybody_is_met() -> None:
    trainee = Trainee(0)
    trainee.wrap()
    try:
        trainee.model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        with pytest.raises(UsageError, match="already has a communication hook"):
            tweed.attach(trainee.model, trainee.optimizer, elastic=Elastic(1, 1))
    finally:
        dist.destroy_process_group()


def test_ddp_over_several_processes_is_told_to_have_a_group_of_one() -> None:
    trainee = Trainee(0)
    trainee.wrap()
    try:
        trainee.model.process_group = SimpleNamespace(size=lambda: 3)
        with pytest.raises(UsageError, match=r"over 3 processes.*world_size=1"):
            tweed.attach(trainee.model, trainee.optimizer, elastic=Elastic(1, 1))
    finally:
        dist.destroy_process_group()


def test_members_step_at_once_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    say_at_once.cache_clear()
    trainee, control = Trainee(0), start(dist.HashStore(), 0, 1, Elastic(1, 1))
    with caplog.at_level("WARNING", logger="tweed"):
        tweed.attach(trainee.model, trainee.optimizer, "urgent", elastic=control).detach()
    assert [line for line in caplog.messages if "steps are taken at once, as a step of members" in line]
