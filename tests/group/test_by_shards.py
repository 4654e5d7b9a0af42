"""Several messages per step, live: a server and three workers of which each is slow in turn."""

from __future__ import annotations

import time
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tweed.cadence import ByShards
from tweed.collective import Server
from tweed.compress import Half
from tweed.errors import NonFinite, UsageError
from tweed.exchange.coded_steps import choice
from tweed.hooks.run import Run
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

WORKERS, STEPS = 3, 6


def model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    return made, torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)


def shards(step: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(step)
    x, y = torch.randn(12, 5, generator=random), torch.randn(12, 2, generator=random)
    return list(zip(x.tensor_split(WORKERS), y.tensor_split(WORKERS), strict=True))


def loss(net: nn.Module, step: int, shard: int) -> Tensor:
    x, y = shards(step)[shard]
    return (net(x) - y).square().mean()


def values(net: nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in net.parameters()])


def alone() -> Tensor:
    """Plain training in one place: gradients add up in the order of shards."""
    net, optimizer = model()
    params = list(net.parameters())
    for step in range(STEPS):
        each = [torch.autograd.grad(loss(net, step, shard), params) for shard in range(WORKERS)]
        for param, grads in zip(params, zip(*each, strict=True), strict=True):
            param.grad = sum(grads[1:], start=grads[0]) / WORKERS
        optimizer.step()
    return values(net)


def steps(run: Run, net: nn.Module, optimizer: Any, numbers: range) -> None:
    for step in numbers:
        for shard in run.shards():
            time.sleep(0.01 if run.worker == step % WORKERS else 0.0)
            loss(net, step, shard).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def trained(cadence: ByShards, compress: Any = None, first: int = STEPS) -> Tensor:
    """So many steps, then a new run that goes on from the first one's state, if any are left."""
    net, optimizer = model()
    state = None
    for numbers in filter(None, (range(first), range(first, STEPS))):
        run = tweed.attach(net, optimizer, Strategy(cadence=cadence, compress=compress, collective=Server(0)))
        if state is not None:
            run.load_state_dict(state)
        if run.serves:
            run.serve(len(numbers))
        else:
            steps(run, net, optimizer, numbers)
        state = run.state_dict()
        run.detach()
    return values(net)


def changing() -> Tensor:
    """The code is another one after every second step."""
    schemes = cycle([("GC", 2), ("uncoded, one shard", 1), ("uncoded, messages", 2)])
    choice._EVERY, choice.choose = 2, lambda *args, **kwargs: next(schemes)
    return trained(ByShards("auto", 2))


def broken(rank: int) -> str:
    net, optimizer = model()
    run = tweed.attach(net, optimizer, Strategy(cadence=ByShards(load=2), collective=Server(0)))
    before = values(net)
    for shard in run.shards():
        (loss(net, 0, shard) * (float("nan") if rank == 2 else 1.0)).backward()  # type: ignore[no-untyped-call]
        time.sleep(0.0 if rank == 2 else 0.05)
    with pytest.raises(NonFinite) as raised:
        optimizer.step()
    assert torch.equal(values(net), before)
    run.finish()
    run.detach()
    return str(raised.value)


def misused(rank: int) -> list[str]:
    """What a worker is told that forgets `shards`, and then computes beside it."""
    net, optimizer = model()
    run = tweed.attach(net, optimizer, Strategy(cadence=ByShards(load=1), collective=Server(0)))
    told = []
    if rank == 1:
        with pytest.raises(UsageError) as without:
            optimizer.step()
        told = [str(without.value)]
    steps(run, net, optimizer, range(2))
    run.finish()
    if rank == 1:
        with pytest.raises(UsageError) as beside:
            loss(net, 0, 0).backward()  # type: ignore[no-untyped-call]
        told.append(str(beside.value))
    run.detach()
    return told


def everything(rank: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {code: trained(ByShards(code, 2)) for code in ("gradient_code", "nested")}
    found["uncoded"] = trained(ByShards("uncoded", 2), first=2)
    found["half"] = trained(ByShards("uncoded", 2), Half())
    found["changing"] = changing()
    found["share"] = trained(ByShards("uncoded", 2, share=0.6))
    return found | {"broken": broken(rank), "misused": misused(rank)}


def test_workers_train_the_model_of_plain_training_whoever_is_slow() -> None:
    results = run_ranks(everything, 1 + WORKERS, backend="tweed")
    plain = alone()
    for result in results:
        assert torch.equal(result["uncoded"], plain)
        for coded in ("gradient_code", "nested", "changing"):
            torch.testing.assert_close(result[coded], plain, atol=1e-5, rtol=0)
        torch.testing.assert_close(result["half"], plain, atol=1e-2, rtol=0)
        assert torch.equal(result["half"], results[0]["half"])
        assert torch.equal(result["share"], results[0]["share"])  # one model on all ranks, if another one
        assert "rank 2" in result["broken"]
    without, beside = results[1]["misused"]
    assert "for shard in run.shards()" in without and "outside of run.shards()" in beside


def test_shards_belong_to_a_cadence() -> None:
    class Plain:
        strategy = Strategy()

    with pytest.raises(UsageError, match="belongs to cadence=ByShards"):
        Run.shards(Plain())  # type: ignore[arg-type]
