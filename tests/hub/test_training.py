"""A hub and its workers as real ranks of a group."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import batch, equal, make, params
from tweed.aggregate import (
    All,
    Cache,
    Each,
    FLTrust,
    Krum,
    Mean,
    QFair,
    Quorum,
    Round,
    Zeno,
    ZenoPlusPlus,
    ZenoPS,
)
from tweed.cadence import LocalSteps, Nesterov
from tweed.collective import Hub, Server
from tweed.compress import (
    ClippedNoise,
    Direct,
    ErrorFeedback,
    Half,
    LazyAggregation,
    LocalResidual,
    LowRank,
    Quantise,
    RandomTensors,
    TopK,
)
from tweed.errors import StrategyError, UsageError
from tweed.exchange.p2p import PeerMessages
from tweed.order import BoundedDelay, NewestFirst
from tweed.recipes import mlfabric, teasq
from tweed.rng import source
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

WORKERS, STEPS = 3, 8


def loss(model: Any, rank: int, number: int) -> Tensor:
    found: Tensor = (model(batch(rank, number)) - 1).square().mean()
    return found


@torch.no_grad()
def total_loss(model: nn.Module, size: int) -> float:
    return sum(float(loss(model, worker, number)) for worker in range(size) for number in range(4))


def ready(strategy: Strategy, rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Slow enough for gradients that come late; a hub adds differences as they are, and takes the middle of
    its model and that of a worker."""
    model, _ = make(0)
    hub = strategy.collective is not None and strategy.collective.rank == rank
    lr = {"difference": 1.0, "model": 0.5}.get(strategy.exchange, 0.02) if hub else 0.02
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def train(rank: int, size: int, strategy: Strategy, steps: int = STEPS, broken: int = -1) -> dict[str, Any]:
    """The hub's part, and a worker's plain loop."""
    model, optimizer = ready(strategy, rank)
    before = total_loss(model, size)
    run = tweed.attach(model, optimizer, strategy)
    if run.serves:
        run.serve()
    else:
        for number in range(steps):
            bad = rank == broken and (number == 2 or strategy.memory is None)
            (loss(model, rank, number) * (math.nan if bad else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    run.detach()
    after = total_loss(model, size)
    stats, verdicts = run.stats, {one.sender: one.weight for one in run.verdicts}
    return {"params": params(model), "loss": (before, after), "stats": stats, "verdicts": verdicts}


def alone() -> list[Tensor]:
    """The workers' mean gradient, step by step, in one process."""
    model, optimizer = ready(Strategy(), 0)
    for number in range(STEPS):
        optimizer.zero_grad()
        (sum(loss(model, rank, number) for rank in range(1, WORKERS + 1)) / WORKERS).backward()
        optimizer.step()
    return params(model)


def test_in_step_the_hub_has_the_numbers_of_one_process() -> None:
    hub, *workers = run_ranks(train, WORKERS + 1, Strategy(collective=Hub(0, when=All())), backend="tweed")
    for mine, true in zip(hub["params"], alone(), strict=True):
        torch.testing.assert_close(mine, true)
    assert all(equal(worker["params"], hub["params"]) for worker in workers)
    assert hub["stats"].exchanges == hub["stats"].steps == STEPS


STRATEGIES: dict[str, Strategy] = {
    "each": Strategy(collective=Hub(0)),
    "cache": Strategy(collective=Hub(0, when=Cache(2), tasks=2), order=NewestFirst(2)),
    "quorum": Strategy(collective=Hub(1, when=Quorum(2)), compress=Direct(Half())),
    "bounded delay": Strategy(collective=Hub(0, when=Each()), order=BoundedDelay(4)),
    "sparse": Strategy(collective=Hub(2), compress=ErrorFeedback(TopK(0.2))),
    "differences": Strategy("difference", LocalSteps(2), ErrorFeedback(TopK(0.2)), collective=Hub(0)),
    "models": Strategy("model", LocalSteps(2, proximal=0.1), collective=Hub(0, when=Cache(2))),
    "in rounds": Strategy(collective=Hub(1, when=Round(2))),
    "models of 8 bits": Strategy(collective=Hub(0, model=Quantise(8))),
    "TEASQ-Fed": teasq(0, every=2, tasks=2),
    "MLfabric": mlfabric(),
    "LTP": Strategy(collective=Hub(0), transport="ltp"),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_workers_train_through_it_when_they_can(name: str) -> None:
    strategy = STRATEGIES[name]
    found = run_ranks(train, WORKERS + 1, strategy, 12, backend="tweed")
    assert strategy.collective is not None
    hub = found[strategy.collective.rank]
    before, after = hub["loss"]
    assert after < 0.8 * before
    assert all(part.isfinite().all() for part in hub["params"])
    counted = sum(one["stats"].exchanges for one in found) - hub["stats"].exchanges
    per_update = {"cache": 2, "quorum": 2, "models": 2, "in rounds": 2, "TEASQ-Fed": 2}.get(name, 1)
    assert 1 <= hub["stats"].exchanges <= counted
    assert hub["stats"].exchanges >= counted / per_update / 2


def test_in_step_models_are_averaged_as_without_a_hub() -> None:
    """With the same proximal steps: workers that average their models among themselves."""
    cadence = LocalSteps(2, proximal=0.5)
    strategy = Strategy("model", cadence, collective=Hub(0, when=All()))
    hub, *_ = run_ranks(averages, WORKERS + 1, strategy, backend="tweed")
    alone = run_ranks(averages, WORKERS, Strategy("model", cadence), backend="tweed")
    for mine, true in zip(hub, alone[0], strict=True):
        torch.testing.assert_close(mine, true)


def averages(rank: int, size: int, strategy: Strategy) -> list[Tensor]:
    model, _ = make(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0 if strategy.hub and rank == 0 else 0.02)
    run = tweed.attach(model, optimizer, strategy, sync_buffers=False)
    if run.serves:
        run.serve()
    else:
        for number in range(STEPS):
            loss(model, rank if strategy.hub else rank + 1, number).backward()
            optimizer.step()
            optimizer.zero_grad()
    run.detach()
    return params(model)


def test_a_rule_leaves_out_a_worker_that_sends_nothing_finite() -> None:
    strategy = Strategy(collective=Hub(0, when=Quorum(3)), aggregate=Krum(1))
    hub, *_ = run_ranks(train, WORKERS + 1, strategy, STEPS, 2, backend="tweed")
    assert all(part.isfinite().all() for part in hub["params"])
    assert hub["verdicts"].get(2, 0.0) == 0.0 and hub["stats"].exchanges >= 1


def test_a_gradient_that_is_not_finite_once_leaves_nothing_in_a_residual() -> None:
    strategy = Strategy(
        compress=ErrorFeedback(TopK(0.2)), collective=Hub(0, when=Cache(3)), aggregate=Krum(1)
    )
    hub, *_ = run_ranks(train, WORKERS + 1, strategy, 16, 2, backend="tweed")
    assert all(part.isfinite().all() for part in hub["params"])
    assert hub["loss"][1] < hub["loss"][0]


def defended(rank: int, size: int, rule: Any) -> tuple[float, float, list[Tensor]]:
    """Two of three workers send ten times the opposite; the hub trusts batches of the honest one's kind."""
    model, _ = make(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    before = float(loss(model, 1, 0))
    strategy = Strategy(collective=Hub(0, when=All()), aggregate=Mean())
    if isinstance(rule, ZenoPS):
        strategy = replace(strategy, exchange="difference", cadence=LocalSteps(rule.steps))
        optimizer.param_groups[0]["lr"] = 0.02 if rank else 1.0
    strategy = replace(strategy, aggregate=rule)
    run = tweed.attach(model, optimizer, strategy)
    if run.serves:
        kept = [buffer.clone() for buffer in model.buffers()]
        run.serve(trusted=lambda number: loss(model, 1, 100 + number))
        for buffer, old in zip(model.buffers(), kept, strict=True):
            buffer.copy_(old)
    else:
        for number in range(STEPS):
            (loss(model, rank, number) * (1 if rank == 1 else -10)).backward()
            optimizer.step()
            optimizer.zero_grad()
    run.detach()
    return before, float(loss(model, 1, 0)), params(model)


@pytest.mark.parametrize("rule", [Zeno(2, lr=0.02), FLTrust(), ZenoPS(2, lr=0.02)], ids=repr)
def test_with_trusted_samples_most_workers_may_be_hostile(rule: Any) -> None:
    before, after, values = run_ranks(defended, WORKERS + 1, rule, backend="tweed")[0]
    assert after < before and all(value.isfinite().all() for value in values)
    before, after, _ = run_ranks(defended, WORKERS + 1, Mean(), backend="tweed")[0]
    assert not after < before


def fair(rank: int, size: int) -> dict[int, float]:
    """Three workers that report losses of 1, 2 and none, twice: the first of a round counts."""
    model, optimizer = ready(Strategy(), rank)
    rule = QFair(1.0, rho=0.0)
    strategy = Strategy("difference", LocalSteps(2), collective=Hub(0, when=All()), aggregate=rule)
    run = tweed.attach(model, optimizer, strategy)
    if run.serves:
        run.serve()
    else:
        for number in range(4):
            loss(model, rank, number).backward()
            if rank < 3:
                run.report_loss(rank + 10.0 * (number % 2))
            optimizer.step()
            optimizer.zero_grad()
    run.detach()
    return {one.sender: one.weight for one in run.verdicts}


def test_losses_that_workers_report_weigh() -> None:
    weights = run_ranks(fair, WORKERS + 1, backend="tweed")[0]
    assert weights == pytest.approx({1: 1 / 3, 2: 2 / 3, 3: 0.0})


def ahead(rank: int, size: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], bool]:
    """The model that a worker has after an exchange, as it is evaluated, and at the end."""
    memory = LocalResidual(RandomTensors(0.5))
    strategy = Strategy("difference", LocalSteps(2), memory, collective=Hub(0, when=All()))
    model, optimizer = ready(strategy, rank)
    run = tweed.attach(model, optimizer, strategy)
    inside = after = params(model)
    if run.serves:
        run.serve()
    else:
        for number in range(4):
            loss(model, rank, number).backward()
            optimizer.step()
            optimizer.zero_grad()
        after = params(model)
        with run.averaged():
            inside = params(model)
        run.finish()
    run.detach()
    return after, inside, params(model), equal(after, inside)


def test_a_local_residual_is_no_part_of_the_model_that_is_evaluated() -> None:
    hub, *workers = run_ranks(ahead, WORKERS + 1, backend="tweed")
    assert not all(one[3] for one in workers)
    for _, inside, end, _ in workers:
        for mine, true in zip(inside, hub[2], strict=True):
            torch.testing.assert_close(mine, true)
        assert equal(end, hub[2])


def overheard(rank: int, size: int, privacy: Any, data: int) -> tuple[list[Any], float, int]:
    """What a worker sends to its hub, given noise that is known here; and how private it is."""
    strategy = Strategy(
        "difference",
        LocalSteps(2),
        LocalResidual(RandomTensors(0.3)),
        collective=Hub(0, when=All(), privacy=privacy),
    )
    model, optimizer = ready(strategy, rank)
    for group in optimizer.param_groups:
        group["lr"] = 1e-16 if rank == 0 else 0.02
    urandom, os.urandom = os.urandom, source(1, rank)
    try:
        run = tweed.attach(model, optimizer, strategy)
    finally:
        os.urandom = urandom
    heard: list[Any] = []
    if run.serves:
        run.serve()
    else:
        send = PeerMessages.send

        def keep(self: Any, tensor: Tensor, to: int) -> None:
            heard.append(tensor.tolist())
            send(self, tensor, to)

        PeerMessages.send = keep  # type: ignore[method-assign]
        for number in range(6):
            (loss(model, data + rank, number) * (math.nan if data and number == 3 else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
        PeerMessages.send = send  # type: ignore[method-assign]
    run.detach()
    counts = privacy is None or rank == 0 or find_spec("dp_accounting") is not None
    return heard, run.epsilon() if counts else 0.0, len(heard)


def all_overheard(rank: int, size: int) -> list[Any]:
    """With noise beside which a contribution is nothing at all, and with none; each with two data sets."""
    deaf = ClippedNoise(1.0)
    object.__setattr__(deaf, "noise", 1e15)
    return [overheard(rank, size, privacy, data) for privacy in (deaf, None) for data in (0, 50)]


def test_nothing_leaves_a_live_worker_without_noise() -> None:
    first, second, *bare = zip(*run_ranks(all_overheard, 3, backend="tweed"), strict=True)
    for one, other in zip(first[1:], second[1:], strict=True):
        assert one[2] > 6 and repr(one[0]) == repr(other[0])
    assert repr(bare[0][1][0]) != repr(bare[1][1][0])
    assert bare[0][1][1] == first[0][1] == math.inf and first[1][1] < 1e-3


def without(rank: int, size: int) -> str:
    model, optimizer = ready(Strategy(), rank)
    run = tweed.attach(model, optimizer, Strategy(collective=Hub(0), aggregate=ZenoPlusPlus()))
    words = ""
    if run.serves:
        try:
            run.serve()
        except UsageError as error:
            words = str(error)
    run.detach()
    return words


def test_a_hub_without_trusted_samples_says_so_at_once() -> None:
    assert "run.serve(trusted=...)" in run_ranks(without, 2, backend="tweed")[0]


def refused(rank: int, size: int) -> list[str]:
    words = []
    model, optimizer = ready(Strategy(), rank)
    with pytest.raises(StrategyError, match="Let the hub be rank 0"):
        tweed.attach(model, optimizer, Strategy(collective=Hub(1, privacy=ClippedNoise(1.0))))
    try:
        tweed.attach(model, optimizer, Strategy(collective=Hub(0, when=All()), aggregate=Krum(0)))
    except StrategyError as error:
        words.append(str(error))
    run = tweed.attach(model, optimizer, Strategy(collective=Hub(0)))
    if not run.serves:
        try:
            optimizer.step(lambda: 1.0)
        except UsageError as error:
            words.append(str(error))
    else:
        run.serve()
    run.detach()
    return words


def test_too_few_workers_and_closures_are_refused() -> None:
    hub, worker, _ = run_ranks(refused, 3, backend="tweed")
    assert "at least three" in hub[0] and len(hub) == 1
    assert "without a closure" in worker[1]


def rest(rank: int, size: int) -> list[Tensor]:
    strategy = Strategy("difference", LocalSteps(4), collective=Hub(0))
    model, optimizer = ready(strategy, rank)
    run = tweed.attach(model, optimizer, strategy)
    if run.serves:
        run.serve()
    else:
        for number in range(6):
            loss(model, rank, number).backward()
            optimizer.step()
            optimizer.zero_grad()
        run.finish()
    run.detach()
    return params(model)


def test_finish_hands_over_the_steps_since_the_last_exchange() -> None:
    hub, worker = run_ranks(rest, 2, backend="tweed")
    model, optimizer = ready(Strategy(), 1)
    for number in range(6):
        optimizer.zero_grad()
        loss(model, 1, number).backward()
        optimizer.step()
    for mine, theirs, true in zip(hub, worker, params(model), strict=True):
        torch.testing.assert_close(mine, true)
        torch.testing.assert_close(theirs, true)


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: Strategy("step", collective=Hub(0)), "a model that others have moved"),
        (lambda: Strategy(collective=Hub(0, model=LowRank(2))), "which each worker can read by itself"),
        (lambda: Strategy(compress=LazyAggregation(Half()), collective=Hub(0)), "hears them one by one"),
        (lambda: Strategy(compress=ErrorFeedback(LowRank(2)), collective=Hub(0)), "hears them one by one"),
        (lambda: Strategy("difference", LocalSteps(2, outer=Nesterov()), collective=Hub(0)), "outer one"),
        (lambda: Strategy(order=BoundedDelay(3), collective=Server(0)), "needs a hub"),
        (lambda: Strategy(collective=Hub(0, when=3)), "when=3"),
        (lambda: Strategy(collective=Hub(0), order=3), "order=3"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_a_hub_cannot_do_is_refused_by_name(make_it: Any, words: str) -> None:
    with pytest.raises(StrategyError, match=words):
        make_it()
